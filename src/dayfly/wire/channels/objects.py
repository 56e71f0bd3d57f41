"""Object stores as a channel: S3 and its kin, Google's, Azure's, and a directory.

    prefix/<run>/<generation>/open                              the marker: the channel is there
    prefix/<run>/<generation>/to-3/000000012.grad-part.0        a message: header, payload

A message is one object, put on condition that there is none yet (If-None-Match), so the first put
wins and readers see all of it or nothing. See `polled` for what is asked when.

Requests: a put is one, and so is each time that a get asks. `stored` asks once a key. Removals
go together, up to 1000 a request; listings come 1000 names a request. Not counted are the
coordinator's listings beyond the first thousand, removals, and the looks for the marker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from dayfly import owned
from dayfly.errors import WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import Objects
from dayfly.wire.channels.polled import PolledChannel, destination_of, ready
from dayfly.wire.keys import Key
from dayfly.wire.message import Incoming
from dayfly.wire.outages import Trouble
from dayfly.wire.stores.object_client import ObjectClient
from dayfly.wire.stores.object_urls import ObjectURL

#: Requests at once where one question is several.
_AT_ONCE = 16
#: An object up to here comes whole; a larger one in pieces of so many bytes, at least.
_WHOLE_BYTES, _PIECE_BYTES = 4 * 2**20, 2**20
_MARKER = "open"


class ObjectChannel(PolledChannel):
    """Messages as objects below a place."""

    abilities = Objects.abilities

    def __init__(self, site: Site) -> None:
        url, namespace = site.url, site.namespace
        super().__init__(site, url)
        place = ObjectURL.parse(url)
        self._root = place.root
        self._client = ObjectClient(place)
        self._run = namespace.run
        self._generation = f"{namespace.run}/{namespace.generation:06d}"
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="dayfly-objects")

    def make(self) -> None:
        """Make the channel. Raises WireError if it is there, or cannot be there."""
        if self._root is not None:
            try:
                owned.claim(self._root / self._run, self._run)
            except OSError as error:
                raise WireError(f"{error.filename} cannot be made: {error.strerror}") from error
        token = uuid.uuid4().hex.encode()
        won = self._making(lambda: self._put_new(_MARKER, [token]))
        if not won and self._making(self._token) != token:
            raise WireError(f"the channel at {self._place}/{self._generation} is there already")
        if self._making(lambda: self._put_new(_MARKER, [token])):
            self._making(self._remove_run)
            raise WireError(
                f"{self._place} lets a second put replace the first: dayfly needs conditional "
                "puts (If-None-Match), so give another store"
            )

    def find(self) -> None:
        """Raise WireError unless the channel was made."""
        if not self._insist("opening the channel", self._is_open):
            raise WireError(f"there is no channel at {self._place}/{self._generation}")

    def close(self) -> None:
        super().close()
        self._pool.shutdown(wait=True)

    def _trouble(self, error: Exception) -> Trouble | None:
        return self._client.trouble_of(error)

    def _create(self, key: Key, head: bytes, payload: memoryview) -> tuple[bool, int]:
        # Two buffers, as they are: no copy is made.
        return self._put_new(f"{key.mailbox}/{key.name}", (head, payload)), 1

    def _fetch(self, key: Key) -> Incoming | None:
        got = self._client.get(self._path(f"{key.mailbox}/{key.name}"))
        if got is None:
            return None
        size = got.meta["size"]
        pieces = [got.bytes()] if size <= _WHOLE_BYTES else got.stream(min_chunk_size=_PIECE_BYTES)
        return Incoming(size, (memoryview(piece) for piece in pieces))

    def _look(self, keys: Sequence[Key]) -> tuple[frozenset[Key], int]:
        there = self._pool.map(lambda key: self._is_there(f"{key.mailbox}/{key.name}"), keys)
        return frozenset(key for key, is_there in zip(keys, there, strict=True) if is_there), len(
            keys
        )

    def _list(self, destination: int | None) -> Iterator[tuple[Key, int]]:
        below = self._generation
        if destination is not None:
            below += f"/{Key(0, 'a', 0, destination).mailbox}"
        for path, size in self._objects(below):
            mailbox, _, name = path.removeprefix(f"{self._generation}/").partition("/")
            reader = destination_of(mailbox)
            if reader is not None and (key := Key.parse(name, reader)) is not None:
                yield key, size

    def _delete(self, keys: Sequence[Key]) -> None:
        self._client.delete([self._path(f"{key.mailbox}/{key.name}") for key in keys])

    def _is_open(self) -> bool:
        return self._is_there(_MARKER)

    def _remove_run(self) -> None:
        if self._root is not None and not owned.belongs(self._root / self._run, self._run):
            return
        # The markers go first, so that whoever still puts is told; what it put meanwhile is found
        # by looking again.
        while found := [path for path, _ in self._messages()]:
            self._client.delete([path for path in found if path.endswith(f"/{_MARKER}")])
            self._client.delete(found)
        if self._root is not None:
            owned.remove(self._root / self._run, self._run)

    def _take_back(self, recent: Sequence[Key]) -> None:
        super()._take_back(recent)
        if self._root is not None:
            # Directories that the client made anew for what was put.
            for folder, _, _ in os.walk(self._root / self._run, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)

    def _messages(self) -> Iterator[tuple[str, int]]:
        """Objects of the run; of a directory, without the mark of its owner."""
        mark = f"{self._run}/{owned.MARKER}"
        return (found for found in self._objects(self._run) if found[0] != mark)

    def _path(self, name: str) -> str:
        return f"{self._generation}/{name}"

    def _put_new(self, name: str, pieces: Sequence[bytes | memoryview]) -> bool:
        return self._client.create(self._path(name), pieces) is not None

    def _token(self) -> bytes:
        got = self._client.get(self._path(_MARKER))
        return b"" if got is None else bytes(got.bytes())

    def _is_there(self, name: str) -> bool:
        return self._client.head(self._path(name)) is not None

    def _objects(self, below: str) -> Iterator[tuple[str, int]]:
        for page in self._client.pages(below):
            for found in page:
                yield found["path"], found["size"]


class ObjectFactory(ChannelFactory):
    """Makes the channels of `Objects`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        channel = ObjectChannel(site)
        return ready(channel, channel.make)

    def open(self, site: Site, reader: int) -> Channel:
        channel = ObjectChannel(site)
        return ready(channel, channel.find)

    def remove(self, site: Site) -> None:
        with ObjectChannel(site) as channel:
            channel.remove()
