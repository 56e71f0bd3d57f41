"""How much more memory this process has at its worst while something is done."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_LOOK_EVERY_S = 0.001


def growth_bytes(work: Callable[[], object]) -> int:
    """The most memory of its own that this process had during `work`, over what it had before.

    By the kernel's high-water mark of resident memory, without what is shared with others, such as
    a file channel's segments. While that grows, too, the mark alone would say too little: a thread
    looks besides, every millisecond.
    """
    gc.collect()
    # Memory that was freed but not given back would be used again, unseen.
    ctypes.CDLL(None).malloc_trim(0)
    before = _status()
    Path("/proc/self/clear_refs").write_text("5")  # the mark begins anew
    seen, over = [before["RssAnon"]], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            seen.append(_status()["RssAnon"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        work()
    finally:
        over.set()
        looking.join()
    after = _status()
    shared = max(0, after["RssShmem"] - before["RssShmem"])
    marked = after["VmHWM"] - before["VmRSS"] - shared
    return max(0, marked, max(seen) - before["RssAnon"])


def _status() -> dict[str, int]:
    """Bytes by name."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return {name: 1024 * int(size) for name, size in found}
