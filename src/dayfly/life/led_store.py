"""The run's store as its leader writes it: a leader that has lost its term changes nothing.

    run.json, checkpoint/latest.json, …   by compare and swap, from the version known in this term
    deletions                             after the term was renewed
    everything else                       as it is: its content follows from the run, or its name
                                          is taken once (`put_new`)

A new leader writes every such object anew when it takes its term. An object's bytes end in white
space that spells the term, which JSON passes over: so their versions differ, also where a store
derives them from the content, and what an earlier leader knows is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from dayfly.life.leadership import Leadership
from dayfly.wire.stores.base import (
    Buffer,
    ObjectInfo,
    ObjectMissing,
    Pieces,
    Store,
    StoreError,
    Version,
)
from dayfly.wire.stores.files import FileStore

#: What a run is: objects of JSON that change.
CHANGING = ("run.json", "plan.json", "history.json", "bill.json", "checkpoint/latest.json")
#: How often a write is tried again that was refused though this leader leads: an earlier one was
#: under way.
_TRIES = 5


class LedStore(Store):
    """A run's store, for its leader.

    Args:
        store: as everybody sees it.
        leadership: of this process.
        copy: gets the objects outside of folders, too, for people to look at.
    """

    def __init__(self, store: Store, leadership: Leadership, copy: FileStore) -> None:
        self.url = store.url
        self.traffic = store.traffic
        self._store = store
        self._leadership = leadership
        self._copy = copy
        self._versions: dict[str, Version | None] = {}
        for name in CHANGING:
            with suppress(ObjectMissing):
                data, self._versions[name] = store.get_versioned(name)
                self._swap(name, data)

    def __str__(self) -> str:
        return str(self._store)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        if name not in CHANGING:
            return self._store.put(name, data)
        assert not isinstance(data, Pieces)
        version = self._swap(name, bytes(data))
        if "/" not in name:
            self._copy.put(name, data)
        return version

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
        names = list(names)
        if names:
            self._leadership.check(renew=True)
            self._store.delete(names)

    def clear(self, prefix: str = "") -> None:
        self._leadership.check(renew=True)
        self._store.clear(prefix)

    def below(self, prefix: str, *, private: bool = False) -> Store:
        return self._store.below(prefix, private=private)

    def discard_unfinished(self) -> None:
        self._leadership.check(renew=True)
        self._store.discard_unfinished()

    def _swap(self, name: str, data: bytes) -> Version:
        """Writes an object that changes. Raises Deposed if this leader leads no more."""
        marked = data.rstrip() + _marked(self._leadership.term)
        for _ in range(_TRIES):
            self._leadership.check()
            known = self._versions.get(name)
            version = (
                self._store.put_new(name, marked)
                if known is None
                else self._store.put_if(name, marked, known)
            )
            if version is not None:
                self._versions[name] = version
                return version
            self._leadership.check(renew=True)
            info = self._store.stat(name)
            self._versions[name] = None if info is None else info.version
        raise StoreError(f"{name} in {self} was changed by somebody else each time: {_REMEDY}")


_REMEDY = "end what else writes there, and resume the run"


def _marked(term: int) -> bytes:
    """A line of white space that no other term has."""
    return b"\n" + f"{term:b}".translate({ord("0"): " ", ord("1"): "\t"}).encode()
