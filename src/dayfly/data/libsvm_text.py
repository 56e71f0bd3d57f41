"""LIBSVM's text, in which RCV1, Higgs and other tables are published: `label index:value ...`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.encoded import PAIR, Blobs, Encoded, Form
from dayfly.data.files import lines
from dayfly.data.spool import Spool
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

_LINE = re.compile(r"\s*[-+.\deE]+(\s+\d+:[-+.\deE]+)+\s*(#.*)?")
_SUFFIXES = (".svm", ".libsvm", ".svmlight")


@suggests
@dataclass(frozen=True, kw_only=True)
class LIBSVMFile(DataSource):
    """A line a sample, which has the numbers that are not zero. It may be `.gz`, `.bz2` or `.xz`.

    x is (F,) float32; sparse rows stay so in the store, and workers make them dense. Labels that
    are whole numbers become class numbers in their order, such as 0 and 1 of -1 and 1; others are
    float32.

    Args:
        features: F; default: the greatest index of the file, and that of validation.
        zero_based: whether the first index is 0, not 1.
        regression: whether labels stay numbers, float32, also where they are whole.
        validation: another such file, to validate on; default: a tenth is split off by the seed.
    """

    name: ClassVar[str] = "libsvm"
    form: ClassVar[str] = "LIBSVM's text"

    features: int | None = None
    zero_based: bool = False
    regression: bool = False
    validation: str | PathLike[str] | None = None

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file() or path.suffix.lower() in (".npz", ".npy", ".json"):
            return False
        if any(suffix.lower() in _SUFFIXES for suffix in path.suffixes):
            return True
        try:
            return any(_LINE.fullmatch(line) for _, line in next(_some(path), []))
        except RequestError:
            return False

    def read(self) -> Samples:
        if self.features is not None:
            self.whole("features", 1)
        parts = {"train": _Rows.of(self.expanded_path, self.zero_based)}
        if self.validation is not None:
            other = Path(fspath(self.validation)).expanduser()
            parts["val"] = _Rows.of(other, self.zero_based)
        most = max(rows.width for rows in parts.values())
        if self.features is not None and most > self.features:
            raise RequestError(f"features={self.features}: the file has {most}: raise it")
        width = self.features or most
        labels = np.unique(parts["train"].labels)
        whole = not self.regression and bool((labels == np.round(labels)).all())
        arrays: dict[str, Array] = {}
        for part, rows in parts.items():
            arrays[f"x_{part}"] = rows.x(width)
            arrays[f"y_{part}"] = _classes(rows, labels) if whole else rows.labels.astype("f4")
        names = [f"{one:g}" for one in labels] if whole else []
        return Samples(arrays, names, notes=[f"{width} features"])


@dataclass(frozen=True)
class _Rows:
    """A file's rows. pairs: of all rows, one after another. ends (N,): where each row ends."""

    path: Path
    pairs: NDArray[Any]
    ends: NDArray[np.int64]
    labels: NDArray[np.float64]
    width: int

    @classmethod
    def of(cls, path: Path, zero_based: bool) -> _Rows:
        pairs, ends, labels = Spool(PAIR), Spool(np.int64), Spool(np.float64)
        width = total = 0
        first = 0 if zero_based else 1
        for some in _some(path):
            rows = []
            for number, line in some:
                label, *rest = line.partition("#")[0].split() or [""]
                if label:
                    rows.append(_row(path, number, label, rest, first))
            if not rows:
                continue
            every = np.concatenate([row for _, row in rows])
            width = max(width, int(every["index"].max(initial=-1)) + 1)
            pairs.add(every)
            ends.add(total + np.cumsum([len(row) for _, row in rows]))
            labels.add(np.array([label for label, _ in rows]))
            total += len(every)
        if not ends.rows or not width:
            raise RequestError(f"{path} has no samples: it needs lines such as `1 3:0.5 7:2`")
        return cls(path, pairs.array(), ends.array(), labels.array(), width)

    def x(self, width: int) -> Encoded | NDArray[Any]:
        """Dense rows if they are no larger than sparse ones."""
        starts = np.concatenate([[0], self.ends[:-1]])
        pairs = self.pairs
        if len(pairs) * PAIR.itemsize < len(self.ends) * width * 4:
            lengths = (self.ends - starts) * PAIR.itemsize
            return Encoded(
                Blobs(lengths, _reading(pairs, starts, self.ends)), Form("sparse", (width,))
            )
        dense = Spool(np.float32, (width,))
        for start, end in zip(starts.tolist(), self.ends.tolist(), strict=True):
            row = np.zeros((1, width), np.float32)
            row[0, pairs["index"][start:end]] = pairs["value"][start:end]
            dense.add(row)
        return dense.array()


def _reading(pairs: Any, starts: Any, ends: Any) -> Callable[[int], bytes]:
    return lambda number: pairs[int(starts[number]) : int(ends[number])].tobytes()


def _classes(rows: _Rows, labels: NDArray[np.float64]) -> NDArray[np.int64]:
    number = np.searchsorted(labels, rows.labels)
    unknown = labels[np.minimum(number, len(labels) - 1)] != rows.labels
    if unknown.any():
        raise RequestError(
            f"{rows.path} has the label {rows.labels[unknown.argmax()]:g}, which training has not: "
            "give files of one set"
        )
    return number.astype(np.int64)


def _some(path: Path, count: int = 1000) -> Iterator[list[tuple[int, str]]]:
    """Lines, many at once."""
    some: list[tuple[int, str]] = []
    for line in lines(path):
        some.append(line)
        if len(some) == count:
            yield some
            some = []
    if some:
        yield some


def _row(
    path: Path, number: int, label: str, rest: list[str], first: int
) -> tuple[float, NDArray[Any]]:
    try:
        value = float(label)
        halves = [one.split(":") for one in rest]
        row = np.empty(len(rest), PAIR)
        row["index"] = [int(index) - first for index, _ in halves]
        row["value"] = [float(one) for _, one in halves]
    except (ValueError, OverflowError):
        raise RequestError(
            f"{path}, line {number}: it is no `label index:value ...` of numbers: mend the line"
        ) from None
    if not (np.isfinite(row["value"]).all() and np.isfinite(value)):
        raise RequestError(f"{path}, line {number}: a value is not finite: mend the line")
    if len(row) and (row["index"][0] < 0 or (np.diff(row["index"]) <= 0).any()):
        raise RequestError(
            f"{path}, line {number}: indices have to grow from {first}: sort them, or give "
            "zero_based=True if the first is 0"
        )
    return value, row
