"""Google Cloud Storage's XML interface as it is published: requests are checked, then answered.

There is no server to be had that speaks it. What a request may hold, and what an answer holds, is
as https://cloud.google.com/storage/docs/xml-api/reference-methods says (of 2026-11): PUT, GET, HEAD
and DELETE Object, List objects (V2), and the four requests of a multipart upload. Whatever else
comes is answered by 400 and kept in `wrong`.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

#: What any request may have.
_COMMON = {"host", "user-agent", "accept", "authorization", "date", "content-length"}
_CONDITIONS = {"x-goog-if-generation-match", "x-goog-if-metageneration-match"}
#: By method, and by what it is of: parameters of the query, and headers.
FORM: Mapping[tuple[str, str], tuple[set[str], set[str]]] = {
    ("PUT", "object"): (set(), {"content-type", "content-md5", *_CONDITIONS}),
    ("GET", "object"): ({"generation"}, {"range", "if-match", "if-none-match"}),
    ("HEAD", "object"): ({"generation"}, {"if-match", "if-none-match"}),
    ("DELETE", "object"): ({"generation"}, _CONDITIONS),
    ("GET", "bucket"): (
        {"list-type", "prefix", "delimiter", "start-after", "continuation-token", "max-keys"},
        set(),
    ),
    ("POST", "uploads"): ({"uploads"}, {"content-type"}),
    ("PUT", "part"): ({"partNumber", "uploadId"}, {"content-type", "content-md5"}),
    ("POST", "upload"): ({"uploadId"}, {"content-type"}),
    ("DELETE", "upload"): ({"uploadId"}, set()),
}
_PAGE = 1000


@dataclass
class Bucket:
    """The objects of one bucket, with their generations, and uploads that go on.

    busy: of so many listings the second page fails.
    """

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000))
    wrong: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)
    busy: int = 0
    lock: Any = field(default_factory=threading.RLock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bucket: Bucket

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        name = unquote(url.path).removeprefix("/bucket").removeprefix("/")
        kind = "object" if name else "bucket"
        if "uploads" in query:
            kind = "uploads"
        elif "uploadId" in query:
            kind = "part" if "partNumber" in query else "upload"
        parameters, headers = FORM.get((self.command, kind), (None, set()))
        more = {header.lower() for header in self.headers} - _COMMON - headers
        if parameters is None or set(query) - parameters or more:
            self.bucket.wrong.append(f"{self.command} {self.path} {sorted(more)}")
            return self._answer(400)
        with self.bucket.lock:
            self.bucket.seen.add((self.command, kind))
            getattr(self, f"_{self.command.lower()}_{kind}")(name, query, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do

    def _put_object(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        there = self.bucket.objects.get(name, (b"", 0))[1]
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != there:
            return self._fail(412, "PreconditionFailed")
        self._store(name, body)

    def _store(self, name: str, body: bytes) -> None:
        generation = next(self.bucket.generations)
        self.bucket.objects[name] = body, generation
        self._answer(200, headers=_known(generation))

    def _get_object(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        if name not in self.bucket.objects:
            return self._fail(404, "NoSuchKey")
        data, generation = self.bucket.objects[name]
        headers = {**_known(generation), "Last-Modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
        asked = self.headers.get("Range")
        if asked is None:
            return self._answer(200, data, headers)
        start, stop = (int(one) for one in asked.removeprefix("bytes=").split("-"))
        if start >= len(data):
            return self._fail(416, "InvalidRange")
        part = data[start : stop + 1]
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        self._answer(206, part, headers)

    _head_object = _get_object

    def _delete_object(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        if self.bucket.objects.pop(name, None) is None:
            return self._fail(404, "NoSuchKey")
        self._answer(204)

    def _get_bucket(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        if "continuation-token" in query and self.bucket.busy:
            self.bucket.busy -= 1
            return self._fail(503, "SlowDown")
        found, folders = [], []
        for key in sorted(self.bucket.objects):
            if not key.startswith(prefix) or key <= after:
                continue
            head, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if slash:
                folders.append(f"{prefix}{head}{slash}")
            else:
                found.append(key)
        page, more = found[:_PAGE], found[_PAGE:]
        lines = [
            f"<Contents><Key>{escape(key)}</Key>"
            f"<Generation>{self.bucket.objects[key][1]}</Generation>"
            "<MetaGeneration>1</MetaGeneration><LastModified>2026-11-23T12:00:00.000Z"
            f'</LastModified><ETag>"{self.bucket.objects[key][1]:x}"</ETag>'
            f"<Size>{len(self.bucket.objects[key][0])}</Size></Contents>"
            for key in page
        ]
        lines += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in dict.fromkeys(folders)
        ]
        if more:
            lines.append(f"<NextContinuationToken>{page[-1]}</NextContinuationToken>")
        xml = f"<ListBucketResult><Name>bucket</Name>{''.join(lines)}</ListBucketResult>"
        self._answer(200, xml.encode())

    def _post_uploads(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        upload = f"upload-{next(self.bucket.generations)}"
        self.bucket.uploads[upload] = {}
        xml = (
            f"<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{escape(name)}</Key>"
            f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        )
        self._answer(200, xml.encode())

    def _put_part(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = body
        self._answer(200, headers={"ETag": f'"{query["partNumber"]}"'})

    def _post_upload(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        parts = self.bucket.uploads.pop(query["uploadId"])
        told = [
            int(one.text or 0)
            for one in ET.fromstring(body).iter()
            if one.tag.rpartition("}")[2] == "PartNumber"
        ]
        if told != sorted(parts):
            return self._fail(400, "InvalidPart")
        generation = next(self.bucket.generations)
        self.bucket.objects[name] = b"".join(parts[n] for n in told), generation
        xml = (
            f"<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>{escape(name)}</Key>"
            f'<ETag>"{generation:x}"</ETag></CompleteMultipartUploadResult>'
        )
        self._answer(200, xml.encode(), _known(generation))

    def _delete_upload(self, name: str, query: Mapping[str, str], body: bytes) -> None:
        self.bucket.uploads.pop(query["uploadId"], None)
        self._answer(204)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has gone meanwhile
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def _known(generation: int) -> dict[str, str]:
    return {"ETag": f'"{generation:x}"', "x-goog-generation": str(generation)}


@contextmanager
def google_server() -> Iterator[tuple[Bucket, Mapping[str, str]]]:
    """A bucket called `bucket`, and the environment in which clients find it."""
    bucket = Bucket()
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = json.dumps({**account, "gcs_base_url": url, "disable_oauth": True})
    try:
        yield bucket, {"GOOGLE_BASE_URL": url, "GOOGLE_SERVICE_ACCOUNT_KEY": key}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
