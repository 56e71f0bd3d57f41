"""Data as arrays in the store: put there once, read row by row by those who need them.

The coordinator places `x_train, y_train` and, if given, `x_val, y_val` as `.npy` objects; a
`ArraySplit` of each, which travels in the payload, says where. A function then reads the rows of
its own slices only, neighbours in one request.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from dayfly.dataclass_json import Count, Matches
from dayfly.errors import RequestError, in_short
from dayfly.training.order import Indices, permuted
from dayfly.training.randomness import SPLIT
from dayfly.training.state import chunks, first_bad_row
from dayfly.wire.message import as_bytes
from dayfly.wire.stores.base import Buffer, Pieces, Store

#: Bytes read over bytes needed, at most, when neighbouring rows are read in one request.
AMPLIFICATION = 2
#: Share of the samples that is split off for validation where no validation arrays are given.
VALIDATION_SHARE = 10

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array in the store: its object, where its rows begin, and what they are.

    Args:
        digest: of the rows, by which the same data are known again; None: of an earlier version.
    """

    object: Annotated[str, Matches(r"data/\w[\w.-]{0,199}", "an object of the data")]
    offset: int
    rows: Count
    row_shape: tuple[int, ...]
    dtype: str
    digest: str | None = None

    def check_read(self) -> None:
        """Raises ValueError for elements that numpy does not know, or that are no numbers."""
        try:
            known = np.dtype(self.dtype)
        except TypeError:
            known = np.dtype(object)
        if known.hasobject or known.names is not None:
            raise ValueError(f"dtype {self.dtype!r} is no type of numbers")

    @property
    def row_bytes(self) -> int:
        """Size of one row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class ArraySplit:
    """Training or validation samples: two arrays, and which of their rows belong to it.

    start, stop: positions in the split's order of all rows, with `split_seed`; None: all rows.
    """

    x: StoredArray
    y: StoredArray
    samples: int
    split_seed: int | None = None
    start: int = 0

    def rows_of(self, indices: Indices) -> Indices:
        """Rows of the arrays that hold these samples."""
        if self.split_seed is None:
            return indices
        return permuted(indices + self.start, self.x.rows, SPLIT, self.split_seed)


def place(
    arrays: Arrays, store: Store, seed: int, *, note: Callable[[str], None] | None = None
) -> tuple[ArraySplit, ArraySplit]:
    """Puts checked arrays into the store, in one pass over them, whatever their size.

    Args:
        arrays: by name; as `check_arrays` wants them.
        store: of the run.
        seed: of the split, where there are no validation arrays.
        note: told of NaN and infinity among the elements; None: they are refused.

    Returns:
        The training and the validation part.

    Raises:
        RequestError: an element is NaN or infinite.
    """
    placed = {name: _place(array, name, store, note) for name, array in arrays.items()}
    x, y = placed["x_train"], placed["y_train"]
    if "x_val" in placed:
        validation = ArraySplit(placed["x_val"], placed["y_val"], placed["x_val"].rows)
        return ArraySplit(x, y, x.rows), validation
    cut = validation_samples(x.rows)
    return ArraySplit(x, y, x.rows - cut, seed, cut), ArraySplit(x, y, cut, seed, 0)


def place_split(
    x: NDArray[Any], y: NDArray[Any], store: Store, note: Callable[[str], None] | None
) -> ArraySplit:
    """Puts one pair of checked arrays into the store, as samples that all belong together.

    Args:
        x: rows of the inputs.
        y: rows of the targets, as many.
        store: of the run.
        note: told of NaN and infinity among the elements; None: they are refused.

    Raises:
        RequestError: an element is NaN or infinite.
    """
    placed = _place(x, "x_val", store, note)
    return ArraySplit(placed, _place(y, "y_val", store, note), placed.rows)


def validation_samples(rows: int) -> int:
    """How many of the rows are split off for validation."""
    return max(1, rows // VALIDATION_SHARE)


def check_arrays(arrays: Arrays, where: str) -> None:
    """Raise RequestError unless these are arrays to train on. `where` they are, for the message."""
    for name in ("x_train", "y_train"):
        if name not in arrays:
            raise RequestError(f"{where} has no {name}: it needs x_train and y_train")
    if ("x_val" in arrays) != ("y_val" in arrays):
        raise RequestError(f"{where} has one of x_val and y_val: give both or neither")
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) == 0:
            raise RequestError(f"{name} of {where} is empty: it needs a row a sample")
        try:
            torch.from_numpy(np.empty(0, array.dtype.newbyteorder("=")))
        except (TypeError, ValueError):
            raise RequestError(
                f"{name} of {where} has elements of type {array.dtype}: "
                "save it as numbers that torch knows, such as float32 or int64"
            ) from None
    for part in ("train", "val"):
        sizes = [len(arrays[f"{letter}_{part}"]) for letter in "xy" if f"{letter}_{part}" in arrays]
        if len(set(sizes)) > 1:
            raise RequestError(f"{where}: x_{part} has {sizes[0]} rows, y_{part} has {sizes[1]}")
    if "x_val" not in arrays and len(arrays["x_train"]) < 2:
        raise RequestError(f"{where} has one sample: nothing is left to validate on")


def load_array(path: Path) -> NDArray[Any]:
    """Returns the array of a `.npy` file, mapped into memory. Raises RequestError."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"data {str(path)!r} cannot be read: {in_short(error)}") from error
    if not isinstance(array, np.ndarray):
        raise RequestError(f"data {str(path)!r} is no array: save it by numpy.save")
    return array


