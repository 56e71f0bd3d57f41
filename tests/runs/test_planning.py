"""Settings and jobs as the planner's configurations, and as plans, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Plan
from dayfly.runs.plans import (
    JobSpec,
    configuration,
    configuration_of,
    plan_of,
    profile_settings,
    settings_of,
)
from dayfly.runs.settings import Settings
from dayfly.wire.shaping import Rates
from tests.planning import by_hand
from tests.planning.test_plan_file import PROFILE

WANTED = JobSpec(batch_size=64, epochs=3)


def test_what_settings_leave_open_is_decided() -> None:
    asked = configuration(
        Settings(workers=4, memory_mib=512, lifetime_s=60.0, cold_start_s=0.5, uplink_mb_per_s=8.0),
        JobSpec(batch_size=64, epochs=3, validate_every=2, accumulate=2, clips=True),
    )
    assert asked == Configuration(
        workers=4,
        memory_mib=(512,),
        replicas=4,
        micro_batches=2,
        collective="overlapped",
        batch_size=64,
        epochs=3,
        validate_every=2,
        lifetime_s=60.0,
        cold_start_s=0.5,
        clips=True,
    )


def test_the_collective_is_what_suits_the_channel() -> None:
    for settings, name in (
        (Settings(workers=2), "scatter-reduce"),
        (Settings(workers=2, latency_ms=1.0), "overlapped"),
        (Settings(workers=2, channel="redis://host"), "overlapped"),
        (Settings(workers=2, channel="tcp://"), "ring"),
        (Settings(workers=2, channel="ps://host:1"), "push-pull"),
    ):
        assert configuration(settings, WANTED).collective == name


def test_stages_have_a_size_each_and_their_replicas() -> None:
    settings = Settings(cut=(3,), replicas=2, stage_memory_mib=(512, 256), schedule="1f1b")
    asked = configuration(settings, WANTED)
    assert (asked.workers, asked.replicas, asked.stages) == (4, 2, 2)
    assert asked.memory_mib == (512, 256)
    assert asked.schedule == "1f1b"


def test_rounds_of_local_sgd() -> None:
    for k, steps in ((4, 4), ("epoch", None)):
        settings = Settings(workers=2, sync="local-sgd", k=k)  # type: ignore[arg-type]
        assert configuration(settings, WANTED).k == steps


def test_an_imitated_platform_gives_the_lifetime() -> None:
    asked = configuration(Settings(imitate="aws-lambda", memory_mib=512), WANTED)
    assert asked.lifetime_s == 900.0


SETTINGS = st.one_of(
    st.fixed_dictionaries(
        {"workers": st.integers(1, 10_000)},
        optional={
            "memory_mib": st.integers(1, 10_000),
            "lifetime_s": st.floats(1, 1e6),
            "uplink_mb_per_s": st.floats(0.1, 1e4),
            "latency_ms": st.floats(0.1, 1e4),
            "micro_batches": st.integers(1, 64),
            "compress": st.sampled_from(["bf16", "int8", "powersgd:2", "topk:0.01"]),
            "collective": st.sampled_from(["overlapped", "scatter-reduce"]),
        },
    ),
    st.fixed_dictionaries(
        {"sync": st.just("local-sgd"), "k": st.one_of(st.integers(1, 99), st.just("epoch"))}
    ),
    st.fixed_dictionaries(
        {"sync": st.just("local-sgd"), "k": st.integers(1, 99), "outer": st.just("nesterov")},
        optional={"outer_lr": st.floats(0.1, 2), "compress": st.sampled_from(["bf16", "int8"])},
    ),
    st.fixed_dictionaries(
        {
            "cut": st.lists(st.integers(1, 50), min_size=1, unique=True).map(sorted).map(tuple),
            "replicas": st.integers(1, 8),
            "schedule": st.sampled_from(["fill-drain", "1f1b"]),
        }
    ),
)


@given(
    SETTINGS,
    st.builds(
        JobSpec,
        batch_size=st.integers(1, 999),
        epochs=st.integers(1, 9),
        validate_every=st.integers(1, 4),
        accumulate=st.integers(1, 4),
        clips=st.booleans(),
    ),
)
def test_settings_are_the_same_by_way_of_a_plan(given_: dict[str, Any], wanted: JobSpec) -> None:
    settings = Settings(**given_)
    plan = Plan.parse(plan_of(PROFILE, settings, wanted).text())
    assert configuration_of(plan) == configuration(settings, wanted)
    read = settings_of(plan)
    if wanted.accumulate == 1 or settings.micro_batches is not None:
        assert read == settings
    else:
        assert read.micro_batches == wanted.accumulate


def test_the_users_own_catalogue_stays_out_of_plans() -> None:
    plan = plan_of(PROFILE, Settings(workers=2, catalogue="/home/me"), WANTED)
    assert plan.settings == {"workers": 2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wrkers": 2}, "plan.json: settings has an unknown key 'wrkers': give aggregators"),
        ({"workers": "2"}, 'plan.json: settings.workers is "2": give a whole number from 0'),
        ({"workers": 0}, "plan.json: settings: --workers 0: give 1 to 10000"),
        ({"cut": 4}, "plan.json: settings.cut is 4: give a list"),
        ({"cut": [4, "5"]}, 'plan.json: settings.cut[1] is "5"'),
        ({"k": "x"}, 'plan.json: settings.k is "x": give a whole number from 0, or "epoch"'),
        ({"lifetime_s": -1}, "plan.json: settings.lifetime_s is -1"),
    ],
)
def test_wrong_settings_of_a_plan(settings: dict[str, Any], words: str) -> None:
    plan = Plan(settings=settings, job={"batch_size": 1, "epochs": 1}, profile=PROFILE)
    with pytest.raises(RequestError) as refused:
        settings_of(plan, "plan.json")
    assert words in str(refused.value)


def test_what_is_given_beside_a_plan_goes_before_it() -> None:
    cut = plan_of(PROFILE, Settings(cut=(1,), replicas=2, stage_memory_mib=(512, 256)), WANTED)
    assert settings_of(cut, memory_mib=512).stage_memory_mib == ()
    assert settings_of(cut, replicas=3).workers == 6
    local = plan_of(PROFILE, Settings(sync="local-sgd", k=4), WANTED)
    assert settings_of(local, sync="bsp").k is None


def test_functions_are_as_the_profile_has_them() -> None:
    rates = Rates(up_bytes_per_s=8e6, down_bytes_per_s=16e6, latency_s=0.005)
    size = by_hand.size(2, 512, cpu_cores=0.5, rates=rates)
    other = by_hand.size(2, 1024, cpu_cores=1.0, rates=rates)
    profile = by_hand.profile(PROFILE.layers, size, other)
    assert profile_settings(profile, {"workers": 2, "memory_mib": 512}) == {
        "platform": "local",
        "imitate": None,
        "channel": profile.channel,
        "cpu_cores": 0.5,
        "uplink_mb_per_s": 8.0,
        "downlink_mb_per_s": 16.0,
        "latency_ms": 5.0,
        "workers": 2,
        "memory_mib": 512,
    }
    with pytest.raises(RequestError, match="--channel tcp://: the profile of by-hand is of file"):
        profile_settings(profile, {"memory_mib": 512, "channel": "tcp://"})
    with pytest.raises(RequestError, match="differ in more than memory"):
        profile_settings(profile, {"stage_memory_mib": (512, 1024)})
    with pytest.raises(RequestError, match="it has 512 MiB, 1024 MiB"):
        profile_settings(profile, {"memory_mib": 300})
