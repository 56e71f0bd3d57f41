"""DDP over a slow store, beside communicating after the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts.examples import HOWS, OVERLAP_EXAMPLES, overlap_name
from benchmarks.parts.groups import Group, Of
from benchmarks.parts.member import Member
from benchmarks.parts.programs.after_backward import How
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.spread import columns, framed, number, shown, spread
from benchmarks.parts.stores import Store
from benchmarks.parts.turns import in_turns
from dayfly.life.sessions import Session
from dayfly.wire.shaping import Rates

Json = dict[str, Any]
_DDP: How = "ddp"
_ALONE: How = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A slow store: MB/s each way, and ms a request."""

    mb_per_s: float
    latency_ms: float

    def rates(self) -> Rates:
        """For the line."""
        rate = 1e6 * self.mb_per_s
        return Rates(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=self.latency_ms / 1000)


def measure(
    session: Session,
    store: Store,
    processes: Sequence[int],
    slow: Slow,
    rounds: int,
    seconds: float,
    images: int,
) -> list[Json]:
    """A row a number of processes and way to communicate. images: of each process, a step."""
    rows = []
    with Ranks(Member, max(processes)) as ranks:
        for count in processes:
            with Group(ranks, count, session, store, slow.rates()) as group:
                rows += _rows(group, count, slow, rounds, seconds, images)
    return rows


def _rows(
    group: Group, count: int, slow: Slow, rounds: int, seconds: float, images: int
) -> list[Json]:
    names = {how: overlap_name(how, images) for how in HOWS}
    for name in names.values():
        group.ask("make", name)
    sides = {how: Of(group, name) for how, name in names.items()}
    what = f"overlap on {count} at {slow.mb_per_s:g} MB/s and {slow.latency_ms:g} ms"
    took = in_turns(what, sides, rounds, seconds, unlike=frozenset({_ALONE}))
    buckets = group.ask("buckets", names["one by one"])[0]
    # Both ways at once, as every collective here sends and gets them.
    beside = {
        how: [
            whole - alone
            for whole, alone in zip(took.seconds[how], took.seconds[_ALONE], strict=True)
        ]
        for how in HOWS
    }
    bound_s = 2 * (count - 1) / count * sum(buckets) / (1e6 * slow.mb_per_s)
    group.ask("drop")
    return [
        {
            "how": how,
            "images": images,
            "workers": count,
            "rate_mb_per_s": slow.mb_per_s,
            "latency_ms": slow.latency_ms,
            "bucket_mb": [size / 1e6 for size in buckets],
            "bound_s": bound_s,
            "steps": took.steps,
            "seconds": took.seconds[how],
            "step_s": median(took.seconds[how]),
            "beside_s": median(beside[how]),
            "beside_ratio": None if how == _ALONE else median(beside[_DDP]) / median(beside[how]),
            **spread("ratio", took.ratios(_DDP, how)),
            "losses_apart": took.losses_apart,
        }
        for how in HOWS
    ]


def table(rows: Sequence[Json], rounds: int) -> Table:
    """For a person."""
    one = rows[0]
    made = columns(
        ["communicated"],
        ["n", "ms", "ddp/this", "least to most", "more ms", "ddp/this"],
    )
    for row in rows:
        made.add_row(
            row["how"],
            str(row["workers"]),
            f"{1e3 * row['step_s']:.4g}",
            *shown(row, "ratio", 2),
            f"{1e3 * row['beside_s']:.4g}",
            number(row["beside_ratio"], 2),
        )
    bounds = {row["workers"]: 1e3 * row["bound_s"] for row in rows}
    buckets = ", ".join(f"{mb:.1f}" for mb in one["bucket_mb"])
    example = OVERLAP_EXAMPLES[overlap_name(_DDP, one["images"])]
    return framed(
        f"{example.what}; over a store of {one['rate_mb_per_s']:g} MB/s each way "
        f"and {one['latency_ms']:g} ms, median of {rounds} rounds",
        made,
        "ddp: each bucket is summed while the backward pass still runs",
        "one by one, all at once: the same buckets after it, each waited for, or begun together",
        "flat: after it, in one buffer; each gradient: after it, each parameter's waited for",
        "more: what the step takes longer than alone, that is without communication",
        f"buckets: {buckets} MB; the least ms over the line: "
        + ", ".join(f"{bound:.0f} on {count}" for count, bound in bounds.items()),
    )
