"""Objects in a bucket: S3 and its kin, Google's, Azure's.

    s3://bucket/prefix/checkpoint/latest.json

A put is one request up to `WHOLE_BYTES`, and conditional puts always are; a larger object goes in
parts, and is there once the last one is answered. Reads of large parts, or of several, go side by
side. What fails for a moment is tried again for `outage_s` seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from dayfly.wire.outages import OUTAGE_S, Cause, Retry, Traffic
from dayfly.wire.stores.base import (
    Buffer,
    ObjectDamaged,
    ObjectInfo,
    Pieces,
    Store,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnreachable,
    Version,
    check_name,
    check_names,
    ends_early,
    missing,
    size_of,
)
from dayfly.wire.stores.object_client import (
    BATCH,
    READS_AT_ONCE,
    Conflict,
    ObjectClient,
    Read,
    plan_reads,
    scatter,
)
from dayfly.wire.stores.object_urls import ObjectURL, check_usable

#: An object up to here is put by one request.
WHOLE_BYTES = 16 * 2**20
#: A part of a larger one, at least; and the most parts that S3 takes.
_PART_BYTES, _MOST_PARTS = 8 * 2**20, 10_000
#: Parts at once: so many of them are in memory.
_PARTS_AT_ONCE = 4
#: Tries of one part.
_PART_TRIES = 6
#: Chunks of an answer are as large, at least.
_CHUNK_BYTES = 2**20

_ERRORS = {
    Cause.DENIED: StoreDenied,
    Cause.FULL: StoreFull,
    Cause.UNREACHABLE: StoreUnreachable,
    Cause.REFUSED: StoreError,
    Cause.BEYOND: ObjectDamaged,
}


class ObjectStore(Store):
    """Objects in a folder of a bucket.

    Args:
        client: of the bucket, or of a prefix in it.
        folder: below that; "": the bucket or prefix itself.
        traffic: counts requests and bytes; None: counters of its own.
        outage_s: seconds for which a store that does not answer is asked again.
    """

    def __init__(
        self,
        client: ObjectClient,
        folder: str = "",
        *,
        traffic: Traffic | None = None,
        outage_s: float = OUTAGE_S,
    ) -> None:
        place = client.place.below(folder) if folder else client.place
        self.url = place.url
        self.traffic = Traffic() if traffic is None else traffic
        self._client = client
        self._folder = f"{folder}/" if folder else ""
        self._retry = Retry(
            client.trouble_of, lambda text, cause: _ERRORS[cause](text), f" in {self}", outage_s
        )
        self._insist = self._retry.insist

    def below(self, prefix: str, *, private: bool = False) -> ObjectStore:
        folder = self._path(prefix)
        outage_s = self._retry.outage.most_s
        return ObjectStore(self._client, folder, traffic=self.traffic, outage_s=outage_s)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        path, size = self._path(name), size_of(data)
        if isinstance(data, Pieces) and size > WHOLE_BYTES:
            return self._put_in_parts(name, path, data)
        pieces = list(_Checked(name, data)) if isinstance(data, Pieces) else [data]
        put = self._insist(name, lambda: self._client.put(path, pieces))
        self.traffic.count(up=size)
        return self._client.version_of(put)

    def put_new(self, name: str, data: Buffer) -> Version | None:
        path = self._path(name)
        return self._put_if(name, data, lambda: self._client.create(path, [data]))

    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        path = self._path(name)
        return self._put_if(name, data, lambda: self._client.replace(path, [data], version))

    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        path = self._path(name)

        def get() -> tuple[bytes, Version]:
            got = self._client.get(path)
            if got is None:
                raise missing(name, self)
            return bytes(got.bytes()), self._client.version_of(got.meta)

        data, version = self._insist(name, get)
        self.traffic.count(down=len(data))
        return data, version

    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        path, reads = self._path(name), plan_reads(ranges)

        def read(one: Read) -> str:
            return self._insist(name, lambda: self._read(name, path, one))

        def read_all() -> None:
            if len(reads) <= 1:
                tags = {read(one) for one in reads}
            else:
                with ThreadPoolExecutor(min(len(reads), READS_AT_ONCE)) as pool:
                    tags = set(pool.map(read, reads))
            if len(tags) > 1:
                raise Conflict

        self._insist(name, read_all)

    def stat(self, name: str) -> ObjectInfo | None:
        meta = self._head(name)
        if meta is None:
            return None
        return ObjectInfo(name, meta["size"], self._client.version_of(meta))

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        below = self._path(prefix) if prefix else self._folder[:-1]
        return self._list(below, f"{self._folder}{after}" if after else "")

    def folders(self, prefix: str = "") -> Iterator[str]:
        below = self._path(prefix) if prefix else self._folder[:-1]
        return self._folders(below)

    def delete(self, names: Iterable[str]) -> None:
        paths = [f"{self._folder}{name}" for name in check_names(names)]
        if paths:
            requests = self._insist("a removal", lambda: self._client.delete(paths))
            self.traffic.count(requests=requests)

    def _path(self, name: str) -> str:
        return f"{self._folder}{check_name(name)}"

    def _head(self, name: str) -> Any:
        path = self._path(name)
        meta = self._insist(name, lambda: self._client.head(path))
        self.traffic.count()
        return meta

    @cached_property
    def _patient(self) -> ObjectClient:
        """A client that tries each part of a large object again by itself."""
        return ObjectClient(self._client.place, tries=_PART_TRIES)

    def _put_in_parts(self, name: str, path: str, data: Pieces) -> Version:
        part_bytes = max(_PART_BYTES, -(-data.nbytes // _MOST_PARTS))

        def put() -> Any:
            pieces = _Checked(name, data)
            try:
                return self._patient.put_in_parts(path, pieces, part_bytes, _PARTS_AT_ONCE)
            except BaseException:
                if pieces.error is not None:  # the caller's, however obstore says it
                    raise pieces.error from None
                raise

        done = self._insist(name, put)
        self.traffic.count(up=data.nbytes, requests=-(-data.nbytes // part_bytes) + 2)
        return self._client.version_of(done)

    def _put_if(self, name: str, data: Buffer, put: Callable[[], Any]) -> Version | None:
        """A conditional put. One whose answer was lost may find that it won."""
        lost = False

        def put_once() -> Any:
            nonlocal lost
            try:
                return put()
            except Exception as error:
                lost = lost or not isinstance(error, Conflict)
                raise

        done = self._insist(name, put_once)
        won = None if done is None else self._client.version_of(done)
        self.traffic.count(up=0 if won is None else size_of(data))
        if won is None and lost and self.stat(name) is not None:
            there, version = self.get_versioned(name)
            won = version if there == data else None
        return won

    def _read(self, name: str, path: str, read: Read) -> str:
        """Carries a request out; returns the ETag of the object that answered."""
        try:
            got = self._client.get(path, (read.start, read.stop))
        except Exception as error:
            trouble = self._client.trouble_of(error)
            if trouble is not None and trouble.cause is Cause.BEYOND:
                raise ends_early(name, self, read.stop) from None
            raise
        if got is None:
            raise missing(name, self)
        chunks = (memoryview(chunk) for chunk in got.stream(min_chunk_size=_CHUNK_BYTES))
        end = scatter(chunks, read)
        self.traffic.count(down=end - read.start)
        if end < read.stop:
            raise ends_early(name, self, end)
        return got.meta["e_tag"] or ""

    def _list(self, below: str, after: str) -> Iterator[ObjectInfo]:
        """After an error a listing goes on where it was."""
        of_s3 = self._client.place.scheme == "s3"
        pages = self._client.pages(below, after)

        def next_page() -> Sequence[Any] | None:
            nonlocal pages
            try:
                return next(pages, None)
            except Exception:
                pages = self._client.pages(below, after)
                raise

        while (page := self._insist(below or "the objects", next_page)) is not None:
            self.traffic.count()
            for meta in page:
                # Listings of others write it in another way, or not at all.
                version = self._client.version_of(meta) if of_s3 else None
                name = meta["path"].removeprefix(self._folder)
                yield ObjectInfo(name, meta["size"], version)
                after = meta["path"]

    def _folders(self, below: str) -> Iterator[str]:
        found = self._insist(below or "the folders", lambda: self._client.folders(below))
        self.traffic.count(requests=1 + len(found) // BATCH)
        for path in found:
            yield path.removeprefix(self._folder)


class _Checked:
    """Yields an object's pieces once and checks their bytes; `error` is why they ended."""

    def __init__(self, name: str, data: Pieces) -> None:
        self.error: BaseException | None = None
        self._name = name
        self._data = data

    def __iter__(self) -> Iterator[Buffer]:
        came = 0
        try:
            for piece in self._data.make():
                came += size_of(piece)
                yield piece
            if came != self._data.nbytes:
                raise ValueError(f"{self._name}: {came} bytes came, not {self._data.nbytes}")
        except BaseException as error:
            self.error = error
            raise


def open_bucket(url: str, environment: Mapping[str, str] = os.environ) -> ObjectStore:
    """Returns the store at `s3://bucket/prefix`, `gs://...` or `az://...`. Raises RequestError."""
    place = ObjectURL.parse(url, "store")
    check_usable(environment)
    return ObjectStore(ObjectClient(place, environment))
