"""What was measured of pipelines, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from benchmarks.parts.pipelines.cases import BASELINES
from benchmarks.parts.pipelines.scale import MOST_CORES, SERVERS
from benchmarks.parts.spread import columns, framed, shown

Json = Mapping[str, Any]


def table(result: Json) -> Table:
    """The forms of each model, then how each pipeline uses its time."""
    on_what = result["machine"]
    parts: list[Table | str] = []
    for _, of_model in groupby(result["rows"], lambda row: row["model"]):
        parts += _model(list(of_model))
    return framed(
        f"stages beside whole models, median of {result['rounds']} rounds, on {on_what['cores']} "
        f"cores of {on_what['cpu']}\ntorch {on_what['torch']}, Python {on_what['python']}, load "
        f"before: {on_what['load']}\nLambda's caps: of m MiB, f m/1769 cores, f 70 MB/s each way, "
        f"40/f ms; f so that all functions together have {MOST_CORES} cores, 1 at most",
        *parts,
        "form: workers, or stages x replicas, with their memory; peak: most memory of a function",
        "s: of a step, here; ms: of a sample, here; times at Lambda are f of both",
        f"$: of a million samples, at Lambda: GB-s, and a server ({SERVERS[-1]};",
        f"with c5: {SERVERS[0]}, as FuncPipe has it)",
        "S3: dollars of requests beside that, which FuncPipe does not count",
        "speed, cost: of this form over the baseline's; speed with least and most of the rounds",
        "path: the step's schedules in virtual time, with passes as long as measured",
        "bound: the larger of computing alone and transfers alone, as in the path",
    )


def _model(rows: Sequence[Json]) -> Iterator[Table | str]:
    first = rows[0]
    yield (
        f"\n{first['model']}, {first['kind']}; batch {first['batch_size']}, f = "
        f"{first['factor']:.3g}"
    )
    forms = columns(["form"], ["peak", "cores", "s", "least to most", "ms", "$", "with c5", "S3"])
    for row in rows:
        dearer = row["usd_with"][SERVERS[0]]
        forms.add_row(
            row["form"],
            f"{max(row['peaks_mib']):.0f}",
            f"{sum(row['cores']):.2f}",
            *shown(row, "step_s"),
            f"{row['sample_ms']:.3g}",
            f"{row['usd_per_million_samples']:.3g}",
            f"{dearer:.3g}" if dearer != row["usd_per_million_samples"] else "",
            f"{row['requests_usd_per_million_samples']:.3g}",
        )
    yield forms
    for row in rows:
        yield f" {row['form']}: {row['what']}"
    beside = columns(["pipeline", "beside"], ["speed", "least to most", "cost"])
    for row in rows:
        for other, one in row["against"].items() if row["form"] not in BASELINES else ():
            speed, spread = shown(one, "speed", 2)
            beside.add_row(row["form"], other, f"{speed} x", spread, f"{100 * one['cost']:.0f} %")
    yield beside
    used = columns(["pipeline"], ["step/path", "least to most", "step/bound", "least to most"])
    pipelines = [row for row in rows if row["efficiency"] is not None]
    for row in pipelines:
        found = row["efficiency"]
        over_path = shown(found, "step_over_critical_path", 2)
        used.add_row(row["form"], *over_path, *shown(found, "step_over_bound", 2))
    yield used
    for row in pipelines:
        stages = row["efficiency"]["stages"]
        forward, backward = (
            "/".join(f"{one[kind]:.3g}" for one in stages) for kind in ("forward_ms", "backward_ms")
        )
        yield f" {row['form']}: ms of a forward pass {forward}, backward {backward}"
