"""Objects below a URL, through obstore: shared by the channel and the store of objects.

Paths are relative to the URL. Errors are obstore's, which `object_urls.trouble_of` explains;
nothing is tried again here. `plan_reads` says which requests read ranges of an object:

    ranges   |aa|b|    |c|                         |dddddddddddddddddd|
    reads    |<- one ->|                           |<- 8 MiB ->|<- ->|
              the bytes between are read, and thrown away
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dayfly.errors import RequestError
from dayfly.wire.outages import Trouble
from dayfly.wire.stores.base import Buffer, Version
from dayfly.wire.stores.object_urls import ObjectURL, conflicts, open_objects, trouble_of

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, PutResult

#: The most bytes that one request reads, and how many requests go side by side.
READ_BYTES, READS_AT_ONCE = 8 * 2**20, 8
#: Ranges that are no further apart are read by one request: it costs more than so many bytes.
GAP_BYTES = 64 * 2**10


@dataclass(slots=True)
class Read:
    """A request that reads bytes from `start` to `stop`, and where they go: offset and memory."""

    start: int
    stop: int
    into: list[tuple[int, memoryview]] = field(default_factory=list)


def plan_reads(ranges: Sequence[tuple[int, memoryview]]) -> list[Read]:
    """Returns the requests that read these ranges: small neighbours together, large ones cut.

    Overlapping ranges are read by requests of their own.
    """
    reads: list[Read] = []
    for offset, into in sorted(ranges, key=lambda one: one[0]):
        for begin in range(0, into.nbytes, READ_BYTES):
            piece = into[begin : begin + READ_BYTES]
            start = offset + begin
            stop = start + piece.nbytes
            last = reads[-1] if reads else None
            if (
                last is None
                or not 0 <= start - last.stop <= GAP_BYTES
                or stop - last.start > READ_BYTES
            ):
                reads.append(last := Read(start, stop))
            last.stop = stop
            last.into.append((start, piece))
    return reads


def scatter(chunks: Iterable[memoryview], read: Read) -> int:
    """Copies the bytes of an answer to where they go; returns the position after the last one."""
    at, targets = read.start, iter(read.into)
    offset, into = next(targets)
    for rest in chunks:
        while rest.nbytes:
            if at == offset + into.nbytes:
                offset, into = next(targets, (read.stop, into[:0]))
            # Before the next target there are bytes that nobody asked for.
            count = min(rest.nbytes, (offset if at < offset else offset + into.nbytes) - at)
            if count == 0:
                return at
            if at >= offset:
                into[at - offset : at - offset + count] = rest[:count]
            rest = rest[count:]
            at += count
    return at


#: Objects removed with one request, and listed with one.
BATCH = 1000
#: How many of them the client removes with one request, by the scheme.
_REMOVED_AT_ONCE = {"s3": BATCH, "az": 256, "gs": 1, "dir": 1}


class Conflict(Exception):
    """Another change of the object was under way; nobody knows which of them wins."""


class ObjectClient:
    """Objects below a place. Thread-safe. Connects to nothing before it is used.

    Args:
        place: of the objects.
        environment: with the credentials, and the endpoint if it is no usual one.
        tries: see `open_objects`.

    Raises:
        RequestError: the environment is no configuration of a client.
    """

    def __init__(
        self, place: ObjectURL, environment: Mapping[str, str] = os.environ, *, tries: int = 1
    ) -> None:
        self.place = place
        try:
            self._store = open_objects(place, environment, tries=tries)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble is None:
                raise
            text = f"{place.url}: its client cannot be made: {trouble.text}"
            raise RequestError(text) from None

    def trouble_of(self, error: Exception) -> Trouble | None:
        """Returns what an error of these methods comes to; None: it is none of theirs."""
        if isinstance(error, Conflict):
            return Trouble("another change of the object is under way", passing=True)
        return trouble_of(error)

    def put(self, path: str, pieces: Sequence[Buffer]) -> PutResult:
        """Stores an object by one request. The pieces are sent as they are: no copy is made."""
        import obstore

        return obstore.put(self._store, path, pieces, use_multipart=False)

    def put_in_parts(
        self, path: str, pieces: Iterable[Buffer], part_bytes: int, at_once: int
    ) -> PutResult:
        """Stores an object by many requests; it is there once the last one is answered."""
        import obstore

        return obstore.put(
            self._store,
            path,
            iter(pieces),
            use_multipart=True,
            chunk_size=part_bytes,
            max_concurrency=at_once,
        )

    def create(self, path: str, pieces: Sequence[Buffer]) -> PutResult | None:
        """As `put`, unless the path is taken: None, then. Raises Conflict."""
        return self._put_if(path, pieces, "create")

    def replace(self, path: str, pieces: Sequence[Buffer], version: Version) -> PutResult | None:
        """As `put`, if the object has this version; else None. Raises Conflict."""
        if self.place.scheme == "gs":
            return self._put_if(path, pieces, {"version": version})
        done = self._put_if(path, pieces, {"e_tag": version})
        if done is None and version.startswith('"'):
            # radosgw compares the ETag without its quotes, so that none is ever equal.
            there = self.head(path)
            if there is not None and self.version_of(there) == version:
                done = self._put_if(path, pieces, {"e_tag": version.strip('"')})
        return done

    def _put_if(self, path: str, pieces: Sequence[Buffer], mode: Any) -> PutResult | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            return obstore.put(self._store, path, pieces, mode=mode, use_multipart=False)
        except FileNotFoundError as error:
            self._check_bucket(error)
        except (AlreadyExistsError, PreconditionError) as error:
            if conflicts(error):
                raise Conflict from None
        return None

    def version_of(self, known: ObjectMeta | PutResult) -> Version:
        """Returns the version that a store tells: Google compares its own, all others an ETag."""
        tag = known.get("version") if self.place.scheme == "gs" else known.get("e_tag")
        return Version(tag or "")

    def get(self, path: str, span: tuple[int, int] | None = None) -> GetResult | None:
        """Returns an object, or a span of its bytes; None: it is not there."""
        import obstore

        try:
            if span is None:
                return obstore.get(self._store, path)
            return obstore.get(self._store, path, options={"range": span})
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None

    def head(self, path: str) -> ObjectMeta | None:
        """Returns what is known of an object; None: it is not there."""
        import obstore

        try:
            return obstore.head(self._store, path)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None

    def pages(self, below: str, after: str = "") -> Iterator[Sequence[ObjectMeta]]:
        """Yields the objects below a folder, a page a request. Raises Conflict.

        Sorted, but in a directory.

        Args:
            after: the path that all are greater than.
        """
        import obstore

        try:
            yield from obstore.list(
                self._store, below or None, offset=after or None, chunk_size=BATCH
            )
        except FileNotFoundError as error:
            if self.place.root is None:
                raise
            # A file went away while the directory was read.
            raise Conflict from error

    def folders(self, below: str) -> list[str]:
        """Returns the paths of the folders right below a folder."""
        import obstore

        found = obstore.list_with_delimiter(self._store, below or None)
        return sorted(found["common_prefixes"])

    def delete(self, paths: Sequence[str]) -> int:
        """Removes objects; those that are not there are passed over. Returns the requests."""
        import obstore

        for start in range(0, len(paths), BATCH):
            batch = list(paths[start : start + BATCH])
            if self.place.root is None:
                try:
                    obstore.delete(self._store, batch)
                    continue
                except FileNotFoundError as error:
                    self._check_bucket(error)
            # One by one: a file that is missing would hide the others.
            for path in batch:
                self._delete_one(path)
        return -(-len(paths) // _REMOVED_AT_ONCE[self.place.scheme])

    def _delete_one(self, path: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, path)
        except FileNotFoundError as error:
            self._check_bucket(error)

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """An object is missing, or else the bucket: that is an error."""
        if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
            raise error
