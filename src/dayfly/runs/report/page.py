"""Puts a run's report together: one file of HTML that needs nothing else, now or later."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dayfly.dataclass_json import dump
from dayfly.errors import RequestError
from dayfly.runs.events import Json
from dayfly.runs.phases import Phases, phases
from dayfly.runs.record_kinds import JobRunRecord, SimulationRecord
from dayfly.runs.report import comparison, curves, detail, lives, tables
from dayfly.runs.report.comparison import compared
from dayfly.runs.report.document import asset, document
from dayfly.runs.report.epoch_use import uses_in, with_use
from dayfly.runs.report.markup import folded, mb, script_json, shown, text, usd
from dayfly.runs.report.pipeline import CutRun
from dayfly.runs.report.reading import History, RunFiles
from dayfly.runs.report.spans import ROWS
from dayfly.runs.report.timeline import Timeline, timeline
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.runs.whole_files import replacing
from dayfly.specs.events import Begun, Measured, epochs_from_1

_SCRIPTS = (
    "errors.js",
    "data.js",
    "view.js",
    "draw.js",
    "stages.js",
    "timeline.js",
    "move.js",
    "charts.js",
    "page.js",
)
_NO_TRAFFIC = '<p class="note">None was reported.</p>'
_WORDS = {
    "done": "done",
    "failed": "failed",
    "stopped": "stopped; it can be resumed",
    "handing over": "handed over to another coordinator, which has not begun",
    "interrupted": "interrupted: its coordinator is gone; it can be resumed",
    "running": "running",
    "simulated": "simulated",
}


def write_report(
    directory: Path,
    output: Path | None = None,
    *,
    bill: Json | None = None,
    run: RunFiles | None = None,
) -> Path:
    """Write the page of the run in `directory`, and return its path.

    The same files make the same page.

    Args:
        output: the page's file; None: `report.html` in the directory.
        bill: in place of the run's own, such as one under another price list.
        run: the directory's files, if they were read already.

    Raises:
        RequestError: if the directory holds no run, or the page cannot be written.
    """
    page = render(run or RunFiles.read(directory), bill)
    file = directory / "report.html" if output is None else output
    try:
        with replacing(file) as beside:
            # Names of files need not be text.
            beside.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise RequestError(
            f"{file} cannot be written: {error.strerror}; name another file with --output"
        ) from error
    return file


def render(run: RunFiles, bill: Json | None = None) -> str:
    """The page of a run.

    Args:
        bill: in place of the run's own.
    """
    coordinator = lives.on_page(run.record, run.events.coordinator)
    times = timeline(coordinator, run.events.workers, running=run.running, of_script=run.of_script)
    lived = lives.lives(run.events.coordinator, times, run.status) if run.of_script else ()
    shown_detail = detail.choose(times)
    pipeline = CutRun.of(run)
    stages = None if pipeline is None else pipeline.stages
    of_rank_0 = run.events.workers.get(0, ())
    ended = run.history is not None and run.status not in ("running", "interrupted")
    history = run.history if ended and run.history is not None else History()
    billed = bill or (run.bill if ended else None)
    epochs = epochs_from_1(history.epochs) or curves.epochs(of_rank_0)
    losses = history.step_loss or curves.step_losses(of_rank_0)
    figures = [curves.loss_by_step(losses)] if losses else []
    figures += curves.by_epoch(epochs)
    if isinstance(run.record, SimulationRecord):
        figures = []  # nothing is learnt
    sums = tables.traffic(run.events)
    data = {
        "timeline": {**detail.tree(times, shown_detail, stages), "script": run.of_script},
        "figures": figures,
        "rows": ROWS,
    }
    status = text(run.status)
    took = with_use(epochs, uses_in(run.record, run.events))
    return document(
        "report.html",
        {
            "data": script_json(data),
            "error": _error(run),
            "tiles": _tiles(run, times, sums, epochs, billed, lived, pipeline),
            "detail_note": text(_detail_note(shown_detail, times, lives.note(run.record))),
            "timeline_tables": folded("What each worker did, in seconds", tables.work_table(times))
            + folded("All attempts", tables.attempts_table(times, of_script=run.of_script)),
            "lanes": "hidden" if run.of_script else "",
            "lanes_key": "" if run.of_script else ", and l for lanes",
            "planned": comparison.section(compared(run)),
            "pipeline": "" if pipeline is None else pipeline.section(),
            "curves": _lives_or_curves(run, lived, took, any_figure=bool(figures)),
            "bill": tables.bill(billed),
            "traffic": tables.traffic_table(sums) if sums else _NO_TRAFFIC,
            "facts": _facts(run, times, history, lived),
        },
        brand="dayfly report",
        title=run.record.run_id,
        lead=_lead(run, times),
        scripts=_SCRIPTS,
        beside_title=f' <span class="status" data-status="{status}">{status}</span>',
        beside_lead=asset("theme.html"),
    )


def _lead(run: RunFiles, times: Timeline) -> str:
    """One sentence: what it is, and as of when."""
    if isinstance(run.record, SimulationRecord):
        return lives.lead(run.record)
    began = _utc(times.origin_s) if times.origin_s else "not yet"
    if run.status == "running":
        return f"Running, as of {_utc(times.as_of_s)}. Began {began}."
    word = _WORDS.get(run.status, run.status)
    return f"{word[:1].upper()}{word[1:]}. Began {began}; last event {_utc(times.as_of_s)}."


def _error(run: RunFiles) -> str:
    error = run.record.error
    if not error:
        return ""
    return f'<div class="error" role="note"><h2>Why it failed</h2><pre>{text(error)}</pre></div>'


def _curves(epochs: Sequence[Measured], *, any_figure: bool) -> str:
    note = "" if any_figure else '<p class="note">No step has been reported yet.</p>'
    table = folded("All epochs", tables.epochs_table(epochs)) if epochs else ""
    return _section("Curves", f'{note}<div class="charts" id="charts"></div>{table}')


def _lives_or_curves(
    run: RunFiles,
    lived: Sequence[lives.ScriptGeneration],
    epochs: Sequence[Measured],
    *,
    any_figure: bool,
) -> str:
    """What came of the steps; a simulation learns nothing."""
    if isinstance(run.record, SimulationRecord):
        return ""
    curves_of = "" if run.of_script and not any_figure else _curves(epochs, any_figure=any_figure)
    return _lives(lived) + curves_of if run.of_script else curves_of


def _lives(lived: Sequence[lives.ScriptGeneration]) -> str:
    return _section("Lives", lives.table(lived))


def _section(title: str, content: str) -> str:
    name = f"{title.lower()}-title"
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def _tiles(
    run: RunFiles,
    times: Timeline,
    sums: Mapping[int, Mapping[str, int]],
    epochs: Sequence[Measured],
    bill: Json | None,
    lived: Sequence[lives.ScriptGeneration],
    pipeline: CutRun | None,
) -> str:
    """The figures that one looks for first."""
    tiles = lives.tiles(lived) if run.of_script else _of_training(run, times, epochs)
    # A life whose coordinator was killed is in the events only.
    total_s = max(run.record.wall_s, times.length_s)
    simulated = run.record if isinstance(run.record, SimulationRecord) else None
    workers = simulated.settings.workers if simulated is not None else len(times.bands)
    of_it = f"{workers} workers"
    if (spent := _spent(run)) is not None:
        named = {
            "start-up time": spent.start_s,
            "training time": spent.training_s,
            "end": spent.end_s,
        }
        of_it += ": " + ", ".join(f"{part} {_duration(part_s)}" for part, part_s in named.items())
    tiles.append(("total time", _duration(total_s), of_it))
    if simulated is not None:
        tiles += lives.simulation_tiles(simulated)
    elif not run.of_script:
        tiles.append(_deaths(times))
    if pipeline is not None:
        tiles += pipeline.tiles()
    if bill is not None:
        tiles.append(("cost", usd(bill["cost_usd"]), f"as on {bill.get('price_list')}"))
    up = sum(row["bytes_up"] for row in sums.values())
    down = sum(row["bytes_down"] for row in sums.values())
    if simulated is not None and simulated.result is not None:
        up, down = simulated.result.bytes_up, simulated.result.bytes_down
    if sums:
        tiles.append(("traffic", f"{mb(up)} MB", f"up; {mb(down)} MB down"))
    return "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(more)}</small></dd></div>"
        for name, value, more in tiles
    )


def _spent(run: RunFiles) -> Phases | None:
    """Where the seconds of a training went; None where that is not known.

    Earlier versions did not record when a run was asked for, and a script's steps are its own.
    """
    begun = any(isinstance(one, Begun) for one in run.events.coordinator)
    return phases(run.events) if begun and not run.of_script else None


def _of_training(
    run: RunFiles, times: Timeline, epochs: Sequence[Measured]
) -> list[tuple[str, str, str]]:
    result, last = run.record.result, epochs[-1] if epochs else {}
    tiles: list[tuple[str, str, str]] = []
    accuracy = last.get("val_accuracy")
    if accuracy is not None:
        tiles.append(("accuracy", f"{accuracy:.1%}", "validation"))
    if last.get("val_loss") is not None:
        tiles.append(("validation loss", shown(last["val_loss"]), "last epoch"))
    elif last.get("train_loss") is not None:
        tiles.append(("loss", shown(last["train_loss"]), "last epoch"))
    steps = 0 if result is None else result.steps
    if result is None or run.status in ("running", "interrupted"):
        numbers = [step.number for band in times.bands for step in band.steps]
        steps = max(numbers, default=-1) + 1
    step_s = None if result is None else result.step_s
    pace = f"{step_s * 1000:.1f} ms each" if step_s else "so far"
    tiles.append(("steps", shown(steps), pace))
    return tiles


def _deaths(times: Timeline) -> tuple[str, str, str]:
    lost = times.ends("lost")
    also = f", {lost} lost with the coordinator" if lost else ""
    back = len(times.rollbacks)
    also += f", {back} rollback{'s' * (back > 1)}" if back else ""
    return "deaths", shown(times.ends("death")), f"{times.ends('hand-over')} hand-overs{also}"


def _detail_note(chosen: detail.Detail, times: Timeline, first: str | None) -> str:
    """What is drawn, and what is left out or joined: not in silence. first: said before."""
    parts = [] if first is None else [first]
    parts += [
        f"{shown(chosen.total)} spans{_also(times)}; "
        "those of a kind less than 0.1 ms apart are one."
    ]
    if any(band.passes for band in times.bands):
        parts.append("Close enough, passes have numbers: f3 is micro-batch 3 forward, b3 backward.")
    if chosen.bin_s is not None:
        places = ", ".join(f"{start:.4g} to {end:.4g} s" for start, end in chosen.windows[:12])
        more = len(chosen.windows) - 12
        places += f" and {more} more" if more > 0 else ""
        parts.append(
            "Too many for a page: they are drawn one by one at the beginning, at the end and "
            f"around deaths ({places or 'nowhere'}; a span is cut where such a stretch ends), and "
            f"elsewhere as each kind's share of {chosen.bin_s:.3g} s."
        )
    parts.append("From afar, the height of a colour is the share of time that its kind took.")
    if times.pauses:
        parts.append("Times in which no function lived are left out, and marked.")
    return " ".join(parts)


def _also(times: Timeline) -> str:
    """What is counted beside spans."""
    if any(band.passes for band in times.bands):
        return ", steps and passes"
    return " and steps" if any(band.steps for band in times.bands) else ""


def _facts(
    run: RunFiles, times: Timeline, history: History, lived: Sequence[lives.ScriptGeneration]
) -> str:
    record = run.record
    what: dict[str, Any] = {"run_id": record.run_id, "status": run.status}
    if isinstance(record, ScriptRecord):
        what |= {**lives.facts(record, lived), "total_s": record.wall_s}
    else:
        what |= _facts_of_training(run, times, history)
    if run.events.cut_lines:
        what["event lines cut short, passed over"] = run.events.cut_lines
    parts = [
        tables.facts("Run", what),
        tables.facts("Settings", tables.given(dump(record.settings))),
    ]
    if isinstance(record, SimulationRecord):
        parts.append(tables.facts("Scenario", lives.scenario(record)))
    if record.made_with:
        parts.append(tables.facts("Made with", record.made_with))
    columns = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div class="columns">{columns}</div>{_checkpoints(times)}{_marks(times)}'


def _facts_of_training(run: RunFiles, times: Timeline, history: History) -> dict[str, Any]:
    record = run.record
    assert isinstance(record, JobRunRecord | SimulationRecord)
    what = {
        "samples": record.samples,
        **_round(record),
        "lives": record.generation - record.rollbacks - record.changes + 1,
        "total_s": record.wall_s,
        "deaths": times.ends("death"),
        "hand_overs": times.ends("hand-over"),
        "rollbacks": len(times.rollbacks),
        "changes": len(times.changes),
        "redone_steps": history.redone_steps,
        "checkpoints": len(times.checkpoints),
    }
    if (spent := _spent(run)) is not None:
        what |= {
            "startup_s": spent.start_s,
            "train_s": spent.training_s,
            "end_s": spent.end_s,
        }
    result = record.result
    if result is not None and result.predicted_step_s is not None:
        what |= {"step_s": result.step_s, "predicted_step_s": result.predicted_step_s}
    if result is not None and result.predicted_cost_usd is not None:
        what |= {"cost_usd": result.cost_usd, "predicted_cost_usd": result.predicted_cost_usd}
    return what


def _round(record: JobRunRecord | SimulationRecord) -> dict[str, str]:
    """Returns the size of a round's messages, if the record has it."""
    if not isinstance(record, JobRunRecord) or record.round_bytes is None:
        return {}
    return {"messages of a round (MB)": tables.of_round(dump(record.round_bytes))}


def _checkpoints(times: Timeline) -> str:
    if not times.checkpoints:
        return ""
    rows = [(f"{at_s:.2f}", step) for at_s, step in times.checkpoints]
    return folded("All checkpoints", tables.long_table("Checkpoints", ("at (s)", "step"), rows))


def _marks(times: Timeline) -> str:
    """Rollbacks and generations, in a table each."""
    found = ""
    if times.rollbacks:
        heads = ("at (s)", "from step", "to step", "done again", "cause")
        rows = [
            (f"{one.at:.2f}", one.from_step, one.to_step, one.redone_steps, one.cause)
            for one in times.rollbacks
        ]
        found += folded("All rollbacks", tables.long_table("Rollbacks of all workers", heads, rows))
    if len(times.generations) > 1:
        found += folded("All generations", tables.generations(times.generations))
    return found


def _utc(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
