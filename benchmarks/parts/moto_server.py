"""moto's server, which speaks S3 and DynamoDB, as a process beside this one.

    with moto_server() as server:
        os.environ.update(server.environment)
        server.make_bucket("bucket")

It takes requests one at a time: moto itself looks whether an object is there, and then stores it,
so two conditional puts at once could both win. The process ends with the one that started it.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

_PR_SET_PDEATHSIG = 1
_START_S = 120.0
#: Where a bucket is in no region's way; what moto checks of credentials is that there are some.
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "moto",
    "AWS_SECRET_ACCESS_KEY": "moto-has-no-secrets",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass(frozen=True, slots=True)
class MotoServer:
    """A running server.

    log, fault: files in memory that it shares, so that nothing is left of them when this process
    is killed: a line a request, such as `PUT /bucket/key`; and how it is to fail, if at all.
    """

    endpoint: str
    pid: int
    log: int
    fault: int

    @property
    def environment(self) -> Mapping[str, str]:
        """What clients take from the environment to find it."""
        return {**_ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}

    def make_bucket(self, name: str) -> None:
        """Make an S3 bucket."""
        with urlopen(Request(f"{self.endpoint}/{name}", method="PUT")):
            pass

    def requests(self) -> list[str]:
        """All requests so far: method and path, or `POST PutItem` and the like for DynamoDB."""
        return _read(self.log).splitlines()

    @contextmanager
    def broken(self, how: str) -> Iterator[None]:
        """Meanwhile it fails: "refuses" (503, does nothing) or "mute" (does it, and says 500)."""
        os.pwrite(self.fault, how.encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(self.fault, 0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile it answers nothing, as a store in an outage."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@contextmanager
def moto_server(port: int = 0, **environment: str) -> Iterator[MotoServer]:
    """A server of its own, empty; its data goes with it. environment: more of it, for moto.

    port: 0: any that is free.
    """
    log, fault = os.memfd_create("dayfly-moto-log"), os.memfd_create("dayfly-moto-fault")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *map(str, (os.getpid(), port, log, fault))],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **_ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(log, fault),
        text=True,
    )
    try:
        assert process.stdout is not None
        late = threading.Timer(_START_S, process.kill)
        late.start()
        said = process.stdout.readline().strip()
        late.cancel()
        if not said:
            raise RuntimeError(f"moto's server did not start within {_START_S:g} s")
        yield MotoServer(f"http://127.0.0.1:{said}", process.pid, log, fault)
    finally:
        process.kill()
        process.communicate()
        os.close(log)
        os.close(fault)


def _read(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode()


class _OneAtATime:
    """A WSGI application that reads a request whole before it waits for its turn."""

    def __init__(self, application: Callable[..., Iterable[bytes]], log: int, fault: int) -> None:
        self._application = application
        self._log = log
        self._fault = fault
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            return []  # its sender was killed
        environ["wsgi.input"] = io.BytesIO(body)
        asked = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        query = environ.get("QUERY_STRING")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        with self._turn:
            os.write(self._log, f"{environ['REQUEST_METHOD']} {asked or path}\n".encode())
            how = _read(self._fault)
            if how == "refuses":
                return self._fail(start, "503 Slow Down", b"<Error><Code>SlowDown</Code></Error>")
            if how == "mute":
                list(self._application(environ, lambda *_: None))
                return self._fail(start, "500 Internal Server Error", b"")
            return list(self._application(environ, start))

    @staticmethod
    def _fail(start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


def main(parent: int, port: int, log: int, fault: int) -> None:
    """Serve until the parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):  # type: ignore[misc]
        """Connections stay open, and answers are sent at once, as real stores do."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

    application = _OneAtATime(DomainDispatcherApplication(create_backend_app), log, fault)
    server = make_server("127.0.0.1", port, application, True, request_handler=Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
