"""The lifeline: a process that holds one is killed by the kernel when its owner is gone.

The owner, such as a coordinator, or a function that has processes decode for it, holds the only
write end of a pipe and never writes. Every process that must not
outlive it opens a file description of the read end of its own and asks the kernel for a signal when
something happens there; the signal is SIGKILL, and the only thing that can happen is that the last
write end is closed. It works however the owner died, for any descendant, and even while the
process computes in C without ever returning to Python. PR_SET_PDEATHSIG would not do: it follows
the parent *thread*, and a function's parent changes while it starts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import weakref

#: Linux's F_SETSIG, which the fcntl module does not name before Python 3.13.
F_SETSIG = 10


class Lifeline:
    """The owner's end. `read_fd` is what the others inherit, and arm."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        _open_lifelines.add(self)

    def close(self) -> None:
        """Let go: everything that armed the read end dies now. May be called twice."""
        _open_lifelines.discard(self)
        for fd in (self._write_fd, self.read_fd):
            if fd >= 0:
                os.close(fd)
        self._write_fd = self.read_fd = -1


def arm(read_fd: int) -> int:
    """Bind this process's life to the write end of `read_fd`'s pipe; returns the armed descriptor.

    It must stay open. If the write end is gone already, this process kills itself here.
    """
    # A new description: owner and O_ASYNC belong to the description, and that of an inherited
    # descriptor is shared with the process that it came from. O_NONBLOCK, because opening a pipe
    # without a writer would block.
    armed_fd = os.open(f"/proc/self/fd/{read_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(armed_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(armed_fd, F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(armed_fd, fcntl.F_GETFL)
    fcntl.fcntl(armed_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
    # The owner may have died before the arming. Reading tells; poll does not: a description
    # that was opened without a writer never reports a hang-up.
    try:
        os.read(armed_fd, 1)
    except BlockingIOError:
        return armed_fd
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: SIGKILL was sent to this very process")


#: Lifelines whose write end this process holds.
_open_lifelines: weakref.WeakSet[Lifeline] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    # A plain fork of the owner (multiprocessing) must not keep the others alive.
    for lifeline in list(_open_lifelines):
        lifeline.close()


os.register_at_fork(after_in_child=_let_go_after_fork)
