"""What AES-GMAC takes: CPU time to seal and to check a message, beside that to move it.

Moving is a put and a get over Redis by one process, with neither; the server's own CPU time is left
out, so the share is an upper bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
import xxhash
from rich.table import Table

from benchmarks.parts.spread import columns, framed, number, say
from benchmarks.parts.stores import Store
from dayfly.wire.authentication import Authenticator, new_token
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, as_bytes

Json = Mapping[str, Any]

#: Payloads, in bytes.
SIZES = (128, 16 * 1024, 256 * 1024, 2**20, 25 * 10**6)
#: What a figure is measured over: so many bytes, in so many messages at most.
_BYTES, _MESSAGES = 10**8, 500
_KEY = Key(0, "message", 0, 1)
_ARRIVES_S = 60.0


def measure(store: Store, rounds: int, quick: bool) -> list[dict[str, Any]]:
    """A row a size: CPU seconds of one message, medians over the rounds, and the share of them."""
    place = store.place()
    site, kind = place.site(), channel_kind(place.url)
    plan = ChannelSpec(senders=2, budget_bytes=2**29, ahead_bytes=2**20)
    with kind.create(site, plan) as made, kind.open(site, 0) as channel:
        try:
            return [_row(channel, size, rounds, quick) for size in SIZES]
        finally:
            made.destroy()


def _row(channel: Channel, size: int, rounds: int, quick: bool) -> dict[str, Any]:
    value = torch.arange(size, dtype=torch.uint8)
    into, payload = torch.empty_like(value), as_bytes(value)
    header, by = Header(_KEY.operation, torch.uint8, (size,)), Authenticator(new_token(), "run", 0)
    sealed = header.seal(payload, _KEY, by)
    times = 2 if quick else max(3, min(_MESSAGES, _BYTES // size))

    def moved() -> None:
        channel.put(_KEY, header, payload)
        channel.get(_KEY, into, _ARRIVES_S)

    measured: dict[str, list[float]] = {"seal": [], "check": [], "xxh3": [], "whole": []}
    for _ in range(rounds):
        measured["seal"].append(_cpu_s(times, lambda: header.seal(payload, _KEY, by)))
        measured["check"].append(_cpu_s(times, lambda: by.check(_KEY, sealed, payload)))
        measured["xxh3"].append(_cpu_s(times, lambda: xxhash.xxh3_64_intdigest(payload)))
        measured["whole"].append(_cpu_s(times, moved, lambda: channel.drop([_KEY])))
    seal_s, check_s, xxh3_s, whole_s = (median(measured[name]) for name in measured)
    moving_s = whole_s - seal_s - check_s
    say(f"  authentication of {size} bytes: {(seal_s + check_s) / moving_s:.1%} of moving them")
    return {
        "bytes": size,
        "seal_cpu_s": seal_s,
        "check_cpu_s": check_s,
        "xxh3_cpu_s": xxh3_s,
        "moving_cpu_s": moving_s,
        "share": (seal_s + check_s) / moving_s,
        "share_over_xxh3": (seal_s + check_s - 2 * xxh3_s) / moving_s,
    }


def _cpu_s(times: int, act: Callable[[], object], after: Callable[[], object] = int) -> float:
    """CPU seconds of this process for one of `times` acts, without what is done after each."""
    took_s = 0.0
    for _ in range(times):
        began_s = time.process_time()
        act()
        took_s += time.process_time() - began_s
        after()
    return took_s / times


def table(rows: Sequence[Json]) -> Table:
    """For a person."""
    made = columns(["bytes"], ["seal us", "check us", "XXH3 us", "moving us", "share", "more"])
    for row in rows:
        times_us = (1e6 * row[f"{name}_cpu_s"] for name in ("seal", "check", "xxh3", "moving"))
        shares = (f"{row['share']:.1%}", f"{row['share_over_xxh3']:.1%}")
        made.add_row(f"{row['bytes']}", *(number(one, 1) for one in times_us), *shares)
    return framed(
        "AES-GMAC of a message: CPU time of sealing and checking, over Redis",
        made,
        "moving: a put and a get, with neither; share: of both of moving; more: than two XXH3",
    )
