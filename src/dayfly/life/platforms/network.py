"""Network namespaces of this machine that functions enter, as ip-netns(8) makes and names them.

    worker   0  1  2  3        namespace  a: 0 2      b: 1 3

Function f enters namespace f mod n of n, as it has GPU f mod g of g. Whoever made them says what
goes through them, such as by `tc`, and how functions reach their store.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

from dayfly.errors import RequestError

#: Where ip-netns(8) has them.
_FOLDER = Path("/run/netns")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_CLONE_NEWNET = 0x40000000


def namespaces_of(listed: str | None) -> tuple[str, ...]:
    """Returns the namespaces of a list.

    Args:
        listed: their names, with commas between; None: there are none.

    Raises:
        RequestError: one is not there, or this user may not enter any.
    """
    names = () if listed is None else tuple(listed.split(","))
    for name in names:
        if not _NAME.fullmatch(name) or not (_FOLDER / name).exists():
            raise RequestError(
                f"netns {name!r}: there is no such network namespace on this machine: make it "
                "first, as by ip netns add, or leave the option out"
            )
    if names and os.geteuid() != 0:
        raise RequestError(
            f"netns {names[0]!r}: only root may enter a network namespace: run as root, or leave "
            "the option out"
        )
    return names


def namespace_of(number: int, names: Sequence[str]) -> str | None:
    """Returns the namespace of a function with this number; None: it stays where it is."""
    return names[number % len(names)] if names else None


def enter(name: str) -> None:
    """Moves this thread, and what it starts from now on, into a namespace.

    Args:
        name: its name; or the path of such a file, as `/proc/self/ns/net`.

    Raises:
        OSError: it is not there, or this user may not enter it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with (_FOLDER / name).open() as space:
        if libc.setns(space.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter {name}: {os.strerror(number)}")
