"""A Redis server of one's own: on a port of loopback, in memory alone, and gone with its starter.

It takes its configuration from standard input and writes its log to a file without a name, so no
file stays behind, and a password stands in no process list.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dayfly.closing import Closing
from dayfly.errors import RunFailed

#: How long a server may take until it answers, in seconds.
_START_TIMEOUT_S = 30.0
#: Becomes the server, which the kernel kills when the thread ends that started it.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """How a server is to be.

    tls: a directory in which it keeps a certificate of its own making, `cert.pem`, by which
    clients know it; None: no TLS. more: further lines of its configuration.
    """

    host: str = "127.0.0.1"
    password: str | None = None
    tls: Path | None = None
    maxmemory_bytes: int | None = None
    more: Sequence[str] = ()


class RedisServer(Closing):
    """A running server; killed by `close`, and when the thread that started it ends.

    host, port: where it is, also after it was killed and started again. Raises RunFailed if it
    cannot be started.
    """

    def __init__(self, options: RedisOptions | None = None) -> None:
        self._options = options or RedisOptions()
        self.host = self._options.host
        if self._options.tls is not None:
            _make_certificate(self._options.tls, self.host)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = _kept_port(self.host)
        self.port: int = self._port.getsockname()[1]
        try:
            self.start()
        except BaseException:
            self._port.close()
            raise

    @property
    def url(self) -> str:
        """Of its database 0."""
        scheme = "redis" if self._options.tls is None else "rediss"
        return f"{scheme}://{self.host}:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._process is not None, "it was killed"
        return self._process.pid

    def start(self) -> None:
        """Start it, empty, on its port; returns when it answers."""
        assert self._process is None, "it runs"
        command = [sys.executable, "-S", "-c", _LAUNCH, str(os.getpid()), "redis-server", "-"]
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
            assert self._process.stdin is not None
            with self._process.stdin as stdin:
                stdin.write("\n".join(self._configuration()).encode())
            until = time.monotonic() + _START_TIMEOUT_S
            while not self._listens():
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    log.seek(0)
                    raise RunFailed(f"redis-server does not start: {log.read().decode()[-2000:]}")
                time.sleep(0.01)

    def kill(self) -> None:
        """Kill it at once; all that it held is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It answers nothing any more, though its connections stay."""
        assert self._process is not None, "it was killed"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on after `pause`."""
        assert self._process is not None, "it was killed"
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        self._port.close()

    def _configuration(self) -> list[str]:
        options, plain = self._options, self._options.tls is None
        lines = [f"bind {self.host}", 'save ""', "appendonly no", "protected-mode no", "dir /"]
        lines += [f"port {self.port if plain else 0}"]
        if options.tls is not None:
            certificate, key = options.tls / "cert.pem", options.tls / "key.pem"
            lines += [f"tls-port {self.port}", f"tls-cert-file {certificate}"]
            lines += [f"tls-key-file {key}", f"tls-ca-cert-file {certificate}"]
            lines += ["tls-auth-clients no"]
        if options.password is not None:
            lines += [f"requirepass {options.password}"]
        if options.maxmemory_bytes is not None:
            lines += [f"maxmemory {options.maxmemory_bytes}"]
        return [*lines, *options.more, ""]

    def _listens(self) -> bool:
        """Whether it does; the port is nobody else's."""
        assert self._process is not None
        try:
            with socket.create_connection((self.host, self.port), 1.0):
                return self._process.poll() is None
        except OSError:
            return False


def _kept_port(host: str) -> socket.socket:
    """A free port, which nobody else gets while this is open, listening or not.

    A server that says SO_REUSEADDR, as Redis does, may listen there beside.
    """
    kept = socket.socket()
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((host, 0))
    except BaseException:
        kept.close()
        raise
    return kept


def _make_certificate(directory: Path, host: str) -> None:
    certificate, key = directory / "cert.pem", directory / "key.pem"
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    name = ("-days", "2", "-subj", "/CN=dayfly test", "-addext", f"subjectAltName=IP:{host}")
    command = ["openssl", *made, *name, "-keyout", str(key), "-out", str(certificate)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RunFailed(f"openssl makes no certificate: {done.stderr.strip()}")
