"""Methods and batch sizes in a choice: each has the epochs that come to the loss of bsp."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from benchmarks.parts.enumerated import methods
from benchmarks.plans import compare

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.efficiency import Convergence, SeedCurve
from dayfly.planning.plan import Plan
from dayfly.planning.profile import Profile
from dayfly.planning.short_runs import measured_efficiency, noise_fit
from dayfly.runs.choosing.candidate import Candidate
from dayfly.runs.choosing.candidates import proposed
from dayfly.runs.choosing.choice import Choice, choice_of
from dayfly.runs.choosing.choice_json import tree
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.choosing.variants import variants
from dayfly.specs.methods import BSP, Method
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()


def curves(epochs: float | None) -> list[SeedCurve]:
    return [SeedCurve(seed=at, losses=(1.0,), epochs=epochs) for at in range(2)]


def of(**samples: float | None) -> Convergence:
    """Of local-sgd:8, and of batches 128, 256, 512; bsp takes 4 epochs."""
    measured = [measured_efficiency(BSP, 64, 4, curves(4.0), curves(4.0), 12)]
    for name, one in samples.items():
        method = Method.parse("local-sgd:8") if name == "local" else BSP
        batch = 64 if name == "local" else int(name.removeprefix("b"))
        found = curves(None if one is None else 4 * one)
        measured.append(measured_efficiency(method, batch, 4, found, curves(4.0), 12))
    f = {one.batch_size: one.samples for one in measured if one.method == "bsp"}
    return Convergence(
        batch_size=64,
        epochs=4,
        target_loss=0.5,
        most_epochs=12,
        measured=tuple(measured),
        left_out={},
        fit=noise_fit({batch: one for batch, one in f.items() if one is not None}, 64),
    )


MEASURED = of(local=1.25, b128=1.05, b256=1.5, b512=None)


def profile(convergence: Convergence | None = MEASURED) -> Profile:
    return replace(job(2, 5.0, epochs=10), batch_size=64, convergence=convergence)


def chosen(made: Profile, **asked: object) -> Choice:
    query = PlanQuery(workers=4, time_limit_s=5.0, **asked)  # type: ignore[arg-type]
    return choice_of([Target.of(made, KNOWN)], query)


def test_all_plans_of_a_front_come_to_one_loss() -> None:
    found = chosen(profile(), methods=("bsp", "local-sgd:8"), batch_sizes=(64, 128, 256, 512))
    said = {}
    for point in found.front.points:
        one = point.plan.candidate
        assert one.efficiency is not None
        said[one.efficiency.name] = one.wanted.epochs
        assert point.plan.plan.job["epochs"] == one.wanted.epochs
    epochs = {
        "bsp@64": 10,
        "bsp@128": 10,
        "bsp@256": 15,
        "local-sgd:8@64": 13,
        "local-sgd:8@128": 14,
        "local-sgd:8@256": 19,
    }
    assert said.items() <= epochs.items()
    assert {"bsp@128", "local-sgd:8@64"} & said.keys()
    left_out = [note for note in found.notes if note.startswith("left out")]
    assert left_out == [
        "left out, as they do not come to the loss of bsp at batch 64: bsp@512 (above 3 times the "
        "samples), local-sgd:8@512 (above 3.75 times the samples)"
    ]


def test_a_plan_says_its_samples_and_is_carried_out_with_its_epochs() -> None:
    found = chosen(profile(), methods=("local-sgd:8",))
    said = tree(found)
    assert json.loads(json.dumps(said["front"][0]["efficiency"])) == {
        "method": "local-sgd:8",
        "batch_size": 64,
        "samples": pytest.approx(1.25),
        "low": pytest.approx(1.25),
        "high": pytest.approx(1.25),
        "how": "measured",
        "workers": 4,
    }
    plan = Plan.parse(found.chosen.plan.plan.text())
    assert plan.job["epochs"] == 13
    assert (plan.settings["sync"], plan.settings["k"]) == ("local-sgd", 8)
    assert any(note.startswith("local-sgd:8@64: 13 epochs for 10 of bsp") for note in said["notes"])
    assert "local-sgd:8" in found.chosen.plan.short
    assert all(one.option is None or one.option.prediction.total_s > 0 for one in found.knobs)


def test_more_samples_take_more_time_and_dollars() -> None:
    free, dear = (
        chosen(profile(), methods=("local-sgd:8",), efficiencies=(f"local-sgd:8={f}",))
        for f in (1.0, 3.0)
    )
    for one, other in ((free.front.fastest, dear.front.fastest),):
        assert other.seconds > 2 * one.seconds
        assert other.usd > 2 * one.usd


def test_each_number_of_aggregators_of_hap_is_a_method() -> None:
    """Of `hap` the planner chooses it, and each plan has the epochs of its own."""
    asked = PlanQuery(workers=4, methods=("hap",), efficiencies=("hap:1=3",), batch_size=64)
    known, target = variants([profile()], asked), Target.of(profile(), KNOWN)
    begins = ("hap:1@64: 30 epochs for 10 of bsp", "hap@64: assumes as many samples")
    assert all(map(str.startswith, known.notes, begins))
    # Each number is searched with its epochs: none is left out by another before both count.
    assert [(one.methods, one.epochs) for one in known.asked] == [(("hap:1",), 30), (("hap",), 10)]
    each = [proposed(target, one, time_limit_s=5.0).candidates for one in known.asked]
    lagging = [{one.settings.aggregators for one in found} for found in each]
    assert lagging[0] == {1}
    assert all(one.settings.sync == "hap" and one.wanted.epochs == 30 for one in each[0])
    assert {one.settings.aggregators for one in each[1] if one.settings.sync == "hap"} == {2, 3}
    assert any(one.settings.workers == 1 for one in each[1])  # bsp
    epochs = {
        one.settings.aggregators: counted.wanted.epochs
        for one in (*each[0], *each[1])
        if one.settings.sync == "hap" and (counted := known.of(one)) is not None
    }
    assert epochs.pop(1) == 30
    assert set(epochs.values()) <= {10}
    given = proposed(target, replace(known.asked[0], methods=("hap:2",)), time_limit_s=5.0)
    assert {one.settings.aggregators for one in given.candidates} == {2}
    assert any(", hap:2" in one.words for one in given.candidates)


@pytest.mark.parametrize("compress", ["int8", "topk:0.01"])
def test_what_bsp_would_do_compressed_leaves_no_plan_of_hap_out(compress: str) -> None:
    """Nothing that is dropped later is in the search: its best plan is one that is asked for."""
    asked = PlanQuery(workers=3, methods=(f"hap+{compress}",), batch_size=64)
    found = proposed(Target.of(profile(None), KNOWN), asked, time_limit_s=5.0).candidates
    ways = {str(Method.of(one.settings)) for one in found}
    assert ways == {"bsp", f"hap:1+{compress}", f"hap:2+{compress}"}
    assert {one.settings.workers for one in found if one.settings.sync == "bsp"} == {1}


def test_streamed_and_compressed_rounds_are_searched_each_with_its_samples() -> None:
    asked = {"methods": ("bsp", "nesterov:6"), "fragments": (None, 2), "overlap": (2,)}
    found = chosen(
        profile(None),
        **asked,
        compress=("none", "int8"),
        efficiencies=("nesterov:6+fragments=2+overlap=2+int8=1.5", "bsp+int8=9", "nesterov:6=9"),
    )
    epochs = {
        str(Method.of(one.settings)): one.wanted.epochs
        for point in (*found.front.points, *found.others)
        for one in [point.plan if isinstance(point.plan, Candidate) else point.plan.candidate]
    }
    streamed = "nesterov:6+fragments=2+overlap=2"
    assert epochs == {
        "bsp": 10,
        "bsp+int8": 90,
        "nesterov:6": 90,
        "nesterov:6+int8": 10,
        streamed: 10,
        f"{streamed}+int8": 15,
    }
    (assumed,) = (note for note in found.notes if "which nobody measured" in note)
    assert assumed.startswith(f"nesterov:6+int8@64, {streamed}@64: assumes as many samples")
    fastest = found.front.fastest.plan.plan
    assert (fastest.settings["fragments"], fastest.settings["overlap"]) == (2, 2)


def test_a_free_batch_is_of_bsp_and_hap_alone_and_that_is_said() -> None:
    known = variants([profile()], PlanQuery(methods=("bsp", "local-sgd:8"), most_batch_size=128))
    assert [one.most_batch_size for one in known.asked] == [128, None]
    begins = "--most-batch-size frees the batch of bsp and hap; of local-sgd:8 it is 64: give"
    assert any(note.startswith(begins) for note in known.notes)


def test_what_nobody_measured_is_assumed_and_said() -> None:
    found = chosen(profile(None), methods=("bsp", "local-sgd:8"), batch_sizes=(64, 256))
    assert {point.plan.candidate.wanted.epochs for point in found.front.points} == {10}
    assumes = "local-sgd:8@64, bsp@256, local-sgd:8@256: assumes as many samples as bsp at batch 64"
    assert any(note.startswith(assumes) for note in found.notes)


def test_by_itself_a_choice_is_of_the_jobs_own_batch_and_bsp() -> None:
    """And what else was measured is said."""
    found = chosen(profile())
    alone = chosen(profile(None))
    assert [(x.seconds, x.usd) for x in found.front.points] == [
        (x.seconds, x.usd) for x in alone.front.points
    ]
    more = "the profile has more measured, to choose among with --sync bsp,local-sgd:8"
    assert f"{more} and --batch-size 64,128,256" in found.notes
    assert not any("measured" in note for note in alone.notes)


def test_a_free_batch_ends_where_it_converges_as_well() -> None:
    known = variants([profile()], PlanQuery(most_batch_size=500))
    assert [one.most_batch_size for one in known.asked] == [128]
    assert any(note.startswith("the batch is free up to 128") for note in known.notes)
    assumed = variants([profile(None)], PlanQuery(most_batch_size=500))
    assert [one.most_batch_size for one in assumed.asked] == [500]
    assert any(note.startswith("batches up to 500 assume as many") for note in assumed.notes)
    # Of another method alone was measured: nothing says that a larger batch is worse.
    local = variants([profile(of(local=1.25))], PlanQuery(most_batch_size=500))
    assert [one.most_batch_size for one in local.asked] == [500]
    assert any(note.startswith("batches up to 500 assume as many") for note in local.notes)
    well = variants([profile(of(b128=1.05))], PlanQuery(most_batch_size=500))
    assert [one.most_batch_size for one in well.asked] == [500]
    assert any(note.startswith("batches above 128 up to 500 assume") for note in well.notes)


def test_plans_have_the_largest_batch_that_converges_as_well_and_not_more() -> None:
    """By the measured S(B): up to 128 samples a larger batch is free, and 256 is not."""

    def batches(made: Profile, **asked: object) -> set[int]:
        found = chosen(made, **asked)
        return {point.plan.candidate.wanted.batch_size for point in found.front.points}

    assert max(batches(profile(), most_batch_size=500)) == 128
    assert max(batches(profile(None), most_batch_size=500)) > 256
    cheap = chosen(profile(), batch_sizes=(64, 128, 256), goal=Goal(objective="cost")).chosen
    assert cheap.plan.candidate.wanted.batch_size == 128
    assumed = chosen(profile(None), batch_sizes=(64, 128, 256), goal=Goal(objective="cost")).chosen
    assert assumed.plan.candidate.wanted.batch_size == 256


def test_a_variant_that_is_asked_for_twice_is_planned_once() -> None:
    twice = ("nesterov:20", "bsp", "local-sgd:20+nesterov")
    found = variants([profile()], PlanQuery(methods=twice, batch_sizes=(64, 128, 64)))
    assert [(one.methods, one.batch_size) for one in found.asked] == [
        (("nesterov:20",), 64),
        (("bsp",), 64),
        (("nesterov:20",), 128),
        (("bsp",), 128),
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("@64=1.3",), "bsp@64=1.3: all is compared with that"),
        (("@512=1.3",), "no plan has batch 512: add it to --batch-size"),
        (("bsp=1.3",), "all is compared with that"),
        (("local-sgd:8@512=1",), "no plan has batch 512"),
    ],
)
def test_an_efficiency_of_no_plan_is_refused(given: tuple[str, ...], why: str) -> None:
    asked = PlanQuery(methods=("bsp", "local-sgd:8"), efficiencies=given, batch_sizes=(64, 128))
    with pytest.raises(RequestError, match=why):
        variants([profile()], asked)
    used = ("local-sgd:8=1.2", "@128=1.1", "local-sgd:8@128=1.3")
    assert variants([profile()], replace(asked, efficiencies=used)).asked


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"methods": ("bsp+powersgd",)}, "cannot be predicted"),
        ({"batch_size": 512}, "bsp@512 .above 3 times"),
    ],
)
def test_what_cannot_be_planned_is_refused(asked: dict[str, object], why: str) -> None:
    with pytest.raises(RequestError, match=f"no plan: .*{why}"):
        chosen(profile(), **asked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"workers": 1}, "local-sgd:8 needs 2 workers: raise --workers"),
        ({"vcpus": 1.0}, "2 functions of 1024 MiB have 2 vCPUs, and the limit is 1 at once"),
    ],
)
@pytest.mark.parametrize("of_worker", [None, 8])
def test_a_method_of_two_workers_where_there_is_one(
    asked: dict[str, object], why: str, of_worker: int | None
) -> None:
    """Alone it is refused, and beside bsp it is left out, with that note."""
    made = replace(profile(None), batch_per_worker=of_worker, batch_size=of_worker or 64)
    target = Target.of(made, KNOWN)
    with pytest.raises(RequestError, match=f"no plan: .*{why}"):
        choice_of([target], PlanQuery(methods=("local-sgd:8",), **asked))  # type: ignore[arg-type]
    both = PlanQuery(methods=("bsp", "local-sgd:8"), **asked)  # type: ignore[arg-type]
    found = choice_of([target], both)
    assert found.chosen.plan.candidate.settings.workers == 1
    assert any(
        note.startswith(f"aws-lambda over s3, local-sgd:8, data parallel: {why}")
        for note in found.notes
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"methods": ("bps",)},
        {"methods": ()},
        {"batch_sizes": (0,)},
        {"batch_size": 64, "batch_sizes": (64,)},
        {"efficiencies": ("local-sgd:8",)},
        {"efficiencies": ("local-sgd:8=1.3",)},  # which is not among the methods
        {"methods": ("local-sgd:8", "nesterov:20"), "most_batch_size": 512},
        {"batch_size": 0},
    ],
)
def test_queries_that_cannot_be(asked: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        PlanQuery(**asked)  # type: ignore[arg-type]


def test_from_python() -> None:
    front = dayfly.plan(
        profile(), workers=2, methods=("bsp", "local-sgd:8"), efficiencies=("local-sgd:8=1",)
    )
    assert front.points


@pytest.mark.slow
@pytest.mark.parametrize("made", [methods.random_problem, methods.streamed_problem])
@pytest.mark.parametrize("seed", [*range(8), 23])
def test_no_plan_of_all_methods_is_better(
    made: Callable[[Random], methods.MethodsProblem], seed: int
) -> None:
    """In the suite closed forms of methods are held to predictions (tests/choose)."""
    problem = made(Random(seed))
    found = methods.chosen(problem)
    missed, dominated, worst, count = compare(found, methods.every_plan(problem), 0.02)
    assert (missed, dominated) == (0, 0), worst
    assert count > 50
