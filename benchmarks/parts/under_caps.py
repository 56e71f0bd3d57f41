"""All-reduces at given rates and latency, over the bound: every collective in each round.

    round 0   A A A A ...   B B B ...   C C C ...      in a row, as a training does them
    round 1   A A A A ...   B B B ...   C C C ...

Each measurement has a line of its own, new and idle, which has saved up nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from benchmarks.parts.cases import Case, in_a_row
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reductions import Reductions
from benchmarks.parts.spread import columns, framed, number, say, shown, spread
from benchmarks.parts.stores import Store
from dayfly.wire.shaping import Rates

Json = dict[str, Any]


def measure(
    ranks: Ranks,
    store: Store,
    cases: Sequence[Case],
    operations: int,
    rounds: int,
    in_full: bool,
) -> list[Json]:
    """A row a case and collective. in_full: as many operations of the slow ones, too."""
    rows = []
    for case in cases:
        log = (case.workers, case.size_bytes, operations)
        with Reductions(ranks, store.place(), *log) as reductions:
            rows += _case(reductions, case, operations, rounds, in_full)
    return rows


def _case(
    reductions: Reductions, case: Case, operations: int, rounds: int, in_full: bool
) -> list[Json]:
    abilities = reductions.abilities
    rates = Rates(
        up_bytes_per_s=case.bytes_per_s,
        down_bytes_per_s=case.bytes_per_s,
        latency_s=case.latency_ms / 1e3,
    )
    each = {name: case.one(name, abilities) for name in case.collectives}
    ratios = {name: one.virtual_s / one.bound_s for name, one in each.items()}
    times = {name: in_a_row(operations, ratio, in_full) for name, ratio in ratios.items()}
    took_s: dict[str, list[float]] = {name: [] for name in each}
    bound_s = case.bound_s
    left_s = rounds * bound_s * sum(times[name] * ratio for name, ratio in ratios.items())
    say(f"{case}: the bound is {bound_s:.3f} s; this takes about {left_s:.0f} s")
    for name in each:
        # Without caps and without counting: what is wrong shows at once, and all code is loaded.
        reductions.measure(name, 1)
    for one in range(rounds):
        for name, so_far in took_s.items():
            so_far.append(reductions.measure(name, times[name], rates).wall_s)
            ratio = so_far[-1] / bound_s
            say(f"  round {one + 1} of {rounds}: {name:<15} {ratio:.3f} ({times[name]} in a row)")
    return [
        {
            "workers": case.workers,
            "mb": case.mb,
            "rate_mb_per_s": case.rate_mb_per_s,
            "latency_ms": case.latency_ms,
            "case": str(case),
            "bound_s": bound_s,
            "collective": name,
            "operations": times[name],
            "seconds": so_far,
            **spread("ratio", [one / bound_s for one in so_far]),
            "virtual_ratio": ratios[name],
            "formula_ratio": each[name].formula_s / bound_s,
        }
        for name, so_far in took_s.items()
    ]


def table(rows: Sequence[Json], channel: str, rounds: int) -> Table:
    """For a person; a table a case, one below the other."""
    tables: list[Table | str] = []
    for case, of_case in groupby(rows, lambda row: row["case"]):
        made = columns(
            ["collective"], ["in a row", "s", "ratio", "least to most", "virtual", "formula"]
        )
        for row in of_case:
            made.add_row(
                row["collective"],
                str(row["operations"]),
                number(row["ratio"] * row["bound_s"]),
                *shown(row, "ratio"),
                number(row["virtual_ratio"]),
                number(row["formula_ratio"]),
            )
        tables += [f"{case}: the bound is {row['bound_s']:.3f} s", made]
    return framed(
        f"time of an all-reduce / bound 2(n-1)/n s/w, over {channel}, median of {rounds} rounds",
        *tables,
        "virtual: the same schedule in virtual time; formula: its closed form; both over the bound",
    )
