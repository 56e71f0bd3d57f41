"""`dayfly runs`: lists runs, shows one, compares some of them, or removes them."""

from __future__ import annotations

import json
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table

from dayfly.cli.outcome import narrow_table, say
from dayfly.dataclass_json import dump
from dayfly.errors import RequestError
from dayfly.life.leadership import HEAD
from dayfly.life.reports import plain
from dayfly.runs.directory import RECORD
from dayfly.runs.record_kinds import as_any, read_any
from dayfly.runs.removing import removable, remove_run
from dayfly.runs.report.epoch_use import EpochUse, history_of
from dayfly.runs.report.markup import shown, spoken, usd
from dayfly.runs.report.reading import read_history
from dayfly.runs.report.side_by_side import compared, differing, measured, write_page
from dayfly.runs.steering import KeptRun, directory_of, to_read
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import ObjectDamaged, StoreError

#: What a run's result, or its last epoch, says of it.
_FIGURES = ("epochs", "steps", "val_loss", "val_accuracy", "cost_usd")
#: Columns by which runs can be sorted, beside metrics.
_COLUMNS = ("began_at", "run_id", "status", *_FIGURES)
#: States of a run of which nothing can be read.
_UNREAD = ("damaged", "unreachable")
#: A row whose run says nothing of itself.
_EMPTY: dict[str, Any] = {
    "run_id": None,
    "status": None,
    "error": None,
    **dict.fromkeys(_FIGURES),
    "epochs": 0,
    "steps": 0,
    "began_at": 0.0,
    "directory": None,
}


