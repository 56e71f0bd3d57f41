"""`dayfly.simulate`: a plan's whole run in virtual time, with a directory as of any run.

run.json                    kind "simulation", scenario, results
events/coordinator.jsonl    functions invoked and ended, checkpoints, rollbacks
events/worker-0.jsonl       what rank 0 would have told; of many workers, of some of them
events/others.jsonl         what the others moved
history.json, bill.json     as of any run

The same plan, scenario and seed make the same bytes: nothing here looks at a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Unpack

from dayfly.batches import Batches
from dayfly.catalogue.metering import Bill, StoreTraffic, bill
from dayfly.errors import RequestError
from dayfly.life import deaths
from dayfly.planning.configuration import Configuration
from dayfly.planning.lives import pace_of, told_by
from dayfly.planning.plan import Plan
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.simulation import simulate as in_virtual_time
from dayfly.planning.simulation.course import course
from dayfly.planning.simulation.fleet import Policy
from dayfly.planning.simulation.outcome import Simulated
from dayfly.planning.simulation.scenario import Chance, Scenario
from dayfly.planning.timing import together
from dayfly.runs.api import opened
from dayfly.runs.directory import LOCK, fresh_directory
from dayfly.runs.functions import catalogue, price_list
from dayfly.runs.keywords import ScenarioKeywords, check_keywords, shows
from dayfly.runs.log_budget import replays
from dayfly.runs.plans import JobSpec
from dayfly.runs.record_kinds import SimulationRecord, read_any
from dayfly.runs.result import Result
from dayfly.runs.settings import Settings
from dayfly.runs.simulation_files import (
    SimulationRequest,
    memory_of,
    moved_by,
    used_by,
    write_files,
)
from dayfly.specs import pace

#: Workers of which a page shows every step, at most, and however many steps there are; and steps
#: of all of them together, at most.
MOST_SHOWN = 48
_LEAST_SHOWN = 8
_MOST_STEPS = 200_000
#: As life has it.
POLICY = Policy(
    spare_s=pace.SPARE_S,
    late_share=pace.LATE_SHARE,
    late_times=pace.LATE_TIMES,
    most_share=pace.MOST_SHARE,
    without_progress_s=deaths.PATIENCE.without_progress_s,
    deaths_of_one_cause=deaths.DEATHS_OF_ONE_CAUSE,
    pause_s=deaths.PATIENCE.pause_s,
)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What came of a simulation.

    Attributes:
        directory: its files.
        request: the plan, and what was asked for beside it.
        result: as of a run; its status is "simulated", or "failed" if the run would fail.
        outcome: hand-overs, deaths, steps redone, in virtual time.
        bill: as of a run.
    """

    directory: Path
    request: SimulationRequest
    result: Result
    outcome: Simulated
    bill: Bill

    @property
    def more(self) -> dict[str, Any]:
        """What a simulation says beside a run's results."""
        return {
            "seed": self.request.scenario.seed,
            "scenario": self.request.scenario.words(),
            "hand_overs": self.outcome.hand_overs,
            "redone_steps": self.outcome.redone_steps,
            "rollbacks": self.outcome.rollbacks,
            "checkpoints": self.outcome.checkpoints,
            "worst_worker": self.outcome.worst.get("rank"),
            "by_kind": dict(self.bill.by_kind),
        }


