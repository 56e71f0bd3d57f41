"""Waking who waits for a 32-bit number in shared memory to change, by Linux's futex.

A waiter reads the number, looks for what it waits for, and sleeps only if the number is still the
same: so no ring is missed. Where there is no futex (another system, or a processor for which the
number of the call is not known here) a waiter looks again every `POLL_S`.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import sys
import time

#: Longest sleep between two looks, in seconds, whether or not it rang.
LOOK_AGAIN_S = 0.2
#: Sleep between two looks where there is no futex, in seconds.
POLL_S = 0.0005

_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_NUMBERS = {"x86_64": 202, "aarch64": 98}
#: What a wait says that slept, or need not sleep, or was woken by a signal.
_SLEPT = (errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_FIRST = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
# While one waits other threads run; waking takes no time, so it does not let go of the interpreter.
_wait = ctypes.CDLL(None, use_errno=True).syscall
_wait.argtypes = (*_FIRST, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
_wake = ctypes.PyDLL(None).syscall
_wake.argtypes = _FIRST
_wait.restype = _wake.restype = ctypes.c_long


def futex_number() -> int | None:
    """The number of the system call; None if it is not to be had here."""
    known = sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8
    return _NUMBERS.get(platform.machine()) if known else None


class Doorbells:
    """All doorbells of one mapped file.

    numbers: the file as 32-bit numbers. address: where in memory its first byte is. The file stays
    mapped as long as this is used. futex: the system call's number; None: look again instead.
    """

    def __init__(self, numbers: memoryview, address: int, futex: int | None) -> None:
        self._numbers = numbers
        self._address = address
        self._futex = futex

    def seen(self, bell: int) -> int:
        """Read it before looking, pass it to `wait`: no ring is missed."""
        return int(self._numbers[bell])

    def ring(self, bell: int) -> None:
        """Change the number and wake who waits for it. Anybody may, at any time."""
        # The time, as two who count up at once would count one ring.
        self._numbers[bell] = time.monotonic_ns() & 0xFFFFFFFF
        if self._futex is not None:
            _wake(self._futex, self._address + 4 * bell, _WAKE, _EVERYBODY)

    def wait(self, bell: int, seen: int, timeout_s: float) -> None:
        """Return once the number is not `seen`, or after the lesser of timeout and look."""
        some_s = min(timeout_s, LOOK_AGAIN_S)
        if self._futex is not None:
            seconds = int(some_s)
            span = _Timespec(seconds, int((some_s - seconds) * 1e9))
            place = self._address + 4 * bell
            failed = _wait(self._futex, place, _WAIT, seen, ctypes.byref(span), None, 0)
            if not failed or ctypes.get_errno() in _SLEPT:
                return
        time.sleep(min(some_s, POLL_S))
