"""CIFAR-10 and CIFAR-100 in their binary form: records of labels and 3072 bytes of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.encoded import Encoded, Form
from dayfly.data.files import found, needed, reading
from dayfly.data.spool import Spool
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
#: Records that are read together.
_RECORDS = 1000


@suggests
@dataclass(frozen=True, kw_only=True)
class CIFARFiles(DataSource):
    """A directory of `data_batch_1.bin` to `_5.bin` and `test_batch.bin`, or `train.bin, test.bin`.

    x is (3, 32, 32) float32 of 0 to 1, y int64; of CIFAR-100 the fine labels. The test set is
    validated on.
    """

    name: ClassVar[str] = "cifar"
    form: ClassVar[str] = "CIFAR's binary batches"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and found(path, "data_batch_1.bin", "train.bin") is not None

    def read(self) -> Samples:
        root = self.expanded_path
        hundred = found(root, "data_batch_1.bin") is None
        if hundred:
            train, test = [needed(root, self.form, "train.bin")], found(root, "test.bin")
            names = found(root, "fine_label_names.txt")
        else:
            wanted = [f"data_batch_{number}.bin" for number in range(1, 6)]
            train = [needed(root, self.form, name) for name in wanted]
            test, names = found(root, "test_batch.bin"), found(root, "batches.meta.txt")
        labels, count = (2, 100) if hundred else (1, 10)
        arrays = dict(zip(("x_train", "y_train"), _read(train, labels, count), strict=True))
        if test is not None:
            arrays |= zip(("x_val", "y_val"), _read([test], labels, count), strict=True)
        return Samples(arrays, names.read_text().split() if names is not None else ())


def _read(files: Sequence[Path], labels: int, count: int) -> tuple[Array, Array]:
    """x and y of files. labels: bytes of a record before its pixels, of which the last counts."""
    x, y = Spool(np.uint8, _SHAPE), Spool(np.int64)
    for path in files:
        record = 0
        with reading(path) as file:
            while piece := file.read(_RECORDS * (labels + _PIXELS)):
                if len(piece) % (labels + _PIXELS):
                    raise RequestError(
                        f"{path} ends in the middle of a record of {labels + _PIXELS} bytes: put "
                        "a whole one there, of CIFAR's binary version"
                    )
                rows = np.frombuffer(piece, np.uint8).reshape(-1, labels + _PIXELS)
                wrong = rows[:, labels - 1] >= count
                if wrong.any():
                    at = int(wrong.argmax())
                    raise RequestError(
                        f"{path}, record {record + at}: its label is {rows[at, labels - 1]}, and "
                        f"there are {count} classes: put a whole one there"
                    )
                x.add(rows[:, labels:].reshape(-1, *_SHAPE))
                y.add(rows[:, labels - 1])
                record += len(rows)
    if not x.rows:
        raise RequestError(f"{files[0]} is empty: put a whole one there")
    return Encoded(x.array(), Form("unit", _SHAPE)), y.array()
