"""Objects in buckets as a store, beyond the suite: outages, lost answers, refusals, requests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from benchmarks.parts.moto_server import MotoServer

from dayfly.errors import RequestError
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import (
    Buffer,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from dayfly.wire.stores.objects import ObjectStore
from tests.channels.kit import kept_port
from tests.channels.store_places import in_environment, shared_moto
from tests.store.google_form import google_server
from tests.store.places import s3

#: The quick suite has the same store over the form that Google publishes.
pytestmark = pytest.mark.long
SECRET = "hunter2xyz"


@pytest.fixture
def server() -> MotoServer:
    return shared_moto()


@pytest.fixture
def store(server: MotoServer) -> Iterator[ObjectStore]:
    with s3() as store:
        assert isinstance(store, ObjectStore)
        yield store


def asked(server: MotoServer, since: int, word: str) -> list[str]:
    return [line for line in server.requests()[since:] if word in line]


def test_a_store_that_is_too_busy_is_asked_again(store: ObjectStore, server: MotoServer) -> None:
    store.put("there", b"1")
    begun = len(server.requests())
    with ThreadPoolExecutor(3) as pool:
        with server.broken("refuses"):
            put = pool.submit(store.put, "x", b"1")
            got = pool.submit(store.get, "there")
            listed = pool.submit(lambda: [info.name for info in store.list("none")])
            while len(asked(server, begun, "GET")) < 4 or len(asked(server, begun, "PUT")) < 2:
                time.sleep(0.01)
        assert put.result(30)
        assert got.result(30) == b"1"
        assert listed.result(30) == []


def test_a_conditional_put_whose_answer_was_lost_knows_its_own(
    store: ObjectStore, server: MotoServer
) -> None:
    """The server does it, and says that it failed; the next try finds the name taken."""
    version = store.put("head", b"0")
    with ThreadPoolExecutor(2) as pool:
        begun = len(server.requests())
        with server.broken("mute"):
            new = pool.submit(store.put_new, "new", b"mine")
            changed = pool.submit(store.put_if, "head", b"1", version)
            while len(asked(server, begun, "/new")) < 2 or len(asked(server, begun, "/head")) < 2:
                time.sleep(0.01)
        assert (store.get("new"), new.result(30)) == store.get_versioned("new")
        assert (store.get("head"), changed.result(30)) == store.get_versioned("head")
    assert store.get("head") == b"1"


def test_a_conditional_put_whose_answer_was_lost_knows_anothers(
    store: ObjectStore, server: MotoServer
) -> None:
    store.put("new", b"another's")
    begun = len(server.requests())
    with ThreadPoolExecutor(1) as pool:
        with server.broken("refuses"):
            new = pool.submit(store.put_new, "new", b"mine")
            while len(asked(server, begun, "/new")) < 2:
                time.sleep(0.01)
        assert new.result(30) is None
    assert store.get("new") == b"another's"


def test_a_store_that_is_away_is_given_up(store: ObjectStore, server: MotoServer) -> None:
    store._retry.outage.most_s = 0.2
    with server.broken("refuses"):
        for use in (
            lambda: store.put("x", b"1"),
            lambda: store.put_new("x", b"1"),
            lambda: store.get("x"),
            lambda: list(store.list()),
            lambda: list(store.folders()),
        ):
            with pytest.raises(StoreUnreachable, match=r"in s3://.* has not answered for 0\.2 s"):
                use()


def test_at_a_closed_port_nobody_answers() -> None:
    with kept_port() as port:
        environment = {**shared_moto().environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        with in_environment(environment):
            store = open_store("s3://dayfly/nowhere")
            assert isinstance(store, ObjectStore)
            store._retry.outage.most_s = 0.2
            with pytest.raises(StoreUnreachable, match=r"^a/x in s3://dayfly/nowhere has not answ"):
                store.put("a/x", b"1")


def test_a_bucket_that_is_missing_is_named(server: MotoServer) -> None:
    with in_environment(server.environment):
        store = open_store("s3://nowhere/prefix")
        for use in (
            lambda: store.put("x", b"1"),
            lambda: store.put_new("x", b"1"),
            lambda: store.get("x"),
            lambda: list(store.list()),
        ):
            with pytest.raises(StoreUnreachable, match=r"s3://nowhere/prefix: there is no such b"):
                use()


@contextmanager
def refusing(status: int, code: str) -> Iterator[ObjectStore]:
    """A store at a server that answers everything with one error, and a secret beside it."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = f"<Error><Code>{code}</Code><Key>{SECRET}</Key></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET = do_POST = _do

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with in_environment({**shared_moto().environment, "AWS_ENDPOINT_URL": url}):
            store = open_store("s3://bucket/p")
            assert isinstance(store, ObjectStore)
            yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "kind", "remedy"),
    [
        (403, "AccessDenied", StoreDenied, "check the credentials in the environment"),
        (401, "InvalidAccessKeyId", StoreDenied, "check the credentials in the environment"),
        (403, "QuotaExceeded", StoreFull, "remove objects, or raise its quota"),
        (507, "InsufficientStorage", StoreFull, "remove objects, or raise its quota"),
        (301, "PermanentRedirect", StoreUnreachable, "set AWS_REGION"),
        (400, "InvalidArgument", StoreError, "it refuses"),
    ],
)
def test_what_is_refused_is_told_at_once_without_secrets(
    status: int, code: str, kind: type[StoreError], remedy: str
) -> None:
    with refusing(status, code) as store:
        for use in (
            lambda: store.put("a/x", b"1"),
            lambda: store.put_new("a/x", b"1"),
            lambda: store.get("a/x"),
        ):
            with pytest.raises(kind, match=rf"^a/x in s3://bucket/p: .*{remedy}") as raised:
                use()
            assert type(raised.value) is kind
            assert SECRET not in str(raised.value)