def rows_of(place: str) -> list[dict[str, Any]]:
    """Returns what is known of the runs right below a place, one dict a run.

    Args:
        place: a directory, or a store's URL.

    Raises:
        RequestError: it cannot be read.
    """
    if "://" in place:
        store = open_store(place.rstrip("/"))
        return [_row(f"{store.url}/{folder}") for folder in store.folders()]
    directory = Path(place)
    try:
        there = sorted(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise RequestError(f"{directory} cannot be read: {error.strerror}") from error
    return [_row(str(one.absolute())) for one in there if (one / RECORD).is_file()]


def _row(place: str) -> dict[str, Any]:
    """What is known of a run; one whose coordinator was killed is "lost".

    What cannot be read is "damaged", and a run whose store does not answer "unreachable"; `error`
    says why, also where figures alone are missing.
    """
    row = {**_EMPTY, "run_id": place.rpartition("/")[2], "directory": place}
    try:
        kept = KeptRun.named(place) if "://" in place else KeptRun.in_directory(Path(place))
        if kept.store.stat(RECORD) is None and kept.store.stat(HEAD) is not None:
            return row | _unbegun(kept.runner)
        record = as_any(kept.record(), f"{place}/{RECORD}")
        row |= {name: getattr(record, name) for name in ("run_id", "status", "error", "began_at")}
        figures = {} if record.result is None else dump(record.result)
        if record.status == "running":
            row["status"] = "running" if kept.runner is not None else "lost"
            try:
                figures |= _so_far(kept)
            except (RequestError, StoreError) as error:
                row["error"] = str(error)
    except (RequestError, ObjectDamaged) as error:
        return row | {"status": "damaged", "error": str(error)}
    except StoreError as error:
        return row | {"status": "unreachable", "error": str(error)}
    return row | {name: figures[name] for name in _FIGURES if name in figures}


def _so_far(kept: KeptRun) -> dict[str, Any]:
    """Figures of the last completed epoch of a run without a result."""
    last = kept.last_epoch()
    return {} if last is None else {**last.record, "epochs": last.epoch, "steps": None}


def _unbegun(runner: str | None) -> dict[str, Any]:
    """Of a place in a store that a command took for a run, and has not written it yet."""
    lost = "the command that was to begin it was killed before it had: remove what it left"
    status, error = ("lost", lost) if runner is None else ("starting", None)
    return {"status": status, "error": error}


def selected(
    place: str, status: str | None, name: str | None, metrics: Sequence[str], sort: str
) -> list[dict[str, Any]]:
    """The runs below a place, some of them, in order.

    Args:
        place: a directory, or a store's URL.
        status: that they have; None: any.
        name: pattern of their ids; None: any.
        metrics: whose values of the last epoch are added.
        sort: a column or a metric, least first; with a minus before it, greatest first. Runs
            without a value are last.

    Raises:
        RequestError: the place cannot be read, or there is no such column.
    """
    column, reverse = sort.removeprefix("-"), sort.startswith("-")
    if column not in (*_COLUMNS, *metrics):
        known = ", ".join(_COLUMNS)
        raise RequestError(f"--sort {sort}: give one of {known}, or a metric that --metric names")
    rows = [
        row | _metrics(row, metrics)
        for row in rows_of(place)
        if (status is None or row["status"] == status)
        and (name is None or fnmatchcase(row["run_id"], name))
    ]
    known_rows = [row for row in rows if row[column] is not None]
    known_rows.sort(key=lambda row: row[column], reverse=reverse)
    return [*known_rows, *(row for row in rows if row[column] is None)]


def _metrics(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns these metrics of a run's last epoch, by name.

    They are None for a run in a store and for one without an epoch. If the history cannot be read,
    `error` says why.
    """
    place = row["directory"]
    if not names or "://" in place or row["status"] in _UNREAD:
        return dict.fromkeys(names)
    try:
        history = read_history(Path(place))
    except RequestError as error:
        return {**dict.fromkeys(names), "error": str(error)}
    last: Mapping[str, Any] = history.epochs[-1] if history and history.epochs else {}
    return {name: last.get(name) for name in names}


def print_rows(
    rows: Sequence[Mapping[str, Any]], place: str, metrics: Sequence[str], *, as_json: bool
) -> None:
    """Prints runs as a table, or as a list in JSON."""
    if as_json:
        say(json.dumps(rows))
        return
    console = Console()
    if not rows:
        full = place if "://" in place else str(Path(place).absolute())
        console.print(f"no runs in {full}", highlight=False, soft_wrap=True)
        return
    # An id is to be copied, so it is never shortened.
    name = Column("run", no_wrap=True, min_width=max(len(row["run_id"]) for row in rows))
    table = Table(name, "status", "epochs", "val_loss", *metrics, "USD", "began", box=None)
    for row in rows:
        table.add_row(
            row["run_id"],
            row["status"],
            str(row["epochs"]),
            *(_number(row[one], 4) for one in ("val_loss", *metrics)),
            _number(row["cost_usd"], 6),
            _began(row["began_at"]),
        )
    console.print(table)
    for row in rows:
        if row["error"] is not None and row["status"] != "failed":
            console.print(f"{row['run_id']}: {row['error']}", highlight=False, soft_wrap=True)


def _began(at_s: float) -> str:
    """For people; empty of a run that does not say."""
    return time.strftime("%m-%d %H:%M", time.localtime(at_s)) if at_s else ""


def _number(value: Any, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def show(name: str, *, as_json: bool) -> None:
    """Prints a run's history, a row an epoch.

    Args:
        name: of the run.
        as_json: print an object in place of the table.

    Raises:
        RequestError: there is no such run, or its files are damaged.
    """
    directory = to_read(name)
    record, history = read_any(directory), history_of(directory)
    result = {} if record.result is None else dump(record.result)
    if as_json:
        known = {"run_id": record.run_id, "directory": str(directory), **result}
        say(json.dumps(plain({**known, "status": record.status, "history": history})))
        return
    print(f"{record.run_id}  {record.status}  {directory}")
    if not history:
        print("no epoch is over yet")
        return
    took = [one.name for one in fields(EpochUse)]
    names = list(dict.fromkeys(name for one in history for name in one if name not in took))
    for some in (names, ["epoch", *took]):  # two, as a terminal has 80 columns
        named = [one for one in some if any(row.get(one) is not None for row in history)]
        table = narrow_table()
        for one in named:
            table.add_column(spoken(one).replace(" ", "\n"), justify="right", no_wrap=True)
        for row in history:
            table.add_row(*(cell(one, row.get(one)) for one in named))
        Console().print(table)


def cell(name: str, value: Any) -> str:
    """A value of a history for people."""
    dollars = name.endswith("_usd") and isinstance(value, float)
    return usd(value) if dollars else shown(value)


def compare(
    names: Sequence[str], output: Path | None, *, browse: bool = False, as_json: bool = False
) -> None:
    """Prints runs side by side, and writes their page.

    Args:
        names: of the runs.
        output: file of the page; None: none is written.
        browse: show the page in a browser.
        as_json: print an object in place of tables.

    Raises:
        RequestError: there is no such run, or the page cannot be written or shown.
    """
    if browse and output is None:
        raise RequestError("--open shows the page: give --output FILE.html, too")
    runs = compared([to_read(name) for name in names])
    page = None if output is None else write_page(runs, output)
    differ = differing(runs)
    if as_json:
        whole = {"runs": [run.json() for run in runs], "differing": differ}
        say(json.dumps(whole | {"page": None if page is None else str(page)}))
    else:
        console, width = Console(), max(len(run.run_id) for run in runs)
        heads = [Column(run.run_id, justify="right", overflow="fold") for run in runs]
        results = narrow_table()
        for head in (Column("", min_width=min(width, 16)), *heads):
            results.add_column(head.header, justify=head.justify, overflow=head.overflow)
        for name in measured(runs):
            results.add_row(spoken(name), *(shown(run.results.get(name)) for run in runs))
        for name, values in differ.items():
            results.add_row(f"setting {spoken(name)}", *map(shown, values))
        console.print(results)
        if page is not None:
            print(f"page: {page}")
    if page is not None and browse and not webbrowser.open(page.resolve().as_uri()):
        raise RequestError(f"--open: no browser was found; open {page} yourself")


def remove(names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Removes runs, after asking; all are checked before the first is removed.

    Args:
        names: of the runs.
        yes: do not ask.
        as_json: print an object when they are removed.

    Raises:
        RequestError: a run is not there, goes on, or is not provably dayfly's; or nobody can be
            asked.
    """
    places: list[str | Path] = [name if "://" in name else directory_of(name) for name in names]
    found = {place: removable(place) for place in places}
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise RequestError("nobody can be asked here: add --yes to remove the runs")
        for place, run in found.items():
            print(f"{run.run_id}  {place}")
        if not typer.confirm(f"remove {len(found)} run{'s' * (len(found) > 1)} for good?"):
            raise RequestError("nothing was removed")
    kept = {str(place): remove_run(place) for place in found}
    if as_json:
        removed = [run.run_id for run in found.values()]
        originals = {str(place): run.original for place, run in found.items() if run.original}
        say(json.dumps({"removed": removed, "kept": kept, "originals": originals}))
        return
    for place, run in found.items():
        left = kept[str(place)]
        what = f"the copy of {run.run_id} in {place}" if run.original else run.run_id
        stays = f"; {place} stays, with {', '.join(left)}" if left else ""
        print(f"removed {what}{stays}")
        if run.original:
            print(f"the run itself stays: dayfly runs rm {run.original}")
