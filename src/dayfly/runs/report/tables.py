"""The report's tables: bill, bytes, what workers did, and the run's facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dayfly.runs.events import Events
from dayfly.runs.report.generations import GenerationSeen
from dayfly.runs.report.markup import (
    NOTHING,
    Barred,
    folded,
    mb,
    pairs,
    shown,
    spoken,
    table,
    text,
    usd,
)
from dayfly.runs.report.spans import ROWS
from dayfly.runs.report.timeline import Timeline
from dayfly.specs.events import Measured

Json = Mapping[str, Any]

#: Rows of a table that may be long; the page says what it leaves out.
MOST_ROWS = 500
_COUNTERS = ("bytes_up", "bytes_down", "requests")
#: Counted in bytes, shown in MB.
_IN_MB = {"bytes_up": "up (MB)", "bytes_down": "down (MB)"}
_OF_ALL = ("function", "invocations", "billed_ms", "gb_s", "cost_usd")


def bill(tree: Json | None) -> str:
    """What the run cost, by kind and by function, as far as its `bill.json` says."""
    if tree is None:
        return '<p class="note">The bill is made when the run ends.</p>'
    kinds = tree.get("by_kind") or {
        name: value
        for name, value in tree.items()
        if name.endswith("_usd") and name != "cost_usd" and isinstance(value, int | float)
    }
    functions = tree.get("functions") or by_function(tree.get("invocations", ()))
    total = usd(tree["cost_usd"])
    parts = [
        f'<div class="two">{_kinds(kinds, total, tree)}<div>{_scalars(tree)}</div></div>',
        _records("By function", _paid(functions), first="function"),
    ]
    would = tree.get("coordinator_usd")
    own = [f"the coordinator would have cost {usd(would)} more, as a function"] if would else []
    if (measured_s := tree.get("profiling_s")) is not None:
        own.append(f"profiling: functions measured the job for this run for {shown(measured_s)} s")
    for note in (*own, *tree.get("overridden", ()), *tree.get("notes", ())):
        parts.append(f'<p class="note">{text(note)}</p>')
    invocations = tree.get("invocations", ())
    if invocations:
        parts.append(
            folded(
                "All invocations",
                _records("By invocation", invocations, first="function"),
            )
        )
    return "".join(parts)


def by_function(invocations: Iterable[Json]) -> list[dict[str, Any]]:
    """Sums over the invocations of each function, in order of their names' numbers."""
    rows: dict[str, dict[str, Any]] = {}
    for one in invocations:
        row = rows.setdefault(one["function"], dict.fromkeys(_OF_ALL, 0))
        row["function"] = one["function"]
        row["invocations"] += 1
        for name in _OF_ALL[2:]:
            row[name] += one[name]
    return sorted(rows.values(), key=lambda row: _number_last(row["function"]))


def traffic(events: Events) -> dict[int, dict[str, int]]:
    """bytes_up, bytes_down and requests by worker: each attempt's last word, summed."""
    sums: dict[int, dict[str, int]] = {}
    for (rank, _, _), counters in events.traffic.items():
        row = sums.setdefault(rank, dict.fromkeys(_COUNTERS, 0))
        for name in _COUNTERS:
            row[name] += counters[name]
    return dict(sorted(sums.items()))


def traffic_table(sums: Mapping[int, Mapping[str, int]]) -> str:
    """By worker, with a bar each."""
    whole = {name: sum(row[name] for row in sums.values()) for name in _COUNTERS}
    most = {name: max((row[name] for row in sums.values()), default=0) or 1 for name in _COUNTERS}
    rows = [
        (f"worker {rank}", *(Barred(_amount(n, row[n]), row[n] / most[n]) for n in _COUNTERS))
        for rank, row in sums.items()
    ]
    heads = ("worker", "up (MB)", "down (MB)", "requests")
    foot = ("all", *(_amount(name, count) for name, count in whole.items()))
    return long_table("Bytes and requests by worker", heads, rows, foot=foot)


def work_table(timeline: Timeline) -> str:
    """Seconds of each worker by what it did; the timeline in numbers."""
    present = dict.fromkeys(kind for band in timeline.bands for kind in band.spans)
    kinds = [kind for kind in {**ROWS, **present} if kind in present]
    rows = []
    for band in timeline.bands:
        seconds = band.seconds()
        cells = [f"{seconds.get(kind, 0.0):.2f}" for kind in kinds]
        rows.append((f"worker {band.worker}", *cells))
    heads = ("worker", *(f"{kind} (s)" for kind in kinds))
    return long_table("Seconds by what workers did; they may overlap", heads, rows)


