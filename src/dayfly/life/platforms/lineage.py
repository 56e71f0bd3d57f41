"""Zygotes that outlive a platform: one is started before there is one, and kept for the next.

    warm_up         take            release          take             the process ends
       |              |---- platform ---|              |---- platform ---|       |
       zygote: imports torch ...  forks |  idle        |  forks          |  idle | killed

A lineage is a zygote, those that replace it when it dies, and all that they fork. One lifeline
binds them to this process, however it ends, and one mark is in the environment of each. A zygote
computes nothing and imports nothing of the user's, so a function sees no difference between one
that is new and one that is kept.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dayfly.life.environment import library_settings, read_at_load
from dayfly.life.platforms import processes
from dayfly.life.platforms.local_zygote import LocalZygote
from dayfly.life.sessions import Session
from dayfly.lifeline import Lifeline


@dataclass(frozen=True, slots=True)
class Beginning:
    """What functions inherit from their zygote; it is kept only if a new one would have the same.

    Args:
        preload: modules that are imported besides torch.
        at_load: variables of the environment that interpreter and libraries read as they load.
        inherited: what the kernel hands down: directory, limits, umask, cores, priority, cgroup.
    """

    preload: tuple[str, ...]
    at_load: Mapping[str, str]
    inherited: tuple[object, ...]

    @classmethod
    def here(cls, preload: Sequence[str], environment: Mapping[str, str]) -> Beginning:
        """Returns what a zygote would begin with that is started now in this environment."""
        own = Path("/proc/self")
        status = (own / "status").read_text().splitlines()
        inherited = (
            os.getcwd(),
            (own / "limits").read_text(),
            [line for line in status if line.startswith("Umask:")],
            os.sched_getaffinity(0),
            os.getpriority(os.PRIO_PROCESS, 0),
            (own / "cgroup").read_text(),
        )
        return cls(tuple(preload), read_at_load(environment), inherited)


class Lineage:
    """Not thread-safe: the platform that has it is its owner, or nobody.

    mark: of all its processes. lifeline: that they hang on.

    Args:
        preload: modules that its zygotes import besides torch.
        variables: which instruction sets libraries may use, see `life.processor`.
        once: no platform but the first may have it.
    """

    def __init__(
        self, preload: Sequence[str], variables: Mapping[str, str] | None, *, once: bool = False
    ) -> None:
        session_id = Session.new_id()
        self.mark = f"{session_id}.{secrets.token_hex(4)}"
        self.lifeline = Lifeline()
        self._preload = tuple(preload)
        self._variables = variables
        self._once = once
        self._session_id = session_id
        # Only once it is taken: a zygote that forked nothing leaves nothing to sweep.
        self._session: Session | None = None
        self._beginning: Beginning | None = None  # of the last zygote
        self._idle: LocalZygote | None = None  # that no platform has

    def environment(self) -> dict[str, str]:
        """Returns what a function finds in its environment that is invoked now.

        Raises:
            RequestError: the variables ask for instructions that this CPU lacks.
        """
        return {**_environment(self._variables), processes.MARK_VARIABLE: self.mark}

    def spawn(self, log: Path | None) -> LocalZygote:
        """Returns the idle zygote if it lives, else a new one.

        Args:
            log: of its output; None: nowhere.

        Raises:
            OSError: no process can be started.
        """
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.receive()
            if not idle.ended:
                if log is not None:
                    idle.log_to(log)
                return idle
            idle.close()
        environment = self.environment()
        self._beginning = Beginning.here(self._preload, environment)
        return LocalZygote(
            environment=environment,
            lifeline_fd=self.lifeline.read_fd,
            preload=self._preload,
            log=log,
        )

    def warm_up(self) -> None:
        """Has a zygote before there is a platform. Raises as `spawn` does."""
        self._idle = self.spawn(None)

    def serves(
        self, session: Session, preload: Sequence[str], variables: Mapping[str, str] | None
    ) -> bool:
        """Whether a platform may have this idle one in place of another that is new."""
        if self._session is not None and self._session.base != session.base:
            return False
        return self._beginning == Beginning.here(preload, _environment(variables))

    def belong_to(self, session: Session) -> None:
        """Binds it to a session, whose sweep also removes what this lineage leaves behind."""
        if self._session is None:
            self._session = Session.open(session.base, self._session_id)

    def close(self) -> None:
        """Ends all of it."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None
        self.lifeline.close()
        if self._session is not None:
            self._session.close()

    def release(self, zygote: LocalZygote | None) -> None:
        """Takes the lineage back from a platform that closes.

        Background processes that left their function's POSIX session (and had no cgroup) end, too.

        Args:
            zygote: one to keep for the next platform; None ends the whole lineage.
        """
        self._idle = zygote
        if zygote is None or self._once:
            self.close()
            return
        processes.kill_marked(self.mark, spare=zygote.pid)
        _keep(self)


def warm_up(preload: Sequence[str]) -> None:
    """Starts a zygote for the one platform that this process will open; does not wait for it.

    Imports no torch. The zygote ends with that platform, or with the process.

    Args:
        preload: see `LocalPlatform`.

    Raises:
        RequestError: variables of the environment ask for instructions that this CPU lacks.
        OSError: no process can be started.
    """
    lineage = Lineage(preload, None, once=True)
    lineage.warm_up()
    _keep(lineage)


def take(session: Session, preload: Sequence[str], variables: Mapping[str, str] | None) -> Lineage:
    """Returns the lineage for a platform: the one that is kept, if it serves, else a new one."""
    with _lock:
        found = _kept.pop() if _kept else None
    if found is not None and not found.serves(session, preload, variables):
        found.close()
        found = None
    if found is None:
        found = Lineage(preload, variables)
    found.belong_to(session)
    return found


def end_kept() -> None:
    """Ends the lineage that is kept, if there is one."""
    with _lock:
        ending = list(_kept)
        _kept.clear()
    for lineage in ending:
        lineage.close()


def _environment(variables: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **library_settings(os.environ, variables)}


def _keep(lineage: Lineage) -> None:
    """One is enough, the last."""
    end_kept()
    with _lock:
        _kept.append(lineage)


_kept: list[Lineage] = []
_lock = threading.Lock()
atexit.register(end_kept)


def _forget_after_fork() -> None:
    # It is the parent's. The lock may be held there by a thread that does not exist here.
    global _lock
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
