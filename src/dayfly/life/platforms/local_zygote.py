"""The coordinator's side of a zygote: start it, send it requests, notice its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dayfly.life.deaths import PATIENCE, Count, Patience
from dayfly.life.platforms import processes
from dayfly.life.platforms.control import Receiver

READY_TIMEOUT_S = 120.0
_SEND_TIMEOUT_S = 10.0
_TAIL_BYTES = 4000


class LocalZygote:
    """One zygote process. Not thread-safe: its owner holds a lock.

    Args:
        environment: of the process, see `life.environment`.
        log: of its output; None: until `log_to`, nobody hears what it says.

    Attributes:
        base_bytes: its memory after the imports; None as long as it is not ready.
        ended: it is dead.
        give_up_at: time.monotonic() until which it must be ready.
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


#: So often in a row may zygotes die by themselves before they started one function, or may a
#: living one fail to start the same function.
TRIES = 3


class ZygoteKeeper:
    """Not thread-safe: its owner holds a lock. `spawn` starts a zygote process.

    Attributes:
        base_bytes: memory of the last zygote that was ready; None before the first.
        failure: why there will be no zygote any more, or None.
    """

    def __init__(self, spawn: Callable[[], LocalZygote], patience: Patience = PATIENCE) -> None:
        self.base_bytes: int | None = None
        self.failure: str | None = None
        self._spawn = spawn
        self._zygote: LocalZygote | None = None
        self._patience = patience
        self._started = 0  # functions
        self._deaths = Count()  # by themselves
        self._kills = Count()  # from outside
        self._start_at = 0.0  # the next zygote, by time.monotonic()
        self._dead_pids: set[int] = set()

    @property
    def fd(self) -> int:
        """To be watched; -1 if there is none."""
        return -1 if self._zygote is None else self._zygote.fileno()

    @property
    def look_at(self) -> float | None:
        """time.monotonic() until which the zygote must be ready, or from which on the next one may
        start; None if there is neither to wait for."""
        if self._zygote is None:
            return self._start_at if self._start_at > time.monotonic() else None
        return self._zygote.give_up_at if self._zygote.base_bytes is None else None

    def ready(self) -> LocalZygote | None:
        """The zygote, if it is ready; if there is none, one is started."""
        if self.failure is not None:
            return None
        if self._zygote is None:
            if time.monotonic() < self._start_at:
                return None
            try:
                self._zygote = self._spawn()
            except OSError as error:
                self.failure = f"the local platform cannot start a process: {error}"
                return None
        if self._zygote.base_bytes is None:
            return None
        self.base_bytes = self._zygote.base_bytes
        return self._zygote

    def look(self) -> None:
        """Notice readiness, death and delay."""
        zygote = self._zygote
        if zygote is None:
            return
        zygote.receive()
        if zygote.base_bytes is None and time.monotonic() >= zygote.give_up_at:
            zygote.kill()
        if zygote.ended:
            self.drop()
            if (why := self._why_to_give_up(zygote)) is not None:
                self.failure = (
                    "the local platform's zygote, which imports torch and the preloaded modules, "
                    f"{why} without starting one function: {zygote.last_words()}"
                )

    def proved(self) -> None:
        """A function was started: whatever kills the zygotes, there is progress."""
        self._started += 1

    def give_up(self, reason: str) -> None:
        """Start no functions any more."""
        if self.failure is None:
            words = f"; {self._zygote.last_words()}" if self._zygote is not None else ""
            self.failure = reason + words

    def release(self) -> LocalZygote | None:
        """The zygote, if it is of use to another keeper; it is not this one's any more."""
        zygote = self.ready() if self._zygote is not None else None
        if zygote is not None:
            self._zygote = None
        return zygote

    def drop(self) -> None:
        """Kill and reap the zygote, if there is one. Functions that it forked go on."""
        if self._zygote is not None:
            self._zygote.close()
            self._dead_pids.add(self._zygote.pid)
            self._zygote = None

    def _why_to_give_up(self, dead: LocalZygote) -> str | None:
        """Counts a death; says why no other zygote follows, if none does."""
        now = time.monotonic()
        if not dead.killed_from_outside:
            if self._deaths.add(self._started) < TRIES:
                return None
            ready_s = f"{READY_TIMEOUT_S:.0f} s"
            return f"died or was not ready in {ready_s}, {TRIES} times in a row"
        kills = self._kills.add(self._started, now)
        killed_s = now - self._kills.since
        if killed_s > self._patience.without_progress_s:
            return f"was killed from outside {kills} times in {killed_s:.0f} s"
        self._start_at = now + self._patience.pause_s(kills)
        return None

    def reap_betweens(self, timeout_s: float = 0.0) -> None:
        """Reap the processes between a zygote and its functions that a killed zygote left to us.

        Only while no function's hello is due: until then a dead function looks like one of them.
        One that lives yet ends at once, but it may have to wait for a processor: without waiting
        for it here, the next call finds it.

        Args:
            timeout_s: how long to wait for those that live, in seconds.
        """
        self._dead_pids = {
            pid for pid in self._dead_pids if not processes.reap_session(pid, timeout_s)
        }
