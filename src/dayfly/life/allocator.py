"""The C library's allocator in functions: large blocks stay, or go back where memory is limited.

glibc decides at each free whether a large block goes back to the kernel. It comes back as zeroed
pages, one fault each; a training step frees and allocates all its activations. `dayfly bench
training` measures whole steps beside gloo with the same settings.

    kept        where memory is not limited: blocks of any size come from the heap and stay in it.
    given back  in functions with a memory limit. Who keeps blocks loses some: one that was freed is
                often a little too short for the next of its size, so that peaks are up to a quarter
                higher. A limit may have no room for that.

By default glibc does something between: it learns to keep blocks of up to 32 MiB.

Both in huge pages, where the kernel has them for whoever asks (hugetlb=1 is madvise): fewer faults,
and fewer misses of the TLB.

A process has its settings by tunables of the environment, as mallopt(3) knows nothing of huge
pages. A function is forked from one that keeps blocks, and changes that by mallopt. Other C
libraries know neither, and are left as they are.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Mapping

TUNABLES = "GLIBC_TUNABLES"
_MMAP, _TRIM = "glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold"
_HUGE = "glibc.malloc.hugetlb"
_MIB = 2**20
#: Above any block. Older versions of glibc refuse a threshold above 32 MiB, and would take 128 KiB.
_NEVER_BYTES, _OLD_BYTES = 2**40, 32 * _MIB


def _most_bytes(library: tuple[str, str]) -> int:
    """The largest threshold that a C library takes.

    Args:
        library: its name and version.
    """
    name, version = library
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    return _NEVER_BYTES if name == "glibc" and numbers >= [2, 36] else _OLD_BYTES


#: Free at the heap's end at most, where blocks are given back; blocks from `_LARGE_BYTES` on come
#: from the kernel alone, and go back at once.
HEAP_END_BYTES, _LARGE_BYTES = 8 * _MIB, 2 * _MIB
_KEPT = {_MMAP: str(_most_bytes(platform.libc_ver())), _TRIM: str(_NEVER_BYTES), _HUGE: "1"}
_GIVEN_BACK = {**_KEPT, _MMAP: str(_LARGE_BYTES), _TRIM: str(HEAP_END_BYTES)}
#: Parameters of mallopt(3), and the largest number that it takes.
_MALLOPT, _MOST = {_TRIM: -1, _MMAP: -3}, 2**31 - 1


def keeping(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable by which a process that is started with it keeps large blocks.

    Args:
        environment: what it would be started with; the user's own tunables override ours.
    """
    return {TUNABLES: _text({**_KEPT, **_own(environment)})}


def give_back() -> None:
    """Have this process, and those that it starts, give large blocks back from now on."""
    wanted = {**_GIVEN_BACK, **_own(os.environ)}
    os.environ[TUNABLES] = _text(wanted)
    mallopt = _mallopt()
    for name, parameter in _MALLOPT.items():
        if wanted[name].isdecimal():
            mallopt(parameter, min(int(wanted[name]), _MOST))


def _mallopt() -> Callable[[int, int], object]:
    try:
        found: Callable[[int, int], object] = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return lambda parameter, value: None
    return found


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's tunables: those that are not as `keeping` sets them."""
    given = (one.partition("=") for one in environment.get(TUNABLES, "").split(":") if one)
    return {name: value for name, _, value in given if _KEPT.get(name) != value}


def _text(tunables: Mapping[str, str]) -> str:
    return ":".join(f"{name}={value}" for name, value in tunables.items())
