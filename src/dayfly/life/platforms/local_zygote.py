"""The coordinator's side of a zygote: start it, send it requests, notice its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dayfly.life.platforms.control import Receiver

READY_TIMEOUT_S = 120.0
_SEND_TIMEOUT_S = 10.0
_TAIL_BYTES = 4000


class LocalZygote:
    """One zygote process. Not thread-safe: its owner holds a lock.

    base_bytes: its memory after the imports; None as long as it is not ready. ended: it is dead.
    give_up_at: time.monotonic() until which it must be ready.

    environment: of the process, see `life.environment`. log: of its output; None: until `log_to`,
    nobody hears what it says.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        lifeline_fd: int,
        preload: Sequence[str],
        log: Path | None,
    ) -> None:
        self.base_bytes: int | None = None
        self.ended = False
        self.give_up_at = time.monotonic() + READY_TIMEOUT_S
        self._given_up = False
        self._log = log
        ours, theirs = socket.socketpair()
        path = [os.path.abspath(entry) for entry in sys.path]  # "" is the current directory
        configuration = {
            "socket_fd": theirs.fileno(),
            "lifeline_fd": lifeline_fd,
            "path": path,
            "preload": list(preload),
        }
        module = "dayfly.life.platforms.zygote"
        with theirs, (log or Path(os.devnull)).open("ab") as output:
            # -P: the current directory is searched only if our sys.path has it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, json.dumps(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, "PYTHONPATH": os.pathsep.join(path)},
                pass_fds=(theirs.fileno(), lifeline_fd),
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours
        self._receiver = Receiver(ours)

    @property
    def pid(self) -> int:
        """Also the id of its POSIX session."""
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Take what it said; afterwards `base_bytes` and `ended` are up to date."""
        for message in self._receiver.receive():
            self.base_bytes = int(message["base_bytes"])
        self.ended = self._receiver.ended

    def log_to(self, log: Path) -> None:
        """Has its output written there from now on."""
        self._log = log
        with log.open("ab") as output:
            self.request([output.fileno()])

    def request(self, fds: Sequence[int]) -> None:
        """Ask for a function with these descriptors. If it is dead, they are closed in vain."""
        self._socket.settimeout(_SEND_TIMEOUT_S)
        try:
            socket.send_fds(self._socket, [b"f"], fds)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.kill()  # stuck, if it was not dead: its end is noticed on the socket
        finally:
            self._socket.setblocking(False)

    def kill(self) -> None:
        """Kill it, as it is of no use; its end is noticed on the socket."""
        self._given_up = True
        self._process.kill()

    def close(self) -> None:
        """Kill it, if it lives, and reap it."""
        self._process.kill()
        self._process.wait()
        self._receiver.close()

    @property
    def killed_from_outside(self) -> bool:
        """Of one that was closed: whether somebody else killed it."""
        by = -(self._process.returncode or 0)
        return by in (signal.SIGKILL, signal.SIGTERM) and not self._given_up

    def last_words(self) -> str:
        """How it ended, and the end of its output."""
        assert self._log is not None, "a platform that has it gave it a log"
        with self._log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            tail = file.read().decode(errors="replace").strip()
        return f"exit status {self._process.returncode}; the end of {self._log}:\n{tail}"
