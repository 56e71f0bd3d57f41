"""`dayfly.simulate`: a plan's whole run in virtual time, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from dayfly.planning.plan import Plan
from dayfly.planning.scenario import Scenario
from dayfly.runs.api import opened
from dayfly.runs.keywords import ScenarioKeywords, check_keywords, shows
from dayfly.runs.planning import Wanted
from dayfly.runs.settings import Settings
from dayfly.runs.simulated import SimulatedRun, simulated_run
from dayfly.runs.simulation_request import Request

#: How much slower a straggler computes, unless said otherwise.
USUAL_STRAGGLER = 2.0


@shows(ScenarioKeywords)
def simulate(
    plan: Plan | str | Path,
    *,
    workers: int | None = None,
    replicas: int | None = None,
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
        replicas: functions of a stage, in place of the plan's.
        lifetime_s: a function's life, in place of the plan's.
        checkpoint_every_s: longest time between run checkpoints, in place of the plan's.
        epochs: passes over the data, in place of the plan's.
        batch_size: samples of a step, in place of the plan's.
        price_store: store of the catalogue whose cap and prices count; None: the profile's channel,
            if it is one of the catalogue.
        catalogue: directory of your own rows.
        run_dir: the simulated run's files, for `dayfly report`; None: `runs/<run id>`.
        scenario: what happens to the run, such as `seed` and `deaths_per_hour`; see
            `dayfly.planning.scenario.Scenario`. None: as if it was not given. Stragglers are twice
            as slow unless `straggler_factor` is given.

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
    check_keywords(of_the_job, Wanted)
    request = Request.of(
        whole,
        place,
        Scenario(**given),
        "plan" if isinstance(plan, Plan) else Path(plan).stem,
        changes={**changes, "catalogue": None if catalogue is None else str(catalogue)},
        of_the_job={name: value for name, value in of_the_job.items() if value is not None},
        store=price_store,
    )
    return simulated_run(request, None if run_dir is None else Path(run_dir))
