"""The thread that watches the functions of a local platform, so that limits hold unattended.

It alone touches the descriptors of calls and zygotes; the other thread only hands calls over and
takes results, under the lock.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from dayfly.errors import RunFailed
from dayfly.life.platforms import processes
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.platforms.local_call import HELLO_TIMEOUT_S, LocalCall
from dayfly.life.platforms.local_zygote import READY_TIMEOUT_S, TRIES, LocalZygote, ZygoteKeeper
from dayfly.threads import start_thread

_CLOSE_TIMEOUT_S = 20.0


class LocalMonitor:
    """Starts, watches and ends functions. `spawn` starts a zygote process."""

    def __init__(self, spawn: Callable[[], LocalZygote]) -> None:
        self._changed = threading.Condition()
        self._keeper = ZygoteKeeper(spawn)
        self._calls: dict[str, LocalCall] = {}  # that did not end, by function
        self._ended: deque[Ended] = deque()  # that were not taken
        self._warm = False  # a zygote is wanted, though no call waits for one
        self._closing = False
        self._keeps = False  # the zygote, while closing
        self._released: LocalZygote | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = start_thread(self._run, name="dayfly-local", failed=self._failed)

    def submit(self, call: LocalCall) -> None:
        """Take over a call. Raises RunFailed if functions cannot be started any more."""
        with self._changed:
            self._raise_failure()
            self._calls[call.function] = call
            os.eventfd_write(self._wake_fd, 1)

    def want_zygote(self) -> None:
        """Have a zygote started, though no call waits for one."""
        with self._changed:
            self._warm = True
            os.eventfd_write(self._wake_fd, 1)

    def base_bytes(self) -> int:
        """A zygote's base memory; waits for the first. Raises RunFailed if there will be none."""
        self.want_zygote()
        with self._changed:
            if self._keeper.base_bytes is None:
                # The thread gives up on each zygote in time; longer, so that it is the one to tell.
                self._changed.wait_for(
                    lambda: self._keeper.base_bytes is not None or self._keeper.failure is not None,
                    TRIES * READY_TIMEOUT_S + 5,
                )
            self._raise_failure()
            if self._keeper.base_bytes is None:
                raise RunFailed("waited in vain for the local platform's first zygote")
            return self._keeper.base_bytes

    def take(self, timeout_s: float) -> Sequence[Ended]:
        """What ended; waits up to `timeout_s` for the first. Raises RunFailed as `submit` does."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or self._keeper.failure is not None, timeout_s
            )
            if not self._ended:
                self._raise_failure()
            taken = list(self._ended)
            self._ended.clear()
            return taken

    def stop(self, function: str) -> None:
        """Kill a function, if it runs, as cancelled."""
        with self._changed:
            if function in self._calls:
                self._calls[function].stop(Outcome.CANCELLED)
                os.eventfd_write(self._wake_fd, 1)

    def names(self) -> list[str]:
        """Functions whose end was not taken yet, sorted."""
        with self._changed:
            return sorted({one.invocation.function for one in self._ended} | self._calls.keys())

    def close(self, *, keep: bool = False) -> LocalZygote | None:
        """Kill and reap everything. Raises RunFailed if processes survive SIGKILL for 20 s.

        Args:
            keep: but for the zygote, which is returned if it is ready and all functions had ended.
        """
        with self._changed:
            self._closing, self._keeps = True, keep and not self._calls
            os.eventfd_write(self._wake_fd, 1)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            raise RunFailed(f"functions did not die within {_CLOSE_TIMEOUT_S:.0f} s of SIGKILL")
        os.close(self._wake_fd)
        return self._released

    def _raise_failure(self) -> None:
        if self._keeper.failure is not None:
            raise RunFailed(self._keeper.failure)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = (
                    time.monotonic()
                )  # one for both: what is not due at the start ends the waiting
                self._start(now)
                self._changed.notify_all()
                if self._closing and not self._calls:
                    if self._keeps:
                        self._released = self._keeper.release()
                    self._keeper.drop()
                    self._keeper.reap_betweens(processes.GONE_S)
                    return
                poll, timeout_s = self._poll(), self._timeout_s(now)
            poll.poll(None if timeout_s is None else 1000 * timeout_s + 1)
            with self._changed:
                self._look()

    def _failed(self, error: BaseException) -> None:
        with self._changed:
            self._keeper.give_up(f"the local platform's own thread failed: {error!r}")
            self._changed.notify_all()

    def _poll(self) -> select.poll:
        poll = select.poll()
        fds = [self._wake_fd, self._keeper.fd]
        for call in self._calls.values():
            fds += [call.control_fd, call.pidfd]
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        return poll

    def _timeout_s(self, now: float) -> float | None:
        """Seconds from `now`, at which `_start` looked, until the next deadline."""
        ends = [self._keeper.look_at]
        for call in self._calls.values():
            if call.started:
                ends += [call.give_up_at] if call.hello_due else [call.kill_at, call.look_at]
            else:  # or it waits for a zygote, or its invoker, only
                ends += [at for at in (call.retry_at, call.requested_at) if now < at < math.inf]
        known = [end for end in ends if end is not None]
        return max(0.0, min(known) - now) if known else None

    def _start(self, now: float) -> None:
        """Ask the zygote for what waits; while closing, make everything end instead."""
        if self._closing and not self._keeps:
            self._keeper.drop()  # a start that it has not begun is lost now
            for call in self._calls.values():
                call.stop(Outcome.CANCELLED)
        for call in [call for call in self._calls.values() if not call.started]:
            if call.stopped is not None:
                self._end(call)
            elif self._keeper.failure is not None:
                del self._calls[call.function]
                call.discard()
            elif (
                call.requested(now)
                and (zygote := self._keeper.ready()) is not None
                and call.may_ask(zygote, now)
            ):
                call.start(zygote)
        if self._warm and not self._closing and self._keeper.ready() is not None:
            self._warm = False

    def _look(self) -> None:
        """Take what came, whoever it came from, and enforce the deadlines."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        self._keeper.look()
        now = time.monotonic()
        for call in list(self._calls.values()):
            was_due = call.hello_due
            lost = not call.receive()
            if was_due and call.pidfd >= 0:
                self._keeper.proved()
            if lost:
                if call.tries >= TRIES:
                    name = call.function
                    self._keeper.give_up(f"{name} was lost {TRIES} times before it said hello")
            elif call.pidfd >= 0:
                if processes.is_dead(call.pidfd):
                    self._end(call)
                    continue
                if call.look_at is not None and now >= call.look_at:
                    call.look()
                if call.kill_at is not None and now >= call.kill_at:
                    call.kill_at = None
                    call.stop(Outcome.LIFETIME)
            elif call.hello_due and now >= call.give_up_at:
                self._keeper.give_up(f"{call.function}: no hello in {HELLO_TIMEOUT_S:.0f} s")
                call.stop(Outcome.CANCELLED)
                self._keeper.drop()

    def _end(self, call: LocalCall) -> None:
        del self._calls[call.function]
        self._ended.append(call.finish(self._keeper.base_bytes))
        if not any(other.hello_due for other in self._calls.values()):
            self._keeper.reap_betweens()
