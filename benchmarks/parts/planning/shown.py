"""Predicted beside measured, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.parts.machine import machine_line
from benchmarks.parts.planning.again import AIM
from benchmarks.parts.planning.compare import PAPERS
from benchmarks.parts.spread import columns, framed

Json = Mapping[str, Any]


def table(result: Json) -> Table:
    """The errors of each configuration, then over all, then where a step's time goes; and how far
    predictions by two profiles are apart, if there are two."""
    rows, rounds = result["rows"], result["rounds"]
    again = list(_again(result["again"])) if result["again"] else []
    if not rows:
        kept = f"{len(result['profiles'])} profiles, and nothing run"
        return framed(f"{kept}, {machine_line(result['machine'])}", *result["warnings"], *again)
    papers = ", ".join(f"{name} {error}" for name, error in PAPERS.items())
    profiles = result["profiles"]
    profiling_s = sum(one["took_s"] for one in profiles)
    return framed(
        f"predicted beside measured, medians of {rounds} runs, {machine_line(result['machine'])}",
        *result["warnings"],
        *(["layers take the same CPU time in every pass: --steady"] if result["steady"] else []),
        f"{len(profiles)} profiles, which took {profiling_s:.0f} s of probes",
        _seconds(rows),
        "error: predicted / measured - 1, by the profile as it is: what a user gets who plans now",
        "and runs later, on a machine that meanwhile became faster or slower;",
        "at pace: the same, had the profile been made at each run's pace: what the model is worth;",
        "pace: time of the same computing beside the runs / beside the profile, above 1: slower;",
        "!: outside the prediction's 90% interval;",
        "spread: (most - least) / median of the runs;",
        "single: how far a run is from the median of the others, on average",
        _dollars(rows),
        _memory(rows),
        "run: the time in which functions lived; MiB: the most that a function of a stage held",
        _parts(rows),
        "of rank 0's step: computing; transfers while it does not; only waiting; neither",
        *_summary(result["summary"]),
        *_intervals(result["summary"]),
        *again,
        f"The papers report of their own predictions: {papers}.",
    )


def _seconds(rows: Sequence[Json]) -> Table:
    made = columns(
        ["configuration"],
        ["steps", "predicted", "measured ms", "error", "at pace", "spread", "single", "pace"],
    )
    for row in rows:
        step = row["step_s"]
        made.add_row(
            row["name"],
            str(row["steps"]),
            f"{1e3 * step['predicted']:.1f}",
            f"{1e3 * step['measured']:.1f}",
            _signed(step["error"]) + ("" if step.get("within", True) else "!"),
            _signed(step["at_pace"]["error"]),
            *_repeats(step),
            _range(row["pace"]),
        )
    return made


def _dollars(rows: Sequence[Json]) -> Table:
    made = columns(
        ["configuration"], ["predicted m$", "measured", "error", "at pace", "spread", "single"]
    )
    for row in rows:
        cost = row["cost_usd"]
        made.add_row(
            row["name"],
            f"{1e3 * cost['predicted']:.4f}",
            f"{1e3 * cost['measured']:.4f}",
            _signed(cost["error"]) + ("" if cost.get("within", True) else "!"),
            _signed(cost["at_pace"]["error"]),
            *_repeats(cost),
        )
    return made


def _memory(rows: Sequence[Json]) -> Table:
    made = columns(
        ["configuration"], ["run s", "error", "at pace", "predicted MiB", "measured", "error"]
    )
    for row in rows:
        run, memory = row["run_s"], row["memory_mib"]
        made.add_row(
            row["name"],
            f"{run['measured']:.2f}",
            _signed(run["error"]),
            _signed(run["at_pace"]["error"]),
            "/".join(f"{one:.0f}" for one in memory["predicted"]),
            "/".join(f"{one:.0f}" for one in memory["measured"]),
            _signed(memory["error"]),
        )
    return made


def _parts(rows: Sequence[Json]) -> Table:
    names = ["compute", "transfer", "sync", "overhead"]
    made = columns(["ms of a step, predicted | measured"], names)
    for row in rows:
        ours, theirs = row["breakdown"]["predicted"], row["breakdown"]["measured"]
        made.add_row(
            row["name"],
            *(f"{_ms(ours.get(name))} | {_ms(theirs.get(name))}" for name in names),
        )
    return made


def _summary(summary: Json) -> Iterator[str]:
    what = {"step_s": "step time", "cost_usd": "cost", "run_s": "time of the run"}
    for name, words in what.items():
        one = summary[name]
        single = "" if one["single"] is None else f"; a single run: {one['single']:.1%}"
        yield (
            f"{words}: mean error {one['mean']:.1%}, worst {one['worst']:.1%} "
            f"({one['worst_of']}); spread of the runs {one['spread']:.1%}{single}"
        )
        paced = one["at_pace"]
        yield (
            f"  at the runs' pace: mean error {paced['mean']:.1%}, worst {paced['worst']:.1%} "
            f"({paced['worst_of']})"
        )
    memory = summary["memory_mib"]
    yield (
        f"memory: mean error {memory['mean']:.1%}, from {_signed(memory['least'])} to "
        f"{_signed(memory['most'])} (furthest: {memory['worst_of']})"
    )
    yield f"pace of the machine: {_range(summary['pace'])} of what it was beside the profiles"


def _intervals(summary: Json) -> Iterator[str]:
    """How many measured figures lie within the 90% intervals of their predictions."""
    for name, words in (("step_s", "steps"), ("cost_usd", "costs")):
        of = summary[name]["within"]
        held, whole = (sum(one[what] for one in of.values()) for what in ("held", "of"))
        if whole:
            new = of["held_out"]
            yield (
                f"90% intervals hold {held} of {whole} {words}; of configurations held out when "
                f"the model's error was found, {new['held']} of {new['of']}"
            )


def _again(again: Json) -> Iterator[Table | str]:
    """Predictions by both profiles of each configuration, and how far they are apart over all."""
    made = columns(
        ["predicted by two profiles"],
        ["step ms", "again", "difference", "m$", "again", "difference"],
    )
    for row in again["rows"]:
        step, cost = row["step_s"], row["cost_usd"]
        figures = (step["predicted"], step["again"], cost["predicted"], cost["again"])
        step_ms, step_again_ms, m_usd, again_m_usd = (1e3 * figure for figure in figures)
        made.add_row(
            row["name"],
            *(f"{step_ms:.1f}", f"{step_again_ms:.1f}", _signed(step["difference"])),
            *(f"{m_usd:.4f}", f"{again_m_usd:.4f}", _signed(cost["difference"])),
        )
    yield made
    apart = again["apart_s"]
    when = "made nobody wrote down how long apart"
    if apart is not None:
        when = f"made {apart['least'] / 60:.0f} to {apart['most'] / 60:.0f} minutes apart"
    yield f"difference: by the second profile / by the first - 1; {when}"
    for name, words in (("step_s", "step time"), ("cost_usd", "cost")):
        one = again["summary"][name]
        of = one["difference"]
        said = f"{words}: difference {of['mean']:.1%} on average, worst {of['worst']:.1%}"
        yield f"{said} ({of['worst_of']})"
        if "met" in one:
            yield (
                f"  mean error {one['error']['mean']:.1%}, by the second profile "
                f"{one['error_again']['mean']:.1%}; aim: {AIM:.0%} or the difference, if that is "
                f"larger: {one['aim']:.1%}, {'met' if one['met'] else 'not met'}"
            )


def _repeats(one: Json) -> tuple[str, str]:
    single = one["single"]
    return f"{one['spread']:.1%}", "" if single is None else f"{single:.1%}"


def _range(pace: Json) -> str:
    return f"{pace['least']:.2f} to {pace['most']:.2f}"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}%"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.0f}"
