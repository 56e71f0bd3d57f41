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
from benchmarks.parts.reductions import Gloo, Reductions
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
    took_s: dict[str, list[float]] = {side: [] for side in sides}
    with (
        Reductions(ranks, place, count, nbytes, _WARM + in_a_row) as reductions,
        Gloo(ranks, place.rendezvous / "gloo", count, nbytes) as gloo,
    ):
        for one in range(-1, rounds):
            turn = one % len(sides)
            for side in (*sides[turn:], *sides[:turn]):
                # The first round does not count: after it, all memory of the log was used before.
                if side == _GLOO:
                    took = gloo.measure(in_a_row, warm=_WARM)
                else:
                    took = reductions.measure(side, in_a_row, warm=_WARM)
                if one >= 0:
                    took_s[side].append(took)
    say(
        f"{count} workers, {mb:g} MB, no caps: "
        + ", ".join(f"{side} {1e3 * median(took):.2f} ms" for side, took in took_s.items())
    )
    theirs = took_s[_GLOO]
    return [
        {
            "workers": count,
            "mb": mb,
            "collective": name,
            "operations": in_a_row,
            "seconds": took_s[name],
            "gloo_seconds": theirs,
            "took_s": median(took_s[name]),
            "gloo_s": median(theirs),
            **spread("ratio", [a / b for a, b in zip(took_s[name], theirs, strict=True)]),
        }
        for name in collectives
    ]


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
