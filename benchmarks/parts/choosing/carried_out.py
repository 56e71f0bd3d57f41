"""`dayfly bench planning --choose --run`: what was chosen, really run.

profile   each job, once
choose    dayfly and the papers' methods (`on_jobs`)
round 0   every plan, from the first to the last; one that two methods chose once
round 1   from the last to the first
...
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.parts.choosing.on_jobs import DEADLINE, EXACT, Chosen, chosen_plans
from benchmarks.parts.machine import Stolen, machine, one_thread
from benchmarks.parts.planning.channels import channels
from benchmarks.parts.planning.configurations import WAYS
from benchmarks.parts.planning.forecast import kept, profiled
from benchmarks.parts.planning.jobs import WORKS, write_data
from benchmarks.parts.planning.measure import Taken, run_once
from benchmarks.parts.planning.pace import paces
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import say, spread
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session

Json = dict[str, Any]
#: More samples than those of `dayfly bench planning`, so that several functions are worth it.
JOBS = {
    "cnn": replace(WORKS["cnn"], samples=480, batch_size=96),
    "gpt": replace(WORKS["gpt"], samples=320, batch_size=64),
}
#: Epochs, so that a run is more than its start.
EPOCHS = {"cnn": 3, "gpt": 5}
#: Memory of functions to choose among, MiB.
_SIZES = (663, 884, 1769)


def run(names: Sequence[str], *, rounds: int, keep: Path | None, quick: bool) -> Json:
    """Choose and run; the result, see `benchmarks/README.md`. names: of `JOBS`. keep: directory
    of profiles. Raises as `benchmarks.planning.run`."""
    began, on_what, stolen = time.monotonic(), machine(), Stolen()
    there = {name: kept(_profile(name), keep) for name in names}
    rows = []
    with (
        Session.open() as session,
        channels(["file"]) as urls,
        paces(names) as probes,
        one_thread(),
    ):
        scratch = scratch_of(session)
        for name in names:
            known = there[name] or profiled(
                _profile(name),
                JOBS[name],
                {"channel": urls["file"], **WAYS["lambda"]},
                _SIZES,
                scratch,
                probes[name],
                keep,
                quick=quick,
            )
            rows += _of_job(name, known.profile, rounds, scratch)
    return {
        "choose": True,
        "run": True,
        "machine": {**on_what, "stolen": stolen.share()},
        "quick": quick,
        "rounds": rounds,
        "wall_s": time.monotonic() - began,
        "rows": rows,
    }


def _profile(name: str) -> str:
    return f"{name}-{JOBS[name].batch_size}-file-lambda"


def _of_job(name: str, profile: Any, rounds: int, scratch: Path) -> list[Json]:
    work = JOBS[name]
    chosen = []
    for one in chosen_plans(profile, batch_size=work.batch_size, epochs=EPOCHS[name]):
        say(f"{name}, {one.question}: {one.method} chose {one.words or 'nothing'}")
        chosen.append(one)
    plans: list[Chosen] = []
    for one in chosen:
        if one.plan is not None and all(_key(one) != _key(other) for other in plans):
            plans.append(one)
    job = work.job(write_data(work, scratch), batch_size=work.batch_size)
    taken: dict[str, list[Taken | str]] = {_key(one): [] for one in plans}
    for number in range(rounds):
        for one in plans if number % 2 == 0 else reversed(plans):
            try:
                found: Taken | str = run_once(
                    job, one.words, scratch / "run", stages=one.stages, plan=one.plan
                )
                said = f"{found.run_s:.1f} s, ${found.cost_usd:.6f}"
            except RunFailed as failure:
                found = said = str(failure)
            taken[_key(one)].append(found)
            say(f"{name}, round {number + 1} of {rounds}: {one.words}: {said}")
    best = {
        one.question: [ran for ran in taken[_key(one)] if not isinstance(ran, str)]
        for one in chosen
        if one.method == EXACT
    }
    return [row(name, one, taken.get(_key(one), []), best[one.question]) for one in chosen]


def _key(one: Chosen) -> str:
    """Of what is run."""
    return "" if one.plan is None else repr((one.plan.settings, one.plan.job))


def row(name: str, one: Chosen, runs: Sequence[Taken | str], best: Sequence[Taken]) -> Json:
    """An answer, and what running it took; pure. runs: a text says how one failed. best: those of
    dayfly's answer, in the same rounds."""
    ran = [each for each in runs if not isinstance(each, str)]
    failed = next((each for each in runs if isinstance(each, str)), None)
    row: Json = {
        "job": name,
        "question": one.question,
        "limit": one.limit if isinstance(one.limit, float) else list(one.limit),
        "method": one.method,
        "plan": one.words or None,
        "settings": None if one.plan is None else dict(one.plan.settings),
        "stopped": one.stopped,
        "failed": failed,
        "predicted": None,
        "measured": None,
        "ratio": None,
        "late": None,
    }
    if one.prediction is not None:
        said = asdict(one.prediction)
        row["predicted"] = {"run_s": said["run_s"], "cost_usd": said["cost_usd"]}
    if not ran or failed is not None:
        return row
    row["measured"] = {
        **spread("run_s", [each.run_s for each in ran]),
        **spread("cost_usd", [each.cost_usd for each in ran]),
    }
    if isinstance(one.limit, float):
        row["late"] = median(each.run_s for each in ran) / one.limit - 1
    if len(best) == len(ran):
        pairs = list(zip(ran, best, strict=True))
        row["ratio"] = {
            **spread("run_s", [a.run_s / b.run_s for a, b in pairs]),
            **spread("cost_usd", [a.cost_usd / b.cost_usd for a, b in pairs]),
            **spread("value", [_value(one, a) / _value(one, b) for a, b in pairs]),
        }
    return row


def _value(one: Chosen, taken: Taken) -> float:
    """What was to be least."""
    if one.question == DEADLINE:
        return taken.cost_usd
    assert not isinstance(one.limit, float)
    return one.limit[0] * taken.cost_usd + one.limit[1] * taken.run_s
