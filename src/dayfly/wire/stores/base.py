"""What every store promises: durable objects by name, under one URL.

    s3://bucket/runs/digits-1         a store; `open_store` opens it by its URL
        run.json                      an object
        checkpoint/latest.json        an object in the folder `checkpoint`
        checkpoint/000000120/tree.json

Where a channel carries messages for seconds, a store keeps objects for the run and after it: the
job, its data, its checkpoints.

A name is relative: letters, digits, `.`, `_`, `-`, and `/` between folders. It never leaves the
store. A folder is the beginning of names; it exists as long as an object is in it.

All methods may be called from several threads at once. The conformance suite, `conformance`, runs
over every store.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NewType, TypeAlias

from dayfly.errors import DayflyError
from dayfly.wire.outages import Traffic

Buffer: TypeAlias = bytes | bytearray | memoryview

#: What tells two contents of one object apart. Opaque: a store compares its own for equality.
Version = NewType("Version", str)

#: Longest name of an object, in letters.
LONGEST_NAME = 255
#: Of an object that is read piece by piece.
PIECE_BYTES = 4 * 2**20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
#: Ends the names of files that are being written, and no object's.
UNFINISHED = re.compile(r".+\.[0-9a-f]{32}\.tmp")


class StoreError(DayflyError):
    """A store did not do what it was asked for; the text names the object, and what to do."""


class ObjectMissing(StoreError):
    """An object is not there."""


class StoreDenied(StoreError):
    """The user has no right to do this."""


class StoreFull(StoreError):
    """The store has no room."""


class StoreUnreachable(StoreError):
    """The store did not answer in time, or is not there."""


class ObjectDamaged(StoreError):
    """An object is not what was written: it is too short, or changed while it was read."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without reading it.

    Attributes:
        name: relative to the store that was asked.
        size_bytes: its length.
        version: of its content; None: a listing does not tell, and `stat` does.
    """

    name: str
    size_bytes: int
    version: Version | None


@dataclass(frozen=True, slots=True)
class Pieces:
    """The content of an object in pieces, so that it is never whole in memory.

    Attributes:
        nbytes: of all pieces together.
        make: returns the pieces, in order. It is called anew for each try.
    """

    nbytes: int
    make: Callable[[], Iterable[Buffer]]


class Store(ABC):
    """Durable objects by name, under one URL. Thread-safe.

    A put is atomic, and durable when it returns: a reader sees the whole object or none. Nothing
    is appended and nothing renamed. An object that `put_if` changes is written by `put_new` and
    `put_if` alone, and removed only once nobody writes it any more.

    Every method raises one of the kinds of `StoreError`, and ValueError for a name that is none.
    What fails for a moment is tried again, for a bounded time. `str(store)` names it in errors.

    Attributes:
        url: without secrets; `open_store(url)` opens the same objects elsewhere.
        traffic: requests and bytes of this object, and of the stores that it gave `below`.
    """

    url: str
    traffic: Traffic

    def __str__(self) -> str:
        return self.url

    @abstractmethod
    def put(self, name: str, data: Buffer | Pieces) -> Version:
        """Stores an object, in place of an earlier one of the name.

        Args:
            name: of the object.
            data: its bytes, whole or in pieces.

        Returns:
            Its version.

        Raises:
            StoreError: it cannot be stored; an earlier object stays.
        """

    @abstractmethod
    def put_new(self, name: str, data: Buffer) -> Version | None:
        """Stores an object unless the name is taken.

        If the answer of the store is lost, this reads what is there, and takes it for its own if
        the bytes are equal. Where the winner must be one, the bytes need a token of the caller.

        Args:
            name: of the object.
            data: its bytes.

        Returns:
            The version; None: the name is taken.

        Raises:
            StoreError: the store does not answer, or refuses.
        """

    @abstractmethod
    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        """Stores an object if the earlier one still has this version (compare and swap).

        A lost answer is treated as by `put_new`.

        Args:
            name: of the object.
            data: its bytes.
            version: that the earlier object must have.

        Returns:
            The new version; None: the object has another one, or is gone.

        Raises:
            StoreError: the store does not answer, or refuses.
        """

    @abstractmethod
    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        """Returns a whole object and its version.

        Raises:
            ObjectMissing: there is none.
        """

    def get(self, name: str) -> bytes:
        """Returns a whole object.

        Raises:
            ObjectMissing: there is none.
        """
        return self.get_versioned(name)[0]

    @abstractmethod
    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        """Reads parts of an object into memory of the caller, all of one version.

        Args:
            name: of the object.
            ranges: the offset of the first byte, and the memory to be filled from there on.

        Raises:
            ObjectMissing: it is not there.
            ObjectDamaged: it ends before a range does.
        """

    def get_pieces(self, name: str) -> Iterator[Buffer]:
        """Yields an object piece by piece, for one that is larger than memory.

        Raises:
            ObjectMissing: it is not there.
            ObjectDamaged: it was replaced meanwhile, so the pieces are not of one version.
        """
        info = self.stat(name)
        if info is None:
            raise missing(name, self)
        if info.size_bytes <= PIECE_BYTES:
            yield self.get(name)
            return
        for start in range(0, info.size_bytes, PIECE_BYTES):
            piece = bytearray(min(PIECE_BYTES, info.size_bytes - start))
            self.read_into(name, [(start, memoryview(piece))])
            yield piece
        if self.stat(name) != info:
            raise ObjectDamaged(f"{name} in {self} was replaced while it was read: read it again")

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo | None:
        """Returns size and version of an object; None if it is not there."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yields the objects below a folder and its folders, sorted by name.

        Args:
            prefix: the folder; "": the whole store.
            after: the name that all listed names are greater than.
        """

    @abstractmethod
    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yields the names of the folders right below a folder, sorted, as `list` takes them."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Removes objects; those that are not there are passed over."""

    def clear(self, prefix: str = "") -> None:
        """Removes all objects below a folder; "": of the whole store."""
        self.delete(info.name for info in self.list(prefix))

    @abstractmethod
    def below(self, prefix: str, *, private: bool = False) -> Store:
        """Returns the store of the objects below a folder.

        Args:
            prefix: the folder.
            private: whether this user alone is to read it, where a store has such modes.
        """

    def discard_unfinished(self) -> None:
        """Removes what killed writers left, where that takes room. Nobody may write meanwhile."""
        return None


