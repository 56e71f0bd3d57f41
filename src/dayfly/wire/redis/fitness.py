"""What a server says of itself: whether it can carry a run's messages, and its CPU time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dayfly.errors import WireError
from dayfly.wire.redis.address import Address

#: The first version with streams.
_LEAST = (5, 0)
_MIB = 2**20


def read_info(text: str) -> dict[str, str]:
    """The lines `name:value` of what the command INFO replies."""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}


def check_server(address: Address, info: Mapping[str, str], budget_bytes: int) -> None:
    """Raise WireError unless the server can hold so many bytes of messages until they are dropped.

    A memory limit with an eviction policy is refused: under it Redis throws away what it likes
    (our keys among the first, as they expire), and a message that is lost ends the run.
    """
    version = info.get("redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _LEAST:
        raise WireError(
            f"{address} is version {version or 'unknown'}, which has no streams: use 5.0 or newer"
        )
    if info.get("role", "master") != "master":
        raise WireError(f"{address} is a replica, which takes no messages: give its primary")
    limit_bytes = _number(info, "maxmemory")
    if not limit_bytes:
        return
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise WireError(
            f"{address} would throw messages away when its memory is full (maxmemory-policy "
            f"{policy}): set it to noeviction, or use another server"
        )
    free_bytes = limit_bytes - _number(info, "used_memory")
    if free_bytes < budget_bytes:
        raise WireError(
            f"{address} has {max(0, free_bytes) // _MIB} MiB left under its maxmemory, and the "
            f"message log may take {-(-budget_bytes // _MIB)} MiB: raise maxmemory, or give a "
            "smaller --log-budget"
        )


def cpu_s(info: Mapping[str, str]) -> float | None:
    """Seconds of the thread that serves everybody; before version 6.2, of the whole server."""
    for of in ("_main_thread", ""):
        parts = [info.get(f"used_cpu_{side}{of}") for side in ("user", "sys")]
        if all(parts):
            return sum(float(part) for part in parts if part)
    return None


def _number(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "0")
    return int(text) if text.isdigit() else 0
