"""Waking up when a file appears in a directory, by Linux's inotify.

Several threads may wait at once: one of them reads the kernel's events for all, the others wait
for it. Where inotify is not to be had (network file systems, too many instances), and should an
event be lost, every waiter looks again after `LOOK_AGAIN_S`.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from pathlib import Path

#: Longest sleep between two looks, in seconds, whether or not an event came.
LOOK_AGAIN_S = 0.05
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80
_libc = ctypes.CDLL(None, use_errno=True)


class Doorbell:
    """Rings whenever an entry appears in one of the directories."""

    def __init__(self, directories: list[Path]) -> None:
        self._fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._changed = threading.Condition()
        self._reading = False
        self._rings = 0
        if self._fd >= 0:
            for directory in directories:
                mask = _IN_CREATE | _IN_MOVED_TO
                if _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask) < 0:
                    os.close(self._fd)
                    self._fd = -1
                    break

    @property
    def rings(self) -> int:
        """How often it rang. Read it before looking, pass it to `wait`: no ring is missed."""
        return self._rings

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return once it rang more than `seen` times, or after the lesser of timeout and look."""
        until = time.monotonic() + min(timeout_s, LOOK_AGAIN_S)
        with self._changed:
            while self._rings == seen and (left := until - time.monotonic()) > 0:
                if self._reading or self._fd < 0:
                    self._changed.wait(left)
                    continue
                self._reading = True
                self._changed.release()
                try:
                    rang = self._read(left)
                finally:
                    self._changed.acquire()
                    self._reading = False
                    self._changed.notify_all()
                self._rings += rang

    def _read(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(max(0.0, timeout_s) * 1000):
            return False
        try:
            return bool(os.read(self._fd, 65536))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Let go of the kernel's instance. No thread may be waiting."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
