"""What Linux tells and does about processes: adopting, killing, reaping, and finding strays.

A process of a session is recognised in two ways: by its POSIX session id (a function starts one, so
it is its pid), and by a mark in the environment with which the zygote was started and which all
descendants inherit, even those that started a POSIX session of their own.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

#: The mark: its value is the id of dayfly's session, a dot, and a token of the platform.
MARK_VARIABLE = "DAYFLY_SESSION"

#: How long what was killed may take to be gone, in seconds: a busy machine may hold a process up
#: for some, and it cannot die meanwhile.
GONE_S = 10.0

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_POLL_S = 0.001
#: How long a resource tracker of Python's multiprocessing has to end by itself, in seconds.
_TRACKER_S = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a process.

    Attributes:
        wait_status: as os.waitpid gives it; None if another part of this process took it.
        peak_rss_bytes: most resident memory of the process, or of a child that it waited for.
    """

    wait_status: int | None
    peak_rss_bytes: int


class Subreaper:
    """While held, orphaned descendants become children of this process. Held once a platform."""

    _lock = threading.Lock()
    _holders = 0
    _before = 0

    @classmethod
    def hold(cls) -> None:
        """Be a subreaper until as many `release` calls have come."""
        with cls._lock:
            if cls._holders == 0:
                before = ctypes.c_int()
                _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
                cls._before = before.value
                _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
            cls._holders += 1

    @classmethod
    def release(cls) -> None:
        """End one `hold`; the last one puts the process back as it was."""
        with cls._lock:
            cls._holders -= 1
            if cls._holders == 0:
                _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(cls._before))


def _prctl(option: int, argument: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def kill(pidfd: int) -> None:
    """SIGKILL; a process that is gone is passed over."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def is_dead(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Whether a process has ended; waits up to `timeout_s` for it."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * timeout_s))


def reap(pidfd: int, pid: int) -> Death:
    """Take the exit status of a dead process that is, or is about to become, our child.

    It is not yet ours for an instant if it died before the process between it and the zygote.
    """
    give_up_at = time.monotonic() + GONE_S
    while True:
        try:
            # WNOWAIT first: only the descriptor is safe against a reused pid, only wait4 tells
            # the memory, and between the two the pid stays taken.
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
            _, wait_status, usage = os.wait4(pid, 0)
            return Death(wait_status, usage.ru_maxrss * 1024)
        except ChildProcessError:
            if time.monotonic() > give_up_at:
                return Death(None, 0)
            time.sleep(_POLL_S)


def kill_session(session: int) -> None:
    """Kill and reap the children of this process in a POSIX session whose leader is dead.

    The orphans of a killed one become our children, so this goes on until there are none, or for
    `GONE_S`. The leader itself is left to its owner.
    """
    began = time.monotonic()
    while time.monotonic() < began + GONE_S:
        members = [pid for pid in _children() if pid != session and _session(pid) == session]
        if not members:
            return
        kill_and_reap(_to_kill(members, began))
        time.sleep(_POLL_S)


def kill_and_reap(pids: Iterable[int]) -> None:
    """Kill processes and wait a second for their end, at most; those that are ours are reaped."""
    pidfds = []
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfds.append(os.pidfd_open(pid))
    _end(pidfds, 1.0)


def _end(pidfds: Sequence[int], timeout_s: float) -> None:
    for pidfd in pidfds:
        kill(pidfd)
    give_up_at = time.monotonic() + timeout_s
    for pidfd in pidfds:
        is_dead(pidfd, max(0.0, give_up_at - time.monotonic()))
    # Only now: a process becomes our child when its parent has died.
    for pidfd in pidfds:
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        os.close(pidfd)


def reap_session(session: int, timeout_s: float = 0.0) -> bool:
    """Reap the children of this process in a POSIX session as they die; nothing is killed.

    Args:
        timeout_s: how long to wait for those that live, in seconds.

    Returns:
        Whether none is left.
    """
    give_up_at = time.monotonic() + timeout_s
    while members := [pid for pid in _children() if _session(pid) == session]:
        for pid in members:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > give_up_at:
            return not any(_session(pid) == session for pid in members)
        time.sleep(_POLL_S)
    return True


def kill_marked(mark: str, *, spare: int | None = None) -> None:
    """Kill every process whose mark begins so, except this one and `spare`, a pid."""
    entry = f"{MARK_VARIABLE}={mark}".encode()
    began = time.monotonic()
    # Again until there are none: they may be forking.
    while time.monotonic() < began + GONE_S:
        spared = (os.getpid(), spare)
        marked = [pid for pid in _all_pids() if pid not in spared and _has_mark(pid, entry)]
        if not marked:
            return
        pidfds = []
        for pid in _to_kill(marked, began):
            with suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                if _has_mark(pid, entry):  # still the same process: the descriptor holds it
                    pidfds.append(pidfd)
                else:
                    os.close(pidfd)
        _end(pidfds, GONE_S)
        time.sleep(_POLL_S)


def _to_kill(pids: Sequence[int], began: float) -> list[int]:
    """Those that are to be killed now: all but the resource trackers of multiprocessing at first.

    They end by themselves once those that they serve are dead, and remove what these have left in
    /dev/shm then: semaphores, shared memory.

    Args:
        began: when the killing did, of time.monotonic().
    """
    if time.monotonic() - began > _TRACKER_S:
        return list(pids)
    return [pid for pid in pids if not _is_tracker(pid)]


def _is_tracker(pid: int) -> bool:
    """Never so of a dead one, which has no command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"from multiprocessing.resource_tracker import main" in file.read()
    except OSError:
        return False


def _has_mark(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(item.startswith(entry) for item in file.read().split(b"\0"))
    except OSError:
        return False


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _children() -> list[int]:
    pids: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            # A thread may end while we look; its children pass on to another one.
            with suppress(ProcessLookupError), open(f"/proc/self/task/{task}/children") as file:
                pids += [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in _all_pids() if _stat_field(pid, 1) == os.getpid()]
    return pids


def started_at(pid: int) -> int:
    """When a process began, in ticks since the machine did; -1 if it is gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, as by SIGSTOP: it does nothing, and may go on at any time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


def _session(pid: int) -> int:
    return _stat_field(pid, 3)


def _stat_field(pid: int, index: int) -> int:
    """Field of /proc/PID/stat counted behind the name and the state; -1 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[index])
    except OSError:
        return -1
