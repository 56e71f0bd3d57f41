"""`--plan auto`: a profile is taken as long as it is true, and the choice is explained."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import dayfly
from dayfly.catalogue.metering import FunctionUse
from dayfly.errors import RequestError
from dayfly.life.platforms.base import Ended, Invocation, Outcome
from dayfly.planning.conditions import Conditions
from dayfly.planning.efficiency import Convergence, Efficiency, SeedCurve
from dayfly.runs import auto
from dayfly.runs.auto import alternatives, auto_plan, by_auto_plan, query_of
from dayfly.runs.choosing.query import Goal
from dayfly.runs.profiling import measuring
from dayfly.runs.profiling.convergence_query import ConvergenceQuery
from dayfly.runs.report.reading import rebill
from dayfly.runs.shipping import load_job_file
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.methods import Method
from tests.planning.by_hand import layer, profile, size
from tests.runs import small

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes that were measured, each time. What comes out was made by hand."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(auto, "pace_s", lambda: 0.01)  # whatever else runs here
    asked: list[tuple[int, ...]] = []

    def measure(job: Any, settings: Any, sizes: tuple[int, ...], **more: Any) -> Any:
        asked.append(sizes)
        for one in sizes:
            spec = FunctionSpec(memory_mib=one)
            call = Invocation(function="profiled", attempt=0, handler="", payload={}, spec=spec)
            more["heard"](Ended(invocation=call, outcome=Outcome.RETURNED, init_s=1.0, run_s=9.0))
        made = profile(
            [layer("a", 1000)],
            *(
                replace(
                    size(1, one, cpu_cores=one / 1769),
                    conditions=Conditions(pace_s=(auto.pace_s(),)),
                )
                for one in sizes
            ),
        )
        return replace(made, imitate="aws-lambda", channel="file:///")

    monkeypatch.setattr(measuring, "profile", measure)
    return asked


def choose(
    directory: Path,
    notes: list[str],
    goal: Goal | None = None,
    epochs: int = 15,
    more: Mapping[str, Any] | None = None,
    **given: Any,
) -> Any:
    job = replace(load_job_file(directory / "digits.py"), epochs=epochs)
    return auto_plan(
        job,
        "digits",
        directory,
        {"imitate": "aws-lambda", **given},
        goal or Goal(),
        notes.append,
        **(more or {}),
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    directory = tmp_path / "job"
    directory.mkdir()
    shutil.copy(ROOT / "examples" / "digits.py", directory)
    return directory


def test_a_job_is_measured_once_until_it_changes(
    job: Path, measured: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    first = choose(job, notes, workers=2)
    assert measured == [(512, 1024, 2048)]
    again = choose(job, notes, workers=2)
    assert len(measured) == 1
    assert again.plan == first.plan
    assert str(first.profile) in notes[-1]
    assert choose(job, notes, workers=2, epochs=2).plan.job["epochs"] == 2
    assert len(measured) == 1, "steps are the same in any number of epochs"
    (job / "more.py").write_text("MORE = 1\n")
    choose(job, notes, workers=2)
    assert len(measured) == 2, "its code is another"
    choose(job, notes, workers=2, memory_mib=1024)
    assert measured[2:] == [(1024,)]
    monkeypatch.setattr(auto, "pace_s", lambda: 0.02)
    choose(job, notes, workers=2, memory_mib=1024)
    assert len(measured) == 4
    assert "this machine takes 2 times" in notes[-1]


def test_one_that_measures_tells_what_its_functions_used(
    job: Path, measured: list[tuple[int, ...]]
) -> None:
    first, again = (choose(job, [], workers=2) for _ in range(2))
    assert [one.memory_mib for one in first.used] == [512, 1024, 2048]
    assert again.used == ()


@pytest.mark.long
def test_from_python_and_what_measuring_cost_is_on_the_bill(
    measured: list[tuple[int, ...]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_hand = measuring.profile

    def measure(*args: Any, **more: Any) -> Any:
        return replace(by_hand(*args, **more), layers=(layer("a", 12 * 5 + 5),))

    monkeypatch.setattr(measuring, "profile", measure)
    job = small.job(data, model=lambda: nn.Sequential(nn.Linear(12, 5)), epochs=1)

    def trained(name: str) -> dayfly.Run:
        return dayfly.train(
            job,
            plan="auto",
            objective="cost",
            imitate="aws-lambda",
            workers=2,
            run_dir=tmp_path / name,
            progress=False,
        )

    run, again = trained("first"), trained("again")
    assert measured == [(512, 1024, 2048)]
    usd = sum(size / 1024 * 10 * 1.66667e-5 + 2e-7 for size in measured[0])
    assert run.bill["by_kind"]["profiling"] == pytest.approx(usd)
    assert run.bill["profiling_s"] == 30.0
    assert run.result.cost_usd == pytest.approx(sum(run.bill["by_kind"].values()))
    assert json.loads(json.dumps(rebill(run.directory).dump())) == run.bill
    compared = run.comparison()
    assert compared is not None
    (cost,) = (one for one in compared.totals if one.name == "cost_usd")
    assert cost.measured == pytest.approx(run.result.cost_usd - usd)
    assert f"measuring the job, ${usd:.6f}" in compared.differences
    assert "functions measured the job for this run for 30" in run.report().read_text()
    assert again.bill["by_kind"]["profiling"] == again.bill["profiling_s"] == 0.0


@pytest.mark.parametrize(
    "goal",
    [
        {"objective": "cost"},
        {"deadline_s": 9.0},
        {"budget_usd": 1.0},
        {"efficiency": ("@128=1.1",)},
        {"convergence": "bsp"},
    ],
)
def test_goals_are_for_a_plan_that_is_chosen(goal: dict[str, Any], data: Path) -> None:
    with pytest.raises(RequestError, match='add plan="auto"'):
        dayfly.train(small.job(data), **goal)


def test_a_damaged_profile_is_made_anew(job: Path, measured: list[tuple[int, ...]]) -> None:
    notes: list[str] = []
    found = choose(job, notes, workers=2)
    found.profile.write_text("{")
    choose(job, notes, workers=2)
    assert len(measured) == 2
    assert "cannot be read" in notes[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a directory away from itself")
def test_a_cache_that_cannot_be_written_is_only_said(
    job: Path, measured: list[tuple[int, ...]], tmp_path: Path
) -> None:
    notes: list[str] = []
    (tmp_path / "cache").write_text("no directory")
    assert choose(job, notes, workers=2).plan.job["epochs"] == 15
    assert any("cannot be kept" in note for note in notes)


def test_goals(job: Path, measured: list[tuple[int, ...]]) -> None:
    notes: list[str] = []
    fastest = choose(job, notes, Goal(objective="time"), workers=4).choice
    cheapest = choose(job, notes, Goal(objective="cost"), workers=4).choice
    assert fastest.chosen.seconds < cheapest.chosen.seconds
    assert fastest.chosen.usd > cheapest.chosen.usd
    assert len(fastest.front.points) > 2
    one, other = alternatives(fastest)
    assert "times the dollars, and takes" in one
    assert one != other
    within = choose(job, notes, Goal(deadline_s=1.01 * fastest.chosen.seconds), workers=4).choice
    assert within.chosen.seconds <= 1.01 * fastest.chosen.seconds
    assert any("misses the deadline" in line for line in alternatives(within))
    with pytest.raises(RequestError, match="no plan"):
        choose(job, notes, Goal(deadline_s=1e-6), workers=4)


def test_at_most_so_many_workers(job: Path, measured: list[tuple[int, ...]]) -> None:
    found = choose(job, [], Goal(objective="time"), workers=2).choice
    assert max(point.plan.candidate.settings.workers for point in found.front.points) <= 2


def ways(found: Any) -> set[str]:
    """Methods of all plans that were proposed."""
    points = (*found.choice.front.points, *found.choice.others)
    plans = (getattr(point.plan, "candidate", point.plan) for point in points)
    return {str(Method.of(one.settings)) for one in plans}


def test_methods_are_chosen_among_as_dayfly_plan_does(
    job: Path, measured: list[tuple[int, ...]]
) -> None:
    given = {"workers": 3, "sync": "bsp,hap,local-sgd:4"}
    found = choose(job, [], more={"efficiencies": ("local-sgd:4=2",)}, **given)
    assert {"bsp", "hap:1", "local-sgd:4"} <= ways(found)
    points = (*found.choice.front.points, *found.choice.others)
    plans = [getattr(point.plan, "candidate", point.plan) for point in points]
    assert {one.wanted.epochs for one in plans if one.settings.sync == "local-sgd"} == {30}
    assert {one.wanted.epochs for one in plans if one.settings.sync == "bsp"} == {15}


@pytest.mark.parametrize(
    ("given", "methods"),
    [
        ({}, "bsp"),
        ({"sync": "local-sgd", "k": 8}, "local-sgd:8"),
        ({"sync": "local-sgd", "k": 8, "outer": "nesterov", "outer_lr": 0.5}, None),
        ({"sync": "hap", "aggregators": 2}, "hap:2"),
        ({"sync": "nesterov:8", "fragments": 2, "compress": "int8"}, None),
    ],
)
def test_settings_of_a_run_are_its_method(given: dict[str, Any], methods: str | None) -> None:
    names = [str(one) for one in query_of(small.job(Path()), given, Goal()).ways]
    streamed = "nesterov:8+fragments=2+int8", "nesterov:8+outer-lr=0.5"
    assert names == [methods] if methods else names[0] in streamed


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sync": "bsp,local-sgd:8", "k": 4}, "--k beside --sync bsp,local-sgd:8: say it in the"),
        ({"sync": "bsp,hap", "aggregators": 3}, "--aggregators 3 beside --sync bsp,hap: .* hap:3"),
        ({"sync": "hap:2", "aggregators": 3}, "--aggregators 3 beside --sync hap:2"),
        ({"collective": "k-reduce", "aggregators": 3}, "--aggregators 3 beside --sync bsp"),
        ({"sync": "bps"}, "there is no training method 'bps'"),
        ({"collective": "tree"}, "--collective 'tree' is not known"),
        ({"fragments": 2}, "--fragments 2 is of no method of --sync"),
    ],
)
def test_methods_that_cannot_be_are_refused_before_anything_is_measured(
    given: dict[str, Any], why: str, job: Path, measured: list[tuple[int, ...]]
) -> None:
    with pytest.raises(RequestError, match=why):
        choose(job, [], **given)
    assert measured == []


def test_an_outer_optimizer_of_the_jobs_own_is_not_planned(data: Path) -> None:
    own = small.job(data, outer_optimizer=small.sgd)
    with pytest.raises(RequestError, match="job's own cannot be planned"):
        query_of(own, {"sync": "local-sgd", "k": 2}, Goal())
    with pytest.raises(RequestError, match="--sync bsp takes none"):
        query_of(own, {}, Goal())


def test_convergence_is_measured_once_and_outlasts_a_profile(
    job: Path, measured: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ConvergenceQuery.parse("local-sgd:4")
    runs: list[int] = []

    def short(job: Any, samples: int, asked: ConvergenceQuery, **more: Any) -> Convergence:
        runs.append(job.epochs)
        more["heard"](FunctionUse(memory_mib=1769, init_s=0.0, run_s=3.0))
        curves = tuple(SeedCurve(seed=at, losses=(1.0,), epochs=15.0) for at in range(3))
        return Convergence(
            batch_size=job.batch_size,
            epochs=job.epochs,
            target_loss=0.5,
            most_epochs=45,
            measured=tuple(
                Efficiency(
                    method=name,
                    batch_size=job.batch_size,
                    samples=samples,
                    how="measured",
                    workers=4,
                    curves=curves,
                )
                for name, samples in (("bsp", 1.0), ("local-sgd:4", 2.0))
            ),
            left_out={},
            took_s=7.0,
        )

    monkeypatch.setattr(auto, "convergence", short)
    more = {"short": asked}
    first = choose(job, [], more=more, workers=2, sync="bsp,local-sgd:4")
    assert (len(measured), runs, first.used[-1].run_s) == (1, [15], 3.0)
    points = (*first.choice.front.points, *first.choice.others)
    plans = [getattr(point.plan, "candidate", point.plan) for point in points]
    assert {one.wanted.epochs for one in plans if one.settings.sync == "local-sgd"} == {30}
    again = choose(job, [], more=more, workers=2, sync="bsp,local-sgd:4")
    assert (len(measured), runs, again.used) == (1, [15], ())
    monkeypatch.setattr(auto, "pace_s", lambda: 0.02)
    choose(job, [], more=more, workers=2, sync="bsp,local-sgd:4")
    assert (len(measured), runs) == (2, [15]), "what was learnt depends on no machine"
    choose(job, [], epochs=2, more=more, workers=2, sync="bsp,local-sgd:4")
    assert (len(measured), runs) == (2, [15, 2]), "it is of another number of epochs"


def test_a_run_has_the_plans_method_and_epochs(job: Path, measured: list[tuple[int, ...]]) -> None:
    """Flags said what to choose among, and are nothing to override the plan with."""
    notes: list[str] = []
    given = {"imitate": "aws-lambda", "workers": 3, "sync": "local-sgd", "k": 4}
    whole = replace(load_job_file(job / "digits.py"), epochs=10)
    made, settings, found = by_auto_plan(
        whole,
        "digits",
        job,
        {"epochs": 10, "batch_size": None},
        given,
        Goal(objective="time"),
        notes.append,
        efficiencies=("local-sgd:4=1.5",),
    )
    assert (settings.sync, settings.k, made.epochs) == ("local-sgd", 4, 15)
    assert settings.workers == found.plan.settings["workers"]
    assert any("local-sgd:4@64: 15 epochs for 10 of bsp" in note for note in notes)
    assert any(note.endswith("x 1.5 samples") for note in notes)


def test_an_objective_chooses_by_itself() -> None:
    with pytest.raises(RequestError, match="give time or cost"):
        Goal(objective="fast")
    for more in ({"deadline_s": 1.0}, {"budget_usd": 1.0}, {"weights": (1.0, 1.0)}):
        with pytest.raises(RequestError, match="--objective chooses by itself"):
            Goal(objective="time", **more)
