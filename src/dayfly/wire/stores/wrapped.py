"""A store that does what another does; subclasses change some of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from dayfly.wire.stores.base import Buffer, ObjectInfo, Pieces, Store, Version


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

    def open(self, name: str) -> BinaryIO:
        return self._store.open(name)

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