def test_a_listing_goes_on_beyond_a_page() -> None:
    names = [f"n{number:04d}" for number in range(1003)]
    with google_server() as (bucket, environment), in_environment(environment):
        for name in names:
            bucket.objects[f"p/{name}"] = b"", 1
        store = open_store("gs://bucket/p")
        assert [info.name for info in store.list()] == names
        bucket.busy = 2
        assert [info.name for info in store.list()] == names, "after an error it goes on"
        assert [info.name for info in store.list(after=names[500])] == names[501:]
        assert len(list(store.folders())) == 0
        store.clear()
        assert bucket.objects == {}
        assert bucket.wrong == []


def test_what_google_takes_is_what_is_sent() -> None:
    """Conditions are generations, as its XML interface has them."""
    with google_server() as (bucket, environment), in_environment(environment):
        store = open_store("gs://bucket/p")
        version = store.put_new("x", b"1")
        assert version is not None
        assert bucket.objects["p/x"] == (b"1", int(version))
        again = store.put_if("x", b"2", version)
        assert again is not None
        assert bucket.objects["p/x"] == (b"2", int(again))
        assert ("PUT", "object") in bucket.seen
        assert bucket.wrong == []


def test_a_server_that_compares_etags_without_their_quotes(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As radosgw does."""
    client = store._client
    put = client._put_if

    def put_if(path: str, pieces: Sequence[Buffer], mode: object) -> object:
        quoted = isinstance(mode, dict) and '"' in mode["e_tag"]
        return None if quoted else put(path, pieces, mode)

    monkeypatch.setattr(client, "_put_if", put_if)
    first = store.put("x", b"1")
    second = store.put_if("x", b"2", first)
    assert second is not None
    assert store.put_if("x", b"3", first) is None
    assert store.get_versioned("x") == (b"2", second)


def test_neighbours_are_read_by_one_request(store: ObjectStore, server: MotoServer) -> None:
    store.put("x", bytes(range(256)) * 40)
    into = memoryview(bytearray(300))
    begun = len(server.requests())
    store.read_into("x", [(256, into[:100]), (356, into[100:200]), (600, into[200:])])
    assert bytes(into[:200]) == bytes(range(200))
    assert bytes(into[200:]) == bytes((600 + n) % 256 for n in range(100))
    assert len(server.requests()) - begun == 1


def test_wrong_urls_are_refused_unrepeated() -> None:
    for url, wanted in (
        ("s3://", "give a bucket"),
        ("s3://bucket/../x", "is no prefix"),
        (f"s3://AKIA:{SECRET}@bucket/x", "give it in the environment"),
        (f"s3://bucket?secret={SECRET}", "give it in the environment"),
        ("s3://bucket/a\nb", "control character"),
        ("dir:///tmp/x", "it is not known"),
    ):
        with pytest.raises(RequestError, match=wanted) as raised:
            open_store(url)
        assert SECRET not in str(raised.value)


def test_without_obstore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dayfly.wire.stores.object_urls.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="pip install obstore"):
        open_store("s3://bucket/p")


def test_who_opens_files_imports_no_client(tmp_path: Path) -> None:
    code = (
        "import sys; from dayfly.wire.stores import open_store; import dayfly.cli.app; "
        f"open_store('file://{tmp_path}').put('x', b''); "
        "print({'obstore', 'pytest', 'boto3', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "set()"
