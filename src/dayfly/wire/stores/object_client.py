"""Objects below a place, through obstore: what the channel and the store of objects share.

Paths are relative to the place. Errors are obstore's, which `object_urls.trouble_of` explains;
nothing is tried again here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dayfly.errors import RequestError
from dayfly.wire.outages import Trouble
from dayfly.wire.stores.base import Buffer, Version
from dayfly.wire.stores.object_urls import Place, conflicts, open_objects, trouble_of

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, PutResult

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
        self, place: Place, environment: Mapping[str, str] = os.environ, *, tries: int = 1
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

        Sorted, but in a directory. after: the path that all are greater than.
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
