"""The parameter server's process: started by the coordinator, and gone with it, however it ends.

    coordinator   stdin:  one line of JSON, what to serve; then the pipe stays open
    server        stdout: one line of JSON, where it listens, or why not
    coordinator   closes the pipe (or dies, and the kernel does): the server ends

The token goes by the pipe, so neither process lists nor environments show it. The server has a
POSIX session of its own: Ctrl-C at a terminal is for the coordinator, which stops in order, and
needs its server for that. The server is `python -m` this module, and does without torch.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator
from dayfly.wire.keys import EVERYONE, SERVER, Key
from dayfly.wire.sockets.server import Server
from dayfly.wire.sockets.sums import ServerSums
from dayfly.wire.sockets.table import MessageTable

#: How long a server may take to start, and to end, in seconds.
START_S = 60.0
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """What a server process is to serve; see `Server`, `ServerSums` and `Authenticator`."""

    host: str
    port: int
    token: str = field(repr=False)
    run: str
    generation: int
    audience: str
    world_size: int
    limit_bytes: int


class ServerProcess(Closing):
    """Starts a server; `host` and `port` are where it listens.

    Raises WireError, in one sentence, if it cannot.
    """

    def __init__(self, order: ServerSpec) -> None:
        # A pipe of our own, not Popen's: a plain fork of the coordinator must let go of it.
        read_fd, self._lifeline_fd = os.pipe()
        _open_processes.add(self)
        try:
            self._process = subprocess.Popen(
                # -P: no file in the current directory is taken for a module.
                [sys.executable, "-P", "-m", "dayfly.wire.sockets.process"],
                stdin=read_fd,
                stdout=subprocess.PIPE,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise WireError(f"cannot start the parameter server: {error}") from error
        finally:
            os.close(read_fd)
        try:
            with suppress(BrokenPipeError):  # it ended already, which shows in what it said
                os.write(self._lifeline_fd, json.dumps(asdict(order)).encode() + b"\n")
            said = self._listen()
        except BaseException:
            self.close()
            raise
        if "error" in said:
            self.close()
            raise WireError(str(said["error"]))
        self.host, self.port = str(said["host"]), int(said["port"])

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    @property
    def ended(self) -> str | None:
        """How it ended, if it did, or is about to."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return None
        return f"it was killed by signal {-code}" if code < 0 else f"it ended with status {code}"

    def close(self) -> None:
        self._let_go()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _listen(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if ready and not line:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)  # to tell how it ended
        try:
            said = json.loads(line)
        except ValueError as error:
            how = self.ended or f"it said nothing within {START_S:g} s"
            raise WireError(f"the parameter server did not start: {how}") from error
        assert isinstance(said, dict)
        return said

    def _let_go(self) -> None:
        _open_processes.discard(self)
        if self._lifeline_fd >= 0:
            with suppress(OSError):
                os.close(self._lifeline_fd)
            self._lifeline_fd = -1


#: Servers whose lifeline this process holds.
_open_processes: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    for process in list(_open_processes):
        process._let_go()


os.register_at_fork(after_in_child=_let_go_after_fork)


def main() -> None:
    """Serve what standard input says, until it closes."""
    order = json.loads(sys.stdin.readline())
    world_size = int(order["world_size"])

    def readers(key: Key) -> set[int] | None:
        if key.destination != EVERYONE or not (key.source >= 0 or key.source == SERVER):
            return None
        return set(range(world_size)) - {key.source}

    by = Authenticator(order["token"], order["run"], int(order["generation"]))
    table = MessageTable(
        readers, limit_bytes=int(order["limit_bytes"]), full="raise --log-budget to keep more"
    )
    try:
        server = Server(
            table,
            host=order["host"],
            port=order["port"],
            token=by.handshake,
            audience=order["audience"],
            sums=ServerSums(table, world_size, by),
        )
    except WireError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"host": server.host, "port": server.port}), flush=True)
    sys.stdin.read()
    # At once, whatever its threads are at: nobody is left whom it could serve.
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