def simulated_run(request: SimulationRequest, directory: Path | None = None) -> SimulatedRun:
    """Simulate a run and write its directory.

    Args:
        directory: default `runs/<run id>`; one that holds this very simulation is written anew.

    Raises:
        RequestError: for what cannot be simulated, and for a directory with something else in it.
    """
    asked, scenario = request.configuration, request.scenario
    shown = watched(asked, scenario, request.plan.profile.samples)
    facts = request.facts()
    planned = course(
        request.plan.profile,
        asked,
        scenario,
        replays=replays(request.settings, request.settings.channel or "file:///"),
        # Where lives are paid for beforehand, successors start once lifetimes have ended.
        hears_s=_pace(request, asked).look_s if request.settings.max_cost_usd is None else None,
        store_bytes_per_s=None if facts is None else facts.bytes_per_s,
    )
    outcome = in_virtual_time.simulate(planned, scenario, POLICY, shown)
    moved = _all_moved(request, asked, outcome)
    billed = _bill(request, asked, outcome, moved)
    result = _result(request, outcome, billed, moved)
    place = (directory or Path("runs") / request.run_id).absolute()
    again = _is_this(place, request.run_id)
    with nullcontext() if again else fresh_directory(place):
        write_files(place, request, asked, outcome, result, billed, moved, shown)
        (place / LOCK).unlink(missing_ok=True)  # nobody runs what is simulated
    return SimulatedRun(place, request, result, outcome, billed)


