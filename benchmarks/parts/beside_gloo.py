"""All-reduces as fast as they go, beside gloo's: the same processes, buffers and rounds.

    round 0   A  B  gloo
    round 1   B  gloo  A
    round 2   gloo  A  B

A round's ratio is of measurements that followed each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts import sums
from benchmarks.parts.cases import size_bytes
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reducer import Place
from benchmarks.parts.reductions import Gloo, Reductions, Took
from benchmarks.parts.spread import columns, framed, say, shown, spread
from benchmarks.parts.stores import Store

Json = dict[str, Any]
_GLOO = "gloo"
#: A measurement sums up so much, and has so many operations at least and at most.
_MEASURED_MB = 200.0
_LEAST, _MOST = 4, 50
#: So many go before, and do not count: connections and threads are there then.
_WARM = 1


def measure(
    ranks: Ranks,
    store: Store,
    workers: Sequence[int],
    sizes_mb: Sequence[float],
    collectives: Sequence[str],
    rounds: int,
) -> list[Json]:
    """A row a number of workers, size and collective."""
    rows = []
    for count, mb in product(workers, sizes_mb):
        rows += _size(ranks, store.place(), count, mb, collectives, rounds)
    return rows


def operations(mb: float, world_size: int) -> int:
    """How many all-reduces of so many MB are measured in a row; so few that sums can be checked."""
    return sums.most_exact(world_size, max(_LEAST, min(_MOST, round(_MEASURED_MB / mb))))


def _size(
    ranks: Ranks,
    place: Place,
    count: int,
    mb: float,
    collectives: Sequence[str],
    rounds: int,
) -> list[Json]:
    nbytes, in_a_row = size_bytes(mb), operations(mb, count)
    sides = [*collectives, _GLOO]
    took: dict[str, list[Took]] = {side: [] for side in sides}
    moved_bytes = dict.fromkeys(collectives, 0.0)
    with (
        Reductions(ranks, place, count, nbytes, _WARM + in_a_row) as reductions,
        Gloo(ranks, place.rendezvous / "gloo", count, nbytes) as gloo,
    ):
        for one in range(-1, rounds):
            turn = one % len(sides)
            for side in (*sides[turn:], *sides[:turn]):
                # The first round does not count: after it, all memory of the log was used before.
                if side == _GLOO:
                    measured = gloo.measure(in_a_row, warm=_WARM)
                else:
                    before = reductions.traffic_bytes()
                    measured = reductions.measure(side, in_a_row, warm=_WARM)
                    moved = reductions.traffic_bytes() - before
                    moved_bytes[side] = moved / (_WARM + in_a_row) / count
                if one >= 0:
                    took[side].append(measured)
    say(
        f"{count} workers, {mb:g} MB, no caps: "
        + ", ".join(
            f"{side} {1e3 * median(one.wall_s for one in some):.2f} ms "
            f"({1e3 * median(one.cpu_s for one in some):.2f} of CPU time)"
            for side, some in took.items()
        )
    )
    return [
        {
            "workers": count,
            "mb": mb,
            "collective": name,
            "operations": in_a_row,
            "moved_bytes": moved_bytes[name],
            "store_cpu_seconds": [one.store_cpu_s for one in took[name]],
            **_compared(
                "", [one.wall_s for one in took[name]], [one.wall_s for one in took[_GLOO]]
            ),
            **_compared(
                "cpu_", [one.cpu_s for one in took[name]], [one.cpu_s for one in took[_GLOO]]
            ),
        }
        for name in collectives
    ]


def _compared(kind: str, ours: list[float], theirs: list[float]) -> Json:
    """Seconds of an all-reduce round by round, their medians, and the ratio."""
    return {
        f"{kind}seconds": ours,
        f"gloo_{kind}seconds": theirs,
        f"{kind}took_s": median(ours),
        f"gloo_{kind}s": median(theirs),
        **spread(f"{kind}ratio", [a / b for a, b in zip(ours, theirs, strict=True)]),
    }


def table(rows: Sequence[Json], channel: str, rounds: int) -> Table:
    """For a person."""
    made = columns(["collective"], ["n", "MB", "ms", "gloo ms", "ratio", "least to most"])
    for row in rows:
        made.add_row(
            row["collective"],
            str(row["workers"]),
            f"{row['mb']:g}",
            f"{1e3 * row['took_s']:.2f}",
            f"{1e3 * row['gloo_s']:.2f}",
            *shown(row, "ratio", 2),
        )
    return framed(
        f"without caps, over {channel}, beside gloo: median of {rounds} rounds",
        made,
        "ratio: dayfly's time / gloo's of a round; below 1, dayfly is faster",
    )