def attempts_table(timeline: Timeline, *, of_script: bool = False) -> str:
    """When every function began, how long it lived and how it ended.

    Args:
        of_script: each worker has one attempt in each life of all, which count from 1.
    """
    rows = [
        (
            f"worker {band.worker}",
            *((str(one.number + 1),) if of_script else (one.life, one.number)),
            f"{one.start_s:.2f}",
            NOTHING if one.ready_s is None else f"{one.ready_s - one.start_s:.3f}",
            f"{one.end_s - one.start_s:.2f}",
            f"{one.end}: {one.why}" if one.why else one.end,
        )
        for band in timeline.bands
        for one in band.attempts
    ]
    numbers = ("life",) if of_script else ("life", "attempt")
    heads = ("worker", *numbers, "from (s)", "cold start (s)", "lasted (s)", "end")
    return long_table("Attempts", heads, rows)


def epochs_table(records: Sequence[Measured]) -> str:
    """What each epoch measured; without what none did."""
    known = (name for record in records for name in record if record[name] is not None)
    names = [name for name in dict.fromkeys(known) if name != "epoch"]
    rows = [(one["epoch"], *(_cell(name, one.get(name)) for name in names)) for one in records]
    return long_table("Epochs", ("epoch", *map(spoken, names)), rows)


def of_round(round_bytes: Json) -> str:
    """Bytes of a round's messages, as a text without what there is nothing of."""
    words = {name: value for name, value in round_bytes.items() if name != "phases" and value}
    return ", ".join(f"{spoken(name)} {mb(value)}" for name, value in words.items())


def given(tree: Json) -> Json:
    """Settings that say something: what was not asked for is left out."""
    return {name: value for name, value in tree.items() if value not in (None, [], {}, "")}


def facts(title: str, tree: Json) -> str:
    """A list of names and values."""
    return f"<h3>{title}</h3>" + pairs({spoken(name): value for name, value in tree.items()})


def _paid(rows: Sequence[Json]) -> list[Json]:
    """Without the kinds of dollars that no row has any of: most runs pay nothing for a store."""
    empty = {
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name.endswith("_usd") and name != "cost_usd" and not any(row.get(name) for row in rows)
    }
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _kinds(kinds: Mapping[str, float], total: str, tree: Json) -> str:
    paid = {name: value for name, value in kinds.items() if value}
    rows = [(spoken(name).removesuffix(" (USD)"), usd(value)) for name, value in paid.items()]
    caption = f"By kind, at the prices of {tree.get('price_list')}"
    return table(caption, ("kind", "USD"), rows, foot=("all", total))


def _scalars(tree: Json) -> str:
    single = {
        name: value
        for name, value in tree.items()
        if not isinstance(value, Mapping | list | tuple) and not name.endswith("_usd")
    }
    return pairs({spoken(name): value for name, value in single.items()})


def _records(caption: str, rows: Sequence[Json], *, first: str) -> str:
    """Any list of records, a column for each key."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name != first)
    cells = [[_cell(name, row.get(name)) for name in names] for row in rows]
    return long_table(caption, [_IN_MB.get(name, spoken(name)) for name in names], cells)


def _cell(name: str, value: Any) -> Any:
    if name.endswith("_usd") and isinstance(value, int | float):
        return usd(value)
    return mb(value) if name in _IN_MB and isinstance(value, int | float) else value


def long_table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, foot: Sequence[Any] = ()
) -> str:
    """A table of at most `MOST_ROWS` rows, which says so if there are more."""
    left_out = len(rows) - MOST_ROWS
    more = (
        f"; the first {MOST_ROWS} of {len(rows)}, the others are in its files"
        if left_out > 0
        else ""
    )
    return table(caption + more, heads, rows[:MOST_ROWS], foot=foot)


def generations(found: Sequence[GenerationSeen]) -> str:
    """A row for each generation, with what it cost to come to it."""
    heads = ("at (s)", "from step", "workers", "why", "stalled (s)", "two at once (function s)")
    rows = [
        (
            f"{one.at:.2f}",
            one.first_step,
            one.workers,
            one.cause,
            NOTHING if one.stall_s is None else f"{one.stall_s:.2f}",
            f"{one.both_s:.1f}",
        )
        for one in found
    ]
    return long_table("Generations, and what each change cost", heads, rows)


def _amount(counter: str, count: int) -> str:
    return shown(count) if counter == "requests" else mb(count)


def _number_last(function: str) -> tuple[str, int]:
    name, _, number = function.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (function, -1)