def watched(asked: Configuration, scenario: Scenario, samples: int) -> tuple[int, ...]:
    """The workers whose steps are told: all, or of many evenly chosen ones, some of those that are
    slow, and those that die first.

    Args:
        samples: of the data; of a run of many steps, fewer are told.
    """
    steps = Batches(samples, asked.batch_size).steps * asked.epochs
    most = max(_LEAST_SHOWN, min(MOST_SHOWN, _MOST_STEPS // steps))
    if asked.workers <= most:
        return tuple(range(asked.workers))
    chance = Chance(scenario, asked.workers)
    chosen = dict.fromkeys(int(rank) for rank in chance.stragglers[: most // 8])
    if scenario.deaths_per_hour:
        everybody = chance.everybody
        lives = chance.life_s(everybody, everybody * 0)
        chosen |= dict.fromkeys(int(rank) for rank in lives.argsort(kind="stable")[: most // 4])
    left = most - len(chosen)
    evenly = (number * asked.workers // left for number in range(left))
    for rank in (*evenly, *range(asked.workers)):
        if len(chosen) < most:
            chosen.setdefault(rank)
    return tuple(sorted(chosen))


def _pace(request: SimulationRequest, asked: Configuration) -> pace.Pace:
    """Of the workers' reports and looks."""
    return pace_of(
        ChannelModel.of(request.plan.profile),
        asked.memory_mib,
        catalogue(request.settings).platform(price_list(request.settings)),
        request.facts(),
        asked.workers,
        asked.gpu_share,
    )


def _all_moved(
    request: SimulationRequest, asked: Configuration, outcome: Simulated
) -> list[StoreTraffic]:
    """Of each worker: its steps' messages, and its reports."""
    profile = request.plan.profile
    steps = Batches(profile.samples, asked.batch_size).steps
    lives = Counter(one.rank for one in outcome.attempts)
    of_reports = _pace(request, asked)
    told = partial(told_by, asked.epochs, of_reports, outcome.run_s)
    return [
        together((moved_by(row), told(lives[rank], steps, rank)))
        for rank, row in enumerate(outcome.moved.tolist())
    ]


def _bill(
    request: SimulationRequest,
    asked: Configuration,
    outcome: Simulated,
    moved: Sequence[StoreTraffic],
) -> Bill:
    used = [used_by(one, memory_of(asked, one.rank), request.settings) for one in outcome.attempts]
    settings = request.settings
    facts = request.facts()
    priced = facts if facts is not None and facts.priced else None
    by_name = {f"worker-{rank}": one for rank, one in enumerate(moved)}
    return bill(used, catalogue(settings).platform(price_list(settings)), priced, by_name)


def _result(
    request: SimulationRequest, outcome: Simulated, billed: Bill, moved: Sequence[StoreTraffic]
) -> Result:
    totals = together(moved)
    predicted = request.plan.prediction
    return Result(
        run_id=request.run_id,
        status="simulated" if outcome.status == "done" else outcome.status,
        error=outcome.error,
        epochs=len(outcome.epochs),
        steps=outcome.steps,
        workers=request.settings.workers,
        restarts=outcome.deaths,
        startup_s=None if outcome.stepped is None else outcome.stepped[0],
        train_s=None if outcome.stepped is None else outcome.stepped[1] - outcome.stepped[0],
        total_s=outcome.run_s,
        wall_s=outcome.run_s,
        step_s=median(outcome.step_s) if outcome.step_s else None,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        price_list=billed.price_list,
        bytes_up=totals.bytes_up,
        bytes_down=totals.bytes_down,
        requests=totals.requests,
        predicted_step_s=None if predicted is None else predicted.step_s,
        predicted_cost_usd=None if predicted is None else predicted.cost_usd,
    )


def _is_this(place: Path, run_id: str) -> bool:
    """Whether this very simulation was written there before."""
    try:
        record = read_any(place)
    except RequestError:
        return False
    return isinstance(record, SimulationRecord) and record.run_id == run_id


#: How much slower a straggler computes, unless said otherwise.
USUAL_STRAGGLER = 2.0


@shows(ScenarioKeywords)
def simulate(
    plan: Plan | str | Path,
    *,
    workers: int | None = None,
    replicas: int | tuple[int, ...] | None = None,
    lifetime_s: float | None = None,
    checkpoint_every_s: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    price_store: str | None = None,
    catalogue: str | Path | None = None,
    run_dir: str | Path | None = None,
    **scenario: Unpack[ScenarioKeywords],
) -> SimulatedRun:
    """Simulates a plan's whole run in virtual time: deaths, hand-overs, slow stores and workers.

    Args:
        plan: what `dayfly.predict` returned, or the file of a plan.
        workers: functions at once, in place of the plan's.
        replicas: functions of a stage, one number for all or each stage's, in place of the plan's.
        lifetime_s: a function's life, in place of the plan's.
        checkpoint_every_s: longest time between run checkpoints, in place of the plan's.
        epochs: passes over the data, in place of the plan's.
        batch_size: samples of a step, in place of the plan's.
        price_store: store of the catalogue whose cap and prices count; None: the profile's channel,
            if it is one of the catalogue.
        catalogue: directory of your own rows.
        run_dir: the simulated run's files, for `dayfly report`; None: `runs/<run id>`.
        scenario: what happens to the run, such as `seed` and `deaths_per_hour`; see
            `dayfly.planning.simulation.scenario.Scenario`. None: as if it was not given.
            Stragglers are twice as slow unless `straggler_factor` is given.

    Returns:
        The run: `result` has seconds and dollars, `outcome` what happened, `directory` the files.
        The same plan, scenario and seed make the same files.

    Raises:
        RequestError: the plan or the scenario cannot be, or the directory holds something else.

    Examples:
        >>> run = dayfly.simulate(plan, workers=4, deaths_per_hour=10, run_dir="simulated")
        >>> run.result.status, run.result.workers
        ('simulated', 4)
    """
    check_keywords(scenario, Scenario, beside=simulate)
    given: dict[str, Any] = {key: value for key, value in scenario.items() if value is not None}
    if given.get("stragglers"):
        given = {"straggler_factor": USUAL_STRAGGLER, **given}
    whole, place = (plan, "the plan") if isinstance(plan, Plan) else opened(plan)
    changes = {
        "workers": workers,
        "replicas": replicas,
        "lifetime_s": lifetime_s,
        "checkpoint_every_s": checkpoint_every_s,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    check_keywords(changes, Settings)
    of_the_job = {"epochs": epochs, "batch_size": batch_size}
    check_keywords(of_the_job, JobSpec)
    request = SimulationRequest.of(
        whole,
        place,
        Scenario(**given),
        "plan" if isinstance(plan, Plan) else Path(plan).stem,
        changes={**changes, "catalogue": None if catalogue is None else str(catalogue)},
        of_the_job={name: value for name, value in of_the_job.items() if value is not None},
        store=price_store,
    )
    return simulated_run(request, None if run_dir is None else Path(run_dir))