def check_name(name: str) -> str:
    """Returns the name of an object or folder.

    Raises:
        ValueError: it is none.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or UNFINISHED.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an object")
    return name


def check_names(names: Iterable[str]) -> list[str]:
    """Returns names of objects as a list.

    Raises:
        ValueError: one is no name, or a name stands alone in place of several.
    """
    if isinstance(names, str):
        raise ValueError(f"{names!r} is one name: give several, as in [{names!r}]")
    return [check_name(name) for name in names]


def size_of(data: Buffer | Pieces) -> int:
    """Returns the bytes of what a put is given."""
    return len(data) if isinstance(data, (bytes, bytearray)) else data.nbytes


def missing(name: str, store: Store) -> ObjectMissing:
    """Returns the error for an object that is not there.

    Args:
        name: of the object.
        store: where it was looked for.
    """
    return ObjectMissing(
        f"{name} is not in {store}: check that this is the store it was written to, or put it "
        "back from a copy"
    )


def ends_early(name: str, store: Store, at: int) -> ObjectDamaged:
    """Returns the error for an object that ends too early.

    Args:
        name: of the object.
        store: where it is.
        at: the first byte that is missing.
    """
    return ObjectDamaged(
        f"{name} in {store} ends before byte {at}: it is not what was written; put it back from a "
        "copy"
    )


class WrappedStore(Store):
    """The objects of another store, under its URL; requests and bytes count there.

    Args:
        store: the other one.
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.traffic = store.traffic
        self._store = store

    def __str__(self) -> str:
        return str(self._store)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        return self._store.put(name, data)

    def put_new(self, name: str, data: Buffer) -> Version | None:
        return self._store.put_new(name, data)

    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        return self._store.put_if(name, data, version)

    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        return self._store.get_versioned(name)

    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        self._store.read_into(name, ranges)

    def stat(self, name: str) -> ObjectInfo | None:
        return self._store.stat(name)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(prefix, after)

    def folders(self, prefix: str = "") -> Iterator[str]:
        return self._store.folders(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def clear(self, prefix: str = "") -> None:
        self._store.clear(prefix)

    def below(self, prefix: str, *, private: bool = False) -> Store:
        return self._store.below(prefix, private=private)

    def discard_unfinished(self) -> None:
        self._store.discard_unfinished()
