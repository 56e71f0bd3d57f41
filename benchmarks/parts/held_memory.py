"""How much memory a rank takes for an all-reduce, beside the buffer itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.parts.cases import size_bytes
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reductions import Reductions
from benchmarks.parts.spread import columns, framed, number, say
from benchmarks.parts.stores import Store

Json = dict[str, Any]


def measure(
    ranks: Ranks, store: Store, workers: int, mb: float, names: Sequence[str]
) -> list[Json]:
    """A row a collective: of the rank that took most."""
    nbytes = size_bytes(mb)
    rows = []
    with Reductions(ranks, store.place(), workers, nbytes, 2) as reductions:
        abilities = reductions.abilities
        flight_mb = 2 * abilities.in_flight * abilities.chunk_bytes / 1e6
        for name in names:
            growth = reductions.growth_bytes(name)
            rows.append(
                {
                    "workers": workers,
                    "mb": mb,
                    "collective": name,
                    "growth_mb": [one / 1e6 for one in growth],
                    "in_flight_mb": flight_mb,
                    "ratio": max(growth) / nbytes,
                }
            )
            say(f"  memory of {name}: {max(growth) / nbytes:.3f} of the buffer")
    return rows


def table(rows: Sequence[Json], channel: str) -> Table:
    """For a person."""
    made = columns(["collective"], ["MB", "of the buffer"])
    for row in rows:
        made.add_row(row["collective"], number(max(row["growth_mb"]), 1), number(row["ratio"]))
    first = rows[0]
    return framed(
        f"most memory beside the buffer of {first['mb']:g} MB, {first['workers']} workers, no "
        f"caps, over {channel}",
        made,
        f"of the rank that took most; chunks in flight, both ways: {first['in_flight_mb']:g} MB",
    )
