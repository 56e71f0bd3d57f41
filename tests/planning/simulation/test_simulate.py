"""Whole runs in virtual time: what is predicted if nothing happens, and what happens otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Figure, Transfer
from dayfly.planning.simulation.fleet import End
from dayfly.planning.simulation.outcome import Simulated
from dayfly.planning.simulation.scenario import Scenario
from dayfly.specs.streaming import Streaming
from tests.planning.simulation.made import (
    POLICY,
    configuration,
    made_course,
    profile,
    simulated,
    size,
)

PIPELINE: dict[str, Any] = {"cut": (2,), "replicas": 2, "micro_batches": 4}
HAP: dict[str, Any] = {"sync": "hap", "collective": "k-reduce", "aggregators": 2}


def billed_s(outcome: Simulated) -> float:
    return sum(one.init_s + one.run_s for one in outcome.attempts)


@pytest.mark.parametrize(
    "asked",
    [
        configuration(1),
        configuration(4),
        configuration(4, collective="overlapped", batch_size=36, epochs=3, validate_every=2),
        configuration(4, sync="local-sgd", k=4, epochs=2),
        configuration(4, sync="local-sgd", k=None),
        configuration(4, sync="local-sgd", k=4, outer="nesterov", compress="int8"),
        configuration(
            4,
            sync="local-sgd",
            k=4,
            outer="nesterov",
            streaming=Streaming(fragments=1, overlap=2),
            epochs=2,
        ),
        configuration(4, **PIPELINE),
        configuration(4, schedule="1f1b", **PIPELINE),
        configuration(3, cut=(1, 3), replicas=1, micro_batches=4),
        configuration(7, cut=(1, 3), replicas=(4, 1, 2), micro_batches=2),
        configuration(7, cut=(1, 3), replicas=(1, 2, 4), micro_batches=2, schedule="1f1b"),
        configuration(200, collective="k-reduce", aggregators=20),
        configuration(4, collective="k-reduce", aggregators=2, shares=(1, 1, 4, 2)),
        configuration(4, **HAP),
        configuration(4, **HAP, shares=(1, 1, 4, 2), epochs=3, validate_every=2),
        configuration(4, **HAP, shares=(1, 1, 9, 9), batch_size=40),
        configuration(200, **HAP),
        configuration(4, **HAP, shares=(0, 0, 1, 1)),
        configuration(200, **{**PIPELINE, "replicas": 100}),
    ],
    ids=str,
)
def test_a_run_in_which_nothing_happens_is_as_predicted(asked: Configuration) -> None:
    known = profile(samples=max(320, 20 * asked.workers))
    predicted = predict(known, asked, Catalogue().platform("aws-lambda"))
    found = simulated(asked, known=known)
    assert (found.status, found.deaths, found.hand_overs) == ("done", 0, 0)
    # Stages that differ are ready at moments of their own; predictions let all wait for the last.
    off = 0.005 if len(asked.cut) == 2 else 1e-9
    assert found.run_s == pytest.approx(predicted.run_s, rel=off)
    # Bills count whole milliseconds.
    assert billed_s(found) == pytest.approx(predicted.billed_s, rel=max(off, 1e-3))
    assert median(found.step_s) == pytest.approx(predicted.step_s, rel=1e-9)
    puts, gets, up, down = found.moved.sum(axis=0).tolist()
    volume = predicted.run_volume
    there = volume.puts, volume.gets, volume.bytes_up, volume.bytes_down
    assert (puts, gets, up, down) == there


def test_one_seed_one_run() -> None:
    asked = Scenario(seed=5, deaths_per_hour=150, straggler_sigma=0.2, cold_start_s=1.0)
    first, second = (
        simulated(configuration(lifetime_s=12.0), asked, watched=(0, 1)) for _ in range(2)
    )
    assert first.attempts == second.attempts
    assert first.story.workers == second.story.workers
    other = simulated(configuration(lifetime_s=12.0), Scenario(seed=6, deaths_per_hour=150))
    assert other.attempts != first.attempts


@pytest.mark.parametrize("replays", [True, False])
@pytest.mark.parametrize(
    "asked", [configuration(), configuration(**PIPELINE), configuration(sync="local-sgd", k=4)]
)
@pytest.mark.long
def test_more_deaths_cost_more(asked: Configuration, replays: bool) -> None:
    means = []
    for rate in (0.0, 30.0, 120.0):
        runs = [
            simulated(asked, Scenario(seed=seed, deaths_per_hour=rate), replays=replays)
            for seed in range(12)
        ]
        assert all(run.status == "done" for run in runs)
        means.append(mean(map(billed_s, runs)))
    assert means == sorted(means)
    assert means[0] < means[2]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.0, 40.0, 200.0]),
    lifetime=st.sampled_from([None, 8.0, 15.0]),
    kind=st.sampled_from(["bsp", "local", "outer", "pipeline"]),
    replays=st.booleans(),
)
@pytest.mark.long
def test_lives_follow_each_other(
    seed: int, rate: float, lifetime: float | None, kind: str, replays: bool
) -> None:
    more: dict[str, Any] = {
        "bsp": {},
        "local": {"sync": "local-sgd", "k": 3},
        "outer": {"sync": "local-sgd", "k": 3, "outer": "nesterov"},
        "pipeline": PIPELINE,
    }[kind]
    asked = configuration(lifetime_s=lifetime, **more)
    found = simulated(asked, Scenario(seed=seed, deaths_per_hour=rate), replays=replays)
    for rank in range(4):
        mine = sorted((one for one in found.attempts if one.rank == rank), key=lambda a: a.number)
        assert [one.number for one in mine] == list(range(len(mine)))
        for before, after in pairwise(mine):
            within = kind in ("local", "outer")
            warm = before.end is End.HANDED_OVER and lifetime == 15.0 and not within
            assert after.invoked_s >= before.end_s - 1e-9 or (warm and after.end_s >= before.end_s)
            assert before.end is not End.DONE
        if lifetime is not None and found.status == "done":
            assert all(one.run_s <= lifetime + 0.5 for one in mine)
    if found.status == "done":
        assert found.steps == 10
        assert sum(one.end is End.DONE for one in found.attempts) == 4


def test_who_has_lived_hands_over_at_a_checkpoint_and_nothing_is_redone() -> None:
    for replays in (True, False):
        found = simulated(configuration(lifetime_s=6.0), replays=replays)
        assert (found.hand_overs, found.redone_steps, found.deaths) == (12, 0, 0)
        assert found.rollbacks == (0 if replays else 3)
        assert found.checkpoints == 4


@pytest.mark.parametrize("replays", [True, False])
def test_successors_that_are_warm_cost_a_checkpoint_and_no_start(replays: bool) -> None:
    asked = configuration(lifetime_s=20.0, epochs=4)
    whole, found = simulated(configuration(epochs=4)), simulated(asked, replays=replays)
    renewals = found.hand_overs / asked.workers
    assert renewals > 1
    assert (found.rollbacks, found.redone_steps, found.deaths) == (0, 0, 0)
    part_s = float(made_course(asked).part_N.max())
    assert found.run_s == pytest.approx(whole.run_s + renewals * part_s)
    predicted = predict(profile(), asked, Catalogue().platform("aws-lambda"))
    assert found.run_s == pytest.approx(predicted.run_s, rel=0.05)
    one_by_one = simulated(replace(asked, lifetime_s=9.9), replays=replays)
    assert one_by_one.run_s > found.run_s + 2.0


def test_without_a_log_all_go_back_and_the_steps_are_counted() -> None:
    asked = Scenario(seed=1, deaths_per_hour=150)
    found = simulated(configuration(checkpoint_every_s=3.0), asked, replays=False)
    back = [one for one in found.story.coordinator if one["kind"] == "rolled back"]
    assert found.rollbacks == len(back) == found.deaths > 0
    assert found.redone_steps == 4 * sum(one["from_step"] - one["to_step"] for one in back)
    assert {one.end for one in found.attempts} == {End.DONE, End.KILLED, End.CANCELLED}


def test_a_life_too_short_for_a_step_fails_the_run() -> None:
    found = simulated(configuration(lifetime_s=1.2))
    assert found.status == "failed"
    assert found.error is not None
    assert "raise --lifetime" in found.error
    assert found.steps == 0


def test_deaths_for_too_long_without_a_step_fail_the_run() -> None:
    impatient = replace(POLICY, without_progress_s=30.0)
    found = simulated(configuration(), Scenario(deaths_per_hour=40_000), policy=impatient)
    assert found.status == "failed"
    assert found.error is not None
    assert re.search(r"deaths in [3-6]\d s without a completed step", found.error)


@pytest.mark.parametrize("replays", [True, False])
def test_who_dies_again_starts_after_a_pause(replays: bool) -> None:
    """From the second death in a row of a function, before its step is completed."""
    asked_of: list[int] = []

    def pause_s(deaths: int) -> float:
        asked_of.append(deaths)
        return 3.0 * (deaths - 1)

    asked = Scenario(seed=1, deaths_per_hour=150)
    found = simulated(
        configuration(), asked, replays=replays, policy=replace(POLICY, pause_s=pause_s)
    )
    assert found.status == "done"
    assert len(asked_of) == found.deaths
    assert max(asked_of) > 1
    killed: dict[int, float] = {}
    gaps: list[float] = []
    for one in found.attempts:
        if one.number:
            gaps.append(one.invoked_s - killed[one.rank])
        killed[one.rank] = one.end_s
    assert max(gaps) >= 3.0
    assert 3.0 * sum(deaths - 1 for deaths in asked_of) == pytest.approx(
        sum(gaps) / (1 if replays else 4)
    )


def test_a_cap_of_the_store_and_declining_bandwidth_bind() -> None:
    def step_s(**scenario: Any) -> float:
        return simulated(configuration(), Scenario(**scenario)).step_s[0]

    usual = step_s()
    assert step_s(store_bytes_per_s=4 * 50e6) == pytest.approx(usual)
    assert step_s(store_bytes_per_s=100e6) > 1.2 * usual
    assert step_s(decline=((2, 1.0), (4, 0.5))) > 1.2 * usual
    assert step_s(decline=((4, 1.0), (8, 0.5))) == pytest.approx(usual)
    profiled = simulated(configuration(), known=profile(decline=((2, 1.0), (4, 0.5))))
    assert profiled.step_s[0] == pytest.approx(step_s(decline=((2, 1.0), (4, 0.5))), rel=5e-3)
    # A whole store of half of what four functions can carry is as half of it for each of them.
    assert step_s(store_bytes_per_s=100e6) == pytest.approx(step_s(decline=((4, 0.5),)), rel=1e-3)


def test_stragglers_decide_how_long_a_step_takes() -> None:
    usual = simulated(configuration())
    slow = simulated(configuration(), Scenario(stragglers=1, straggler_factor=3.0))
    # Each computes 8 samples of 4 layers: 0.96 s, of which the slow one takes two more times.
    assert slow.step_s[0] - usual.step_s[0] == pytest.approx(2 * 0.96, rel=0.01)
    assert slow.worst["rank"] == slow.stragglers[0]
    assert slow.worst["computed_s"] == pytest.approx(3 * slow.worst["median_s"])
    half = simulated(configuration(), Scenario(stragglers=2, straggler_factor=3.0))
    assert half.worst["median_s"] == pytest.approx(2 * slow.worst["median_s"])  # of 1, 1, 3 and 3


def test_cold_starts_come_before_every_life() -> None:
    usual = simulated(configuration())
    later = simulated(configuration(), Scenario(cold_start_s=7.0))
    assert later.run_s - usual.run_s == pytest.approx(7.0)
    varied = simulated(configuration(), Scenario(cold_start_s=7.0, cold_start_sigma=0.5))
    assert len({one.init_s for one in varied.attempts}) == 4


@pytest.mark.parametrize(
    ("asked", "later_s"),
    [
        ({}, 8 * 0.25),
        ({"invoke_at_once": 4}, 2 * 0.25),
        # 0 and 1 are invoked at 0.25 and 0.5 s, and start in 0.5 s; 0 invokes 2 and 3, 1 invokes 4
        # and 5 by 1.5 s, and 2, which began at 1.0 s and started by 1.5 s, invokes 6 and 7.
        ({"invoke_fan_out": 2}, 2.0),
    ],
)
def test_functions_that_start_together_wait_for_the_calls_before_them(
    asked: dict[str, Any], later_s: float
) -> None:
    """The first step's sum is there when the last function has its gradient; who is invoked later
    is billed for less."""
    known = profile()
    at_once, by_calls = (
        simulated(configuration(8), scenario, known)
        for scenario in (Scenario(), Scenario(invoke_call_s=0.25, **asked))
    )
    assert by_calls.run_s == pytest.approx(at_once.run_s + later_s)
    invoked_s = [one.invoked_s for one in sorted(by_calls.attempts, key=lambda one: one.rank)]
    how = Scenario(invoke_call_s=0.25, **asked).invoking
    assert invoked_s == pytest.approx(how.invoked_s([known.sizes[0].init_s.value] * 8))
    waited_s = sum(later_s - one for one in invoked_s)
    assert billed_s(by_calls) == pytest.approx(billed_s(at_once) + waited_s)


@pytest.mark.parametrize("more", [{}, {**PIPELINE, "replicas": 5000}], ids=["bsp", "pipeline"])
@pytest.mark.long
def test_ten_thousand_workers_come_to_an_end(more: dict[str, Any]) -> None:
    asked = configuration(10_000, collective="k-reduce", aggregators=100, epochs=2, **more)
    scenario = Scenario(straggler_sigma=0.1, stragglers=3, deaths_per_hour=0.001)
    found = simulated(asked, scenario, profile(samples=400_000), watched=(0, 9_999))
    assert (found.status, found.steps) == ("done", 10)
    assert len(found.story.workers) == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"deaths_per_hour": -1.0}, "--deaths-per-hour -1: "),
        ({"straggler_sigma": -1.0}, "--jitter -1: "),
        ({"straggler_factor": 0.0}, "--straggler-factor 0: "),
        ({"straggler_factor": 3.0}, "there are none: give --stragglers"),
        ({"cold_start_sigma": 0.5}, "there are none: give --cold-start, "),
        ({"store_bytes_per_s": -5e6}, "--store-rate -5 MB/s: "),
        ({"seed": -1}, "--seed -1: "),
        ({"decline": ((8.0, 0.5), (4.0, 0.2))}, "--decline .* rising"),
        ({"decline": ((8.0, 1.5),)}, "--decline .* at most 1"),
        ({"cold_start_s": float("nan")}, "--cold-start nan: "),
        ({"invoke_at_once": 2}, "--invoke-at-once 2: .* give --invoke-call, "),
        ({"invoke_fan_out": 2}, "--invoke-fan-out 2: .* give --invoke-call, "),
        ({"invoke_fan_out": 0, "invoke_call_s": 1.0}, "--invoke-fan-out 0: "),
        ({"invoke_call_s": -1.0}, "--invoke-call -1000 ms: "),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_by_the_names_of_flags(
    wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(RequestError, match=says):
        Scenario(**wrong)


def test_what_cannot_be_run_is_not_simulated() -> None:
    with pytest.raises(RequestError, match="needs --aggregators"):
        made_course(configuration(sync="hap", collective="k-reduce"))


def test_a_stage_that_recomputes_reads_what_comes_from_both_sides() -> None:
    """Of three stages of one replica, over lines so slow that nothing else counts.

    The first reads gradients, the last outputs, and that in the middle both: 10 kB a sample each.
    """
    slow = Transfer(latency_s=Figure.given(0.0), peak_bytes_per_s=Figure.given(1e3))
    asked = configuration(3, cut=(1, 3), replicas=1, micro_batches=4)
    made = made_course(asked, known=profile(sizes=(size(down=slow),)))
    assert made.recomputes_N.all()
    one_s = 1e4 * asked.batch_size / 1e3
    assert made.log_N == pytest.approx([one_s, 2 * one_s, one_s], rel=1e-3)


def test_a_worker_that_takes_sums_from_the_log_tells_so() -> None:
    asked = Scenario(seed=5, deaths_per_hour=150, cold_start_s=1.0)
    found = simulated(configuration(epochs=4), asked, watched=(0, 1, 2, 3))
    caught_up = 0
    for records in found.story.workers.values():
        taken = 0
        for record in sorted(records, key=lambda one: one["at"]):
            if record["kind"] == "step" and not record["computed"]:
                taken += 1
                last = record["step"]
            elif record["kind"] == "caught up":
                assert taken
                assert record["step"] == last + 1
                taken, caught_up = 0, caught_up + 1
    assert caught_up
