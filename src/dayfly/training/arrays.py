"""Data as arrays in the store: put there once, read row by row by those who need them.

The coordinator places `x_train, y_train` and, if given, `x_val, y_val` as `.npy` objects; a
`ArraySplit` of each, which travels in the payload, says where. A function then reads the rows of
its own slices only, neighbours in one request. Samples of unequal length, such as files of images,
stand one after another in an object, and a second one says where each lies:

    data/x_train.bin         | sample 0 | sample 1    | sample 2 | ...
    data/x_train.spans.npy   int64 (N, 2): first byte of each sample, and the byte after its last
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from dayfly.data.encoded import Blobs, Encoded, Form
from dayfly.dataclass_json import Count, Matches
from dayfly.errors import RequestError
from dayfly.training.order import Indices, permuted
from dayfly.training.randomness import SPLIT
from dayfly.training.state import chunks, first_bad_row
from dayfly.wire.message import as_bytes
from dayfly.wire.stores.base import Buffer, Pieces, Store

#: Bytes read over bytes needed, at most, when neighbouring rows are read in one request.
AMPLIFICATION = 2
#: Share of the samples that is split off for validation where no validation arrays are given.
VALIDATION_SHARE = 10

Arrays = Mapping[str, NDArray[Any] | Encoded]


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array in the store: its object, where its rows begin, and what they are.

    Args:
        digest: of the rows, by which the same data are known again; None: of an earlier version.
        form: in which the rows are stored, and how they are decoded.
        spans_at: where the rows of the object of spans begin; None: all rows are of one length.
        mean_bytes: of a stored row whose length is its own.
    """

    object: Annotated[str, Matches(r"data/\w[\w.-]{0,199}", "an object of the data")]
    offset: int
    rows: Count
    row_shape: tuple[int, ...]
    dtype: str
    digest: str | None = None
    form: Form = field(default_factory=Form)
    spans_at: int | None = None
    mean_bytes: int = 0

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
        """Size of one row; the mean where each has its own."""
        if self.spans_at is not None:
            return self.mean_bytes
        return int(np.prod(self.row_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def sample_bytes(self) -> int:
        """Size of one decoded sample, as far as it is known."""
        return self.form.decoded_bytes or self.row_bytes

    @property
    def spans(self) -> StoredArray:
        """Where the samples of unequal length lie: (rows, 2), their first bytes and their ends."""
        assert self.spans_at is not None, "samples of one length"
        name = f"{self.object.removesuffix('.bin')}.spans.npy"
        return StoredArray(name, self.spans_at, self.rows, (2,), "<i8")


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


def store_arrays(
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
    placed = {name: _store_array(array, name, store, note) for name, array in arrays.items()}
    x, y = placed["x_train"], placed["y_train"]
    if "x_val" in placed:
        validation = ArraySplit(placed["x_val"], placed["y_val"], placed["x_val"].rows)
        return ArraySplit(x, y, x.rows), validation
    cut = validation_samples(x.rows)
    return ArraySplit(x, y, x.rows - cut, seed, cut), ArraySplit(x, y, cut, seed, 0)


def store_split(
    x: NDArray[Any] | Encoded,
    y: NDArray[Any] | Encoded,
    store: Store,
    note: Callable[[str], None] | None,
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
    placed = _store_array(x, "x_val", store, note)
    return ArraySplit(placed, _store_array(y, "y_val", store, note), placed.rows)


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
        stored = array.stored if isinstance(array, Encoded) else array
        if (isinstance(stored, np.ndarray) and stored.ndim == 0) or len(array) == 0:
            raise RequestError(f"{name} of {where} is empty: it needs a row a sample")
        if isinstance(array, Encoded):
            continue
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
        found = read[torch.from_numpy((wanted + shift)[position.reshape(-1)])]
        form = self._rows.form
        return found if form.kind == "plain" else form.decode(found)


class BlobReader:
    """Reads samples of unequal length, and decodes them. `bytes_read` counts what it took."""

    def __init__(self, store: Store, rows: StoredArray) -> None:
        self._store = store
        self._rows = rows
        self._spans = ArrayReader(store, rows.spans)
        self._bytes = 0

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the store so far."""
        return self._bytes + self._spans.bytes_read

    def read(self, rows: Indices) -> list[Any]:
        """Samples (n,), in any order, decoded, as a transform gets them."""
        wanted, position = np.unique(rows, return_inverse=True)
        spans = self._spans.read(wanted).numpy()
        ranges = coalesced(spans)
        data = bytearray(sum(map(len, ranges)))
        starts, places, at = [], [], 0
        for some in ranges:
            places.append((some.start, memoryview(data)[at : at + len(some)]))
            starts.append(some.start - at)
            at += len(some)
        if data:
            self._store.read_into(self._rows.object, places)
        self._bytes += len(data)
        firsts = [some.start for some in ranges]
        within = np.searchsorted(firsts, spans[:, 0], side="right") - 1
        shifts = np.array(starts or [0], np.int64)[within]
        view = memoryview(data)
        pieces = [view[a:b] for a, b in (spans - shifts[:, None]).tolist()]
        decode = self._rows.form.decode
        decoded = [decode(bytes(piece)) for piece in pieces]
        return [decoded[one] for one in position.reshape(-1).tolist()]


def coalesced(spans: NDArray[np.int64]) -> list[range]:
    """Ranges of bytes to read for sorted spans (n, 2), as `coalesce` has them for rows."""
    ranges: list[range] = []
    needed = 0
    for start, stop in spans.tolist():
        length = stop - start
        if ranges and stop - ranges[-1].start <= AMPLIFICATION * (needed + length):
            ranges[-1] = range(ranges[-1].start, stop)
            needed += length
        elif length:
            ranges.append(range(start, stop))
            needed = length
    return ranges


def opened(store: Store, rows: StoredArray) -> ArrayReader | BlobReader:
    """Returns the reader of an array in the store."""
    return ArrayReader(store, rows) if rows.spans_at is None else BlobReader(store, rows)


def _store_array(
    array: NDArray[Any] | Encoded, name: str, store: Store, note: Callable[[str], None] | None
) -> StoredArray:
    if not isinstance(array, Encoded):
        return _store_rows(array, name, store, note)
    if isinstance(array.stored, Blobs):
        return _store_blobs(array.stored, name, store, array.form)
    return replace(_store_rows(array.stored, name, store, note), form=array.form)


def _store_blobs(blobs: Blobs, name: str, store: Store, form: Form) -> StoredArray:
    digest = xxhash.xxh3_128()

    def pieces() -> Iterator[Buffer]:
        digest.reset()
        for piece in blobs.pieces():
            digest.update(piece)
            yield piece

    ends = np.cumsum(blobs.lengths)
    total = int(ends[-1])
    object_name = f"data/{name}.bin"
    store.put(object_name, Pieces(total, pieces))
    spans = _store_rows(np.stack([ends - blobs.lengths, ends], 1), f"{name}.spans", store, None)
    # A split of the same bytes into other samples is other data.
    digest.update((spans.digest or "").encode())
    return StoredArray(
        object_name,
        0,
        len(blobs),
        (),
        "|u1",
        digest.hexdigest(),
        form,
        spans.offset,
        -(-total // len(blobs)),
    )


def _store_rows(
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

    object_name, offset = f"data/{name}.npy", start.tell()
    store.put(object_name, Pieces(offset + array.size * dtype.itemsize, pieces))
    return StoredArray(
        object_name, offset, len(array), tuple(array.shape[1:]), dtype.str, digest.hexdigest()
    )