def load_arrays(path: Path) -> Arrays:
    """The arrays of a directory of `.npy` files or of one `.npz`. Raises RequestError."""
    names = ("x_train", "y_train", "x_val", "y_val")
    try:
        if path.is_dir():
            files = {name: path / f"{name}.npy" for name in names}
            return {
                name: np.load(file, mmap_mode="r", allow_pickle=False)
                for name, file in files.items()
                if file.exists()
            }
        archive = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise RequestError(
                f"data {str(path)!r} is one array: give the directory of x_train.npy and "
                "y_train.npy, or one .npz"
            )
        with archive:
            return {name: archive[name] for name in names if name in archive}
    except FileNotFoundError:
        raise RequestError(
            f"data {str(path)!r} is not there (looked in {Path.cwd()}): "
            'give "digits", a directory of x_train.npy and y_train.npy, or one .npz'
        ) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RequestError(
            f"data {str(path)!r} cannot be read as arrays: {in_short(error)}: save them with "
            "numpy.save in a directory, or numpy.savez"
        ) from error


def coalesce(rows: Indices) -> list[range]:
    """Ranges of rows to read for sorted, distinct `rows` (n,), as few as go.

    A range is made longer as long as at most `AMPLIFICATION` times its needed rows are read.
    """
    ranges: list[range] = []
    start = needed = 0
    for row in rows.tolist():
        if ranges and row + 1 - start <= AMPLIFICATION * (needed + 1):
            ranges[-1] = range(start, row + 1)
            needed += 1
        else:
            ranges.append(range(row, row + 1))
            start, needed = row, 1
    return ranges


class ArrayReader:
    """Reads rows of one array. `bytes_read` counts what it took from the store."""

    def __init__(self, store: Store, rows: StoredArray) -> None:
        self._store = store
        self._rows = rows
        self._dtype = torch.from_numpy(np.empty(0, np.dtype(rows.dtype))).dtype
        self.bytes_read = 0

    def read(self, rows: Indices) -> torch.Tensor:
        """Rows (n,), in any order -> tensor (n, *row_shape)."""
        wanted, position = np.unique(rows, return_inverse=True)
        ranges = coalesce(wanted)
        read = torch.empty((sum(map(len, ranges)), *self._rows.row_shape), dtype=self._dtype)
        # Where each range's first row lies in what is read, less where it lies in the array.
        starts = np.array([some.start for some in ranges], dtype=np.int64)
        shifts = np.cumsum([0, *map(len, ranges)], dtype=np.int64)[:-1] - starts
        shift = shifts[np.searchsorted(starts, wanted, side="right") - 1] if ranges else wanted
        data, size, at = as_bytes(read), self._rows.row_bytes, 0
        places = []
        for some in ranges:
            stop = at + len(some) * size
            places.append((self._rows.offset + some.start * size, data[at:stop]))
            at = stop
        self._store.read_into(self._rows.object, places)
        self.bytes_read += data.nbytes
        return read[torch.from_numpy((wanted + shift)[position.reshape(-1)])]


def _place(
    array: NDArray[Any], name: str, store: Store, note: Callable[[str], None] | None
) -> StoredArray:
    dtype = array.dtype.newbyteorder("=")
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": array.shape}
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, header)
    digest = xxhash.xxh3_128()

    def pieces() -> Iterator[Buffer]:
        digest.reset()
        bad: int | None = None
        yield start.getvalue()
        for chunk in chunks(array):
            rows = np.ascontiguousarray(array[chunk.start : chunk.stop], dtype=dtype)
            if bad is None and (found := first_bad_row(rows)) is not None:
                bad = chunk.start + found
                text = f"{name} of the job's data holds NaN or infinity in row {bad}"
                if note is None:
                    raise RequestError(
                        f"{text}: clean it (numpy.isfinite finds where), or let training go on "
                        "with it by --on-nan warn"
                    )
                note(text)
            data = rows.reshape(-1).view(np.uint8).data if rows.size else b""
            digest.update(data)
            yield data

    place, offset = f"data/{name}.npy", start.tell()
    store.put(place, Pieces(offset + array.size * dtype.itemsize, pieces))
    return StoredArray(
        place, offset, len(array), tuple(array.shape[1:]), dtype.str, digest.hexdigest()
    )


#: The file in scikit-learn's package.
_DIGITS = ("datasets", "data", "digits.csv.gz")


def digits() -> Arrays:
    """Returns scikit-learn's handwritten digits: x (1797, 1, 8, 8) float32, 0..1, y (1797,) int64.

    The file is read where scikit-learn has it: importing the package takes more than a second.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    files = [path for one in folders if (path := Path(one, *_DIGITS)).is_file()]
    if not files:
        raise RequestError(
            'data="digits" comes with scikit-learn, which is not installed: '
            "pip install 'dayfly[digits]'"
        )
    rows = np.loadtxt(files[0], delimiter=",", dtype=np.float32)  # (1797, 64 pixels and the digit)
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / np.float32(16)
    return {"x_train": images, "y_train": rows[:, -1].astype(np.int64)}


#: Built-in data by name.
BUILTIN = {"digits": digits}
