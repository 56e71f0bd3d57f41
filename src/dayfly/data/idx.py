"""MNIST's IDX files, as they are published, and those of its kin (Fashion-MNIST, KMNIST, EMNIST).

bytes 0 0 | type (8: bytes) | number of dimensions d | d sizes, big-endian int32 | elements
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.encoded import Encoded, Form
from dayfly.data.files import found, needed, reading
from dayfly.data.spool import Spool
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

_PIECE = 2**20


@suggests
@dataclass(frozen=True, kw_only=True)
class IDXFiles(DataSource):
    """A directory of `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and those of `t10k`.

    They may be `.gz`. x is (1, 28, 28) float32 of 0 to 1, y int64; `t10k` is validated on.
    """

    name: ClassVar[str] = "mnist"
    form: ClassVar[str] = "MNIST's IDX files"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and found(path, *_names("train", 3)) is not None

    def read(self) -> Samples:
        arrays: dict[str, Array] = {}
        for part, called in (("train", "train"), ("val", "t10k")):
            if part == "val" and found(self.expanded_path, *_names(called, 3)) is None:
                continue
            files = [needed(self.expanded_path, self.form, *_names(called, d)) for d in (3, 1)]
            x, y = (idx(path) for path in files)
            if len(x) != len(y):
                raise RequestError(
                    f"{files[0]} has {len(x)} images, {files[1].name} {len(y)} labels: put files "
                    "of one set there"
                )
            arrays[f"x_{part}"] = Encoded(x[:, None], Form("unit", (1, *x.shape[1:])))
            arrays[f"y_{part}"] = y.astype(np.int64)
        return Samples(arrays)


def _names(part: str, dimensions: int) -> list[str]:
    what = "images" if dimensions == 3 else "labels"
    return [f"{part}-{what}{dot}idx{dimensions}-ubyte" for dot in "-."]


def idx(path: Path) -> NDArray[Any]:
    """Returns the bytes of an IDX file (N, ...). Raises RequestError if it is none, or damaged."""
    with reading(path) as file:
        start = file.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08" or start[3] == 0:
            raise RequestError(f"{path} is no IDX file of bytes: it begins with {start.hex()}")
        sizes = file.read(4 * start[3])
        if len(sizes) < 4 * start[3]:
            raise RequestError(f"{path} ends early: put a whole one there")
        rows, *row = struct.unpack(f">{start[3]}i", sizes)
        spool, total = Spool(np.uint8), 0
        while piece := file.read(_PIECE):
            spool.add(np.frombuffer(piece, np.uint8))
            total += len(piece)
    wanted = int(np.prod([rows, *row], dtype=np.int64))
    if total != wanted or not total:
        raise RequestError(
            f"{path} has {total} bytes of elements, and says {wanted}: put a whole one there"
        )
    return spool.array().reshape(rows, *row)
