"""All-reduces at given rates and latency, over the bound: every collective in each round.

    round 0   A A A A ...   B B B ...   C C C ...      in a row, as a training does them
    round 1   A A A A ...   B B B ...   C C C ...

Each measurement has a line of its own, new and idle, which has saved up nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.parts.cases import Case
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reducer import Place
from benchmarks.parts.reductions import Reductions
from benchmarks.parts.spread import columns, framed, number, say, shown, spread
from dayfly.wire.channels.base import Namespace
from dayfly.wire.shaping import Rates

Json = dict[str, Any]


def measure(
    ranks: Ranks,
    url: str,
    run: str,
    scratch: Path,
    cases: Sequence[Case],
    operations: int,
    rounds: int,
    in_full: bool,
) -> list[Json]:
    """A row a case and collective. in_full: as many operations of the slow ones, too."""
    rows = []
    for number_of, case in enumerate(cases):
        place = Place(url=url, namespace=Namespace(run, number_of), rendezvous=scratch)
        log = (case.workers, case.size_bytes, operations)
        with Reductions(ranks, place, *log) as reductions:
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
    virtual = {name: case.virtual_ratio(name, abilities) for name in case.collectives}
    times = {name: case.operations(operations, virtual[name], in_full) for name in virtual}
    took_s: dict[str, list[float]] = {name: [] for name in virtual}
    say(f"{described(case)}: the bound is {case.bound_s:.3f} s")
    for name in virtual:
        # Without caps and without counting: what is wrong shows at once, and all code is loaded.
        reductions.measure(name, 1)
    for one in range(rounds):
        for name, so_far in took_s.items():
            so_far.append(reductions.measure(name, times[name], rates))
            ratio = so_far[-1] / case.bound_s
            say(f"  round {one + 1} of {rounds}: {name:<15} {ratio:.3f} ({times[name]} in a row)")
    return [
        {
            "workers": case.workers,
            "mb": case.mb,
            "rate_mb_per_s": case.rate_mb_per_s,
            "latency_ms": case.latency_ms,
            "bound_s": case.bound_s,
            "collective": name,
            "operations": times[name],
            "seconds": so_far,
            **spread("ratio", [one / case.bound_s for one in so_far]),
            "virtual_ratio": virtual[name],
            "formula_ratio": case.formula_ratio(name),
        }
        for name, so_far in took_s.items()
    ]


def described(case: Case | Mapping[str, Any]) -> str:
    """A case, or a row of one, in words."""
    if isinstance(case, Case):
        names = ("workers", "mb", "rate_mb_per_s", "latency_ms")
        case = {name: getattr(case, name) for name in names}
    return (
        f"{case['workers']} workers, {case['mb']:g} MB, {case['rate_mb_per_s']:g} MB/s each way, "
        f"{case['latency_ms']:g} ms"
    )


def table(rows: Sequence[Json], channel: str, rounds: int) -> Table:
    """For a person; a table a case, one below the other."""
    tables: list[Table | str] = []
    for case, of_case in groupby(rows, described):
        made = columns(
            ["collective"], ["in a row", "s", "ratio", "least to most", "virtual", "formula"]
        )
        for row in of_case:
            bound_s = row["bound_s"]
            made.add_row(
                row["collective"],
                str(row["operations"]),
                number(row["ratio"] * row["bound_s"]),
                *shown(row, "ratio"),
                number(row["virtual_ratio"]),
                number(row["formula_ratio"]),
            )
        tables += [f"{case}: the bound is {bound_s:.3f} s", made]
    return framed(
        f"time of an all-reduce / bound 2(n-1)/n s/w, over {channel}, median of {rounds} rounds",
        *tables,
        "virtual: the same schedule in virtual time; formula: its paper's; both over the bound",
    )
