"""The bench's result as tables for a person, and as pictures like KubeML's figures 4.2 to 4.9."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.parts.accuracy.facts import accuracy_facts, time_facts
from benchmarks.parts.accuracy.reached import FUNCTIONS, MACHINES, SHARE
from benchmarks.parts.accuracy.ways import AVERAGES, BSP, DDP, WAYS
from benchmarks.parts.papers.figure import Figure, Panel, Series
from benchmarks.parts.spread import columns, number, shown

Json = Mapping[str, Any]
#: Curves that are drawn: those of KubeML's figure 4.9, beside DDP and an outer optimizer.
_DRAWN = (DDP.name, *(one.name for one in AVERAGES[1:]), WAYS[-2].name)


def tables(parts: Mapping[str, Sequence[Json]]) -> Iterator[Table | str]:
    """Yields tables of accuracies, and of seconds and dollars if these were measured.

    Args:
        parts: rows of `reached.rows`, by model.
    """
    for model, rows in parts.items():
        made = columns(
            ["way"], ["n", "best %", "least to most", "there", "epochs", "least to most"]
        )
        for row in rows:
            percent = {name: 100 * row[name] for name in ("best", "best_min", "best_max")}
            cells = [row["way"], str(row["workers"]), *shown(percent, "best", 1)]
            cells.append(f"{row['reached']} of {row['seeds']}")
            made.add_row(*cells, *(shown(row, "epochs", 0) if row["reached"] else ()))
        target = 100 * rows[0]["target"]
        yield f"{model}: to {target:.1f}% of accuracy, which is {SHARE:g} of {BSP.name}'s plateau"
        yield made
        if any("epoch_s" in row for row in rows):
            yield _seconds(rows)
    if any("epoch_s" in row for rows in parts.values() for row in rows):
        yield (
            "epoch s, MB: of an epoch behind the bucket, of a worker\nfaster: DDP's seconds to the "
            "target / the way's, and the least of the seeds\n10^-6 $: of the seconds to the "
            f"target on functions ({FUNCTIONS})\nand on machines ({MACHINES})"
        )


def _seconds(rows: Sequence[Json]) -> Table:
    """Medians of the rounds; of `faster` the least of the seeds, too."""
    made = columns(["way"], ["n", "epoch s", "MB", "s", "faster", "least", "10^-6 $", "machines"])
    for row in rows:
        cells = [row["way"], str(row["workers"])]
        two = [number(row.get(name), 2) for name in ("epoch_s", "mb", "faster", "faster_min")]
        cells += [*two[:2], number(row.get("seconds"), 1), *two[2:]]
        for name in ("functions_usd", "machines_usd"):
            cells.append(number(1e6 * row[name] if name in row else None, 0))
        made.add_row(*cells)
    return made


def figures(parts: Mapping[str, Sequence[Json]]) -> list[Figure]:
    """Returns pictures: accuracy as it rises, and sweeps of k and of the number of workers.

    Args:
        parts: as of `tables`.
    """
    return [
        Figure(
            name="kubeml-accuracy",
            what="KubeML, figures 4.2 to 4.4 and 4.9: accuracy as it rises",
            panels=tuple(_rising(model, rows) for model, rows in parts.items()),
            facts=time_facts(parts),
            columns=3,
        ),
        Figure(
            name="kubeml-sweeps",
            what="KubeML, figures 4.5 and 4.7: k, and the number of workers",
            panels=tuple(_sweeps(parts)),
            facts=accuracy_facts(parts),
            columns=2,
        ),
    ]


def _rising(model: str, rows: Sequence[Json]) -> Panel:
    """Median accuracy of the seeds after each epoch, over seconds if these were measured."""
    first = [row for row in rows if row["workers"] == rows[0]["workers"]]
    timed = all("epoch_s" in row for row in first)
    series = []
    for row in first:
        if row["way"] in _DRAWN:
            each = row["epoch_s"] if timed else 1
            xs = tuple(each * n for n in range(1, len(row["accuracies"]) + 1))
            ys = tuple(100 * one for one in row["accuracies"])
            series.append(Series(name=row["way"], xs=xs, ys=ys))
    return Panel(
        title=f"{model}, {first[0]['workers']} workers",
        x="s" if timed else "epochs",
        y="accuracy, %",
        series=tuple(series),
        line_y=100 * first[0]["target"],
    )


def _sweeps(parts: Mapping[str, Sequence[Json]]) -> Iterator[Panel]:
    """Bars by k on the first number of workers, and by the number of workers."""
    ks = [DDP.name, *(one.name for one in AVERAGES)]
    swept = [one.name for one in WAYS if one.swept]

    def bars(named: str, rows: Sequence[tuple[str, Json]], of: Callable[[Json], Any]) -> Series:
        found = [(x, of(row)) for x, row in rows]
        xs, ys = zip(*[one for one in found if one[1] is not None] or [((), ())], strict=True)
        return Series(name=named, xs=tuple(xs), ys=tuple(ys), kind="bars")

    def best(row: Json) -> float:
        return 100 * float(row["best"])

    measures: list[tuple[str, Callable[[Json], Any]]] = [
        ("epochs to the target", lambda row: row.get("epochs")),
        ("best accuracy, %", best),
    ]
    if any("seconds" in row for rows in parts.values() for row in rows):
        measures.insert(0, ("s to the target", lambda row: row.get("seconds")))
    for y, of in measures:
        by_k, by_workers = [], []
        for model, rows in parts.items():
            first = rows[0]["workers"]
            named = {(row["way"], row["workers"]): row for row in rows}
            some = [(_short(k), named[k, first]) for k in ks if (k, first) in named]
            by_k.append(bars(model, some, of))
            more = [
                (f"{_short(way)}, {n}", row)
                for way in swept
                for (name, n), row in named.items()
                if name == way
            ]
            by_workers.append(bars(model, more, of))
        yield Panel(title=f"{y}, by k", x="", y=y, series=tuple(by_k))
        yield Panel(title=f"{y}, by workers", x="", y=y, series=tuple(by_workers))


def _short(way: str) -> str:
    """A way under a group of bars."""
    return way.removeprefix("average ").removesuffix(" over gloo")
