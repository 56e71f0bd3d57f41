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

from collections.abc import Iterable
from contextlib import suppress

from dayfly.life.leadership import Leadership
from dayfly.wire.stores.base import (
    Buffer,
    ObjectMissing,
    Pieces,
    Store,
    StoreError,
    Version,
    WrappedStore,
)
from dayfly.wire.stores.files import FileStore

#: Which files of a script are kept.
FILES = "files.json"
#: What a run is: objects of JSON that change.
CHANGING = ("run.json", "plan.json", "history.json", "bill.json", "checkpoint/latest.json", FILES)
#: How often a write is tried again that was refused though this leader leads: an earlier one was
#: under way.
_TRIES = 5


class LedStore(WrappedStore):
    """A run's store, for its leader.

    Args:
        store: as everybody sees it.
        leadership: of this process.
        copy: gets the objects outside of folders, too, for people to look at.
    """

    def __init__(self, store: Store, leadership: Leadership, copy: FileStore) -> None:
        super().__init__(store)
        self._leadership = leadership
        self._copy = copy
        self._versions: dict[str, Version | None] = {}
        self._mark = _marked(leadership.term)
        for name in CHANGING:
            with suppress(ObjectMissing):
                self._versions[name] = self._taken_over(name)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        if name not in CHANGING:
            return super().put(name, data)
        assert not isinstance(data, Pieces)
        version = self._swap(name, bytes(data))
        if "/" not in name:
            self._copy.put(name, data)
        return version

    def delete(self, names: Iterable[str]) -> None:
        names = list(names)
        self._leadership.check(renew=True)
        super().delete(names)

    def clear(self, prefix: str = "") -> None:
        self._leadership.check(renew=True)
        super().clear(prefix)

    def discard_unfinished(self) -> None:
        self._leadership.check(renew=True)
        super().discard_unfinished()

    def _taken_over(self, name: str) -> Version:
        """Writes an object anew as it is, so that no earlier leader knows its version."""
        for _ in range(_TRIES):
            data, before = self._store.get_versioned(name)
            if version := self._store.put_if(name, data.rstrip() + self._mark, before):
                return version
            self._leadership.check(renew=True)
        raise self._contended(name)

    def _swap(self, name: str, data: bytes) -> Version:
        """Writes an object that changes. Raises Deposed if this leader leads no more."""
        marked = data.rstrip() + self._mark
        for _ in range(_TRIES):
            known = self._versions.get(name)
            self._leadership.check(renew=known is None)
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
        raise self._contended(name)

    def _contended(self, name: str) -> StoreError:
        return StoreError(
            f"{name} in {self} was changed by somebody else each time: end what else writes there, "
            "and resume the run"
        )


def _marked(term: int) -> bytes:
    """A line of white space that no other term has."""
    return b"\n" + f"{term:b}".translate({ord("0"): " ", ord("1"): "\t"}).encode()
