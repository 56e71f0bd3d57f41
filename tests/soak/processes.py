"""Who belongs to a coordinator, and what is there that should be gone, as the kernel tells it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.cli.command import cgroups

#: In the environment of everything that a soak starts, with the soak's own token.
MARK = "DAYFLY_SOAK"
_LOCK = re.compile(r".*/dayfly-\d+/([0-9a-f]{12})/lock")


def sessions(coordinator: int) -> set[str]:
    """Ids of the sessions whose lock the process holds.

    It opens those of other coordinators, too, for a moment, to see whether they are dead.
    """
    found = set()
    for descriptor, link in _links(coordinator):
        if match := _LOCK.fullmatch(link):
            with suppress(OSError):
                if "FLOCK" in Path(f"/proc/{coordinator}/fdinfo/{descriptor}").read_text():
                    found.add(match[1])
    return found


def functions(coordinator: int) -> dict[str, int]:
    """Living functions and the zygote by name (`worker-0`, `zygote`), and their pids.

    A function is known by its log; until it has opened that, it looks like its zygote, which alone
    leads a POSIX session.
    """
    found = {}
    for pid in _children(coordinator):
        with suppress(OSError):
            log = Path(os.readlink(f"/proc/{pid}/fd/1")).name
            if log == "_zygote.log" and os.getsid(pid) == pid:
                found["zygote"] = pid
            elif log.startswith(("worker-", "successor-")):
                found[log.removesuffix(".log")] = pid
    return found


def left_behind(token: str, sessions: Iterable[str], *directories: Path) -> list[str]:
    """Processes with the soak's mark, the sessions' directories and cgroups, files that remain."""
    entry = f"{MARK}={token}".encode()
    left = [f"process {pid}" for pid in _pids() if entry in _environment(pid).split(b"\0")]
    for session in sessions:
        homes = [Path("/dev/shm"), *directories]
        left += [str(path) for home in homes for path in home.glob(f"dayfly-*/{session}")]
        left += map(str, cgroups(session))
    # The home of sessions, with the lock that they are made under, is there for good.
    left += [
        str(path)
        for directory in directories
        for path in directory.iterdir()
        if not re.fullmatch(r"dayfly-\d+", path.name)
    ]
    return left


def unfinished_files(run: Path) -> list[str]:
    """Files of a run's directory that were being written when their writer was killed."""
    return [str(path.relative_to(run)) for path in run.rglob("*.tmp")]


def _links(pid: int) -> Iterator[tuple[str, str]]:
    """The descriptors of a process, and what they are of."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield entry.name, os.readlink(entry)


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                pids += map(int, (task / "children").read_text().split())
    return pids


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
