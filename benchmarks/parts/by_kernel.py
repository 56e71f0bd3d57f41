"""The cross-check: the same all-reduces held back by the kernel's token bucket, and by our line.

A star of network namespaces, with Redis in its hub; the same processes and connections for both:

    kernel   `tc tbf` at both ends of every worker's cable; the channel as it is
    ours     no bucket; every message passes a shaped line of the same rate, without latency

The kernel counts all that is sent: the headers of TCP, IP and Ethernet, acknowledgements, requests.
Our line counts messages, with their headers. So the kernel's time is compared after multiplying it
by the share of its bytes that are messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts.cases import Case
from benchmarks.parts.namespaces import burst_bytes
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.redis_server import RedisOptions, RedisServer
from benchmarks.parts.reducer import Reducer
from benchmarks.parts.reductions import Reductions
from benchmarks.parts.spread import columns, framed, number, say, shown, spread
from benchmarks.parts.star import HUB_HOST, Star
from benchmarks.parts.stores import Store
from dayfly.life.sessions import Session
from dayfly.wire.shaping import Rates

Json = dict[str, Any]


def measure(session: Session, case: Case, operations: int, rounds: int) -> list[Json]:
    """A row a collective of the case, whose latency is left out."""
    rates = Rates(up_bytes_per_s=case.bytes_per_s, down_bytes_per_s=case.bytes_per_s)
    rows: dict[str, Json] = {
        name: {"kernel": [], "ours": [], "shares": []} for name in case.collectives
    }
    with Star(case.workers) as star:
        server = star.in_hub(RedisServer, RedisOptions(host=HUB_HOST))
        try:
            place = Store(server.url, "star", session).place()
            log = (case.workers, case.size_bytes, operations)
            with (
                Ranks(Reducer, case.workers, spaces=star.spaces) as ranks,
                Reductions(ranks, place, *log, star.in_hub) as reductions,
            ):
                for one in range(rounds):
                    for name, row in rows.items():
                        kernel_s, share = _by_kernel(star, reductions, case, name, operations)
                        row["kernel"].append(kernel_s)
                        row["shares"].append(share)
                        row["ours"].append(reductions.measure(name, operations, rates).wall_s)
                        ratio = row["ours"][-1] / (kernel_s * share)
                        said = f"  round {one + 1} of {rounds}: {name:<15} ours / tc tbf"
                        say(f"{said} {ratio:.3f} ({operations} in a row)")
        finally:
            star.in_hub(server.close)
    return [_row(name, case, operations, row) for name, row in rows.items()]


def _by_kernel(
    star: Star, reductions: Reductions, case: Case, name: str, operations: int
) -> tuple[float, float]:
    """Seconds of an all-reduce, and which share of what was sent is messages."""
    with star.limited(case.bytes_per_s):
        before = reductions.traffic_bytes()
        took_s = reductions.measure(name, operations).wall_s
        messages = reductions.traffic_bytes() - before
        # What the bucket had saved up at the start took no time, and would have taken so much.
        saved_s = burst_bytes(case.bytes_per_s) / case.bytes_per_s
        return took_s + saved_s / operations, messages / star.sent_bytes()


def _row(name: str, case: Case, operations: int, row: Json) -> Json:
    return {
        "workers": case.workers,
        "mb": case.mb,
        "rate_mb_per_s": case.rate_mb_per_s,
        "bound_s": case.bound_s,
        "collective": name,
        "operations": operations,
        "ours_seconds": row["ours"],
        "kernel_seconds": row["kernel"],
        "ours_ratio": median(row["ours"]) / case.bound_s,
        "kernel_ratio": median(row["kernel"]) / case.bound_s,
        "message_share": median(row["shares"]),
        **spread("ratio", compared(row["ours"], row["kernel"], row["shares"])),
    }


def compared(
    ours_s: Sequence[float], kernel_s: Sequence[float], shares: Sequence[float]
) -> list[float]:
    """Ours over the kernel's time for the messages alone, round by round."""
    rounds = zip(ours_s, kernel_s, shares, strict=True)
    return [ours / (kernel * share) for ours, kernel, share in rounds]


def table(rows: Sequence[Json], rounds: int) -> Table:
    """For a person."""
    made = columns(["collective"], ["ours", "tbf", "messages", "ratio", "least to most"])
    for row in rows:
        made.add_row(
            row["collective"],
            number(row["ours_ratio"]),
            number(row["kernel_ratio"]),
            number(row["message_share"]),
            *shown(row, "ratio"),
        )
    first = rows[0]
    return framed(
        f"our line beside tc tbf: {first['workers']} workers, {first['mb']:g} MB, "
        f"{first['rate_mb_per_s']:g} MB/s each way, no latency,\nover Redis in network "
        f"namespaces, median of {rounds} rounds",
        made,
        "ours, tbf: time / bound; messages: their share of what tbf let through;\n"
        "ratio: ours / (tbf x messages)",
    )
