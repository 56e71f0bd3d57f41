"""What of a plan really runs, and whether what was predicted is of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

import dayfly
from dayfly.dataclass_json import dump, read
from dayfly.errors import RequestError
from dayfly.runs.plans import JobSpec
from dayfly.runs.predict import predict_run
from dayfly.runs.profiling.layers import check_profiled
from dayfly.runs.run_plan import Planned, carried_out, gone_on
from dayfly.runs.settings import Settings
from tests.planning import by_hand

PROFILE = by_hand.profile([by_hand.layer("all", 1000)], by_hand.size(1, 512), listed=False)
#: As the profile's functions are.
SETTINGS = Settings(
    workers=2,
    memory_mib=512,
    channel=PROFILE.channel,
    uplink_mb_per_s=10.0,
    downlink_mb_per_s=10.0,
)
PLAN = predict_run(PROFILE, SETTINGS, JobSpec(batch_size=20, epochs=3))


def job(**changes: Any) -> dayfly.Job:
    given: dict[str, Any] = {
        "model": lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)),
        "data": "digits",
        "loss": nn.functional.cross_entropy,
        "optimizer": lambda parameters: None,
        "batch_size": 20,
        "epochs": 3,
    }
    return dayfly.Job(**{**given, **changes})


def test_a_plan_that_is_followed_keeps_its_prediction() -> None:
    assert PLAN.prediction is not None
    said = replace(PLAN.prediction, step_s=123.0)
    ours, planned = carried_out(replace(PLAN, prediction=said), SETTINGS, job(), 1000)
    assert ours.prediction is said
    assert planned == Planned()
    assert planned.words() is None


def test_a_plan_without_a_prediction_gets_one() -> None:
    ours, planned = carried_out(replace(PLAN, prediction=None), SETTINGS, job(), 1000)
    assert ours.prediction == PLAN.prediction
    assert planned == Planned()


def test_what_is_given_beside_the_plan_is_predicted_anew() -> None:
    ours, planned = carried_out(PLAN, replace(SETTINGS, workers=4), job(epochs=1), 1000)
    expected = predict_run(PROFILE, replace(SETTINGS, workers=4), JobSpec(batch_size=20))
    assert ours == expected
    assert planned.overridden == ("workers 4 in place of 2", "epochs 1 in place of 3")
    assert planned.words() == (
        "not as planned, and so predicted anew: workers 4 in place of 2, epochs 1 in place of 3"
    )


def test_the_job_may_differ_from_what_was_profiled() -> None:
    ours, planned = carried_out(PLAN, SETTINGS, job(clip_norm=1.0, accumulate=2), 2000)
    assert planned.overridden == (
        "micro_batches 2 in place of 1",
        "clips True in place of False",
        "samples 2000 in place of 1000",
    )
    assert ours.settings["micro_batches"] == 2
    assert ours.profile.samples == 2000
    assert ours.prediction is not None
    assert PLAN.prediction is not None
    assert ours.prediction.epoch_s > PLAN.prediction.epoch_s


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_mib": 256}, "has no functions of 256 MiB"),
        ({"cpu_cores": 0.5}, "holds for cpu_cores none, and this run has 0.5"),
        ({"channel": "tcp://"}, "is over file:///dev/shm, and this run talks over tcp://"),
    ],
)
def test_what_the_profile_does_not_hold_for_is_not_predicted(
    changes: dict[str, Any], words: str
) -> None:
    ours, planned = carried_out(PLAN, replace(SETTINGS, **changes), job(), 1000)
    assert ours.prediction is None
    assert planned.unpredicted is not None
    assert words in planned.unpredicted
    said = planned.words()
    assert said is not None
    assert said.startswith("what runs is not predicted: ")


def test_a_store_of_the_catalogue_is_at_any_address() -> None:
    over_s3 = replace(PROFILE, channel="s3")
    plan = predict_run(over_s3, replace(SETTINGS, channel=None), JobSpec(batch_size=20, epochs=3))
    settings = replace(SETTINGS, channel="s3://bucket", collective="overlapped")
    plan = replace(plan, settings={**plan.settings, "collective": "overlapped"})
    ours, planned = carried_out(plan, settings, job(), 1000)
    assert ours.prediction == plan.prediction
    assert planned == Planned()
    for channel in (None, "redis://host"):
        ours, planned = carried_out(plan, replace(settings, channel=channel), job(), 1000)
        assert ours.prediction is None
        assert "is over s3, and this run talks over" in str(planned.unpredicted)


def test_dollars_under_other_prices_are_not_those_of_the_bill() -> None:
    wanted = JobSpec(batch_size=20, epochs=3)
    elsewhere = predict_run(PROFILE, SETTINGS, wanted, prices="cloud-run", store="s3")
    ours, planned = carried_out(elsewhere, SETTINGS, job(), 1000)
    assert ours.prediction == PLAN.prediction
    assert planned.overridden == ()


def test_a_run_that_goes_on_keeps_its_plan_and_says_what_changed() -> None:
    ours, planned = carried_out(PLAN, SETTINGS, job(accumulate=2), 1000)
    assert gone_on(ours, planned, SETTINGS, job(accumulate=2)) == (ours, planned)
    now, later = gone_on(ours, planned, replace(SETTINGS, workers=3), job(accumulate=2))
    assert now.prediction != ours.prediction
    assert later == replace(planned, changed=("workers 3 in place of 2",))
    assert read(Planned, dump(later), "p") == later


def test_a_profile_of_another_model_is_refused() -> None:
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5))
    first, last = by_hand.layer("0", 13 * 8), by_hand.layer("2", 9 * 5)
    check_profiled(job(), model, by_hand.profile([first, by_hand.layer("1"), last]))
    with pytest.raises(RequestError, match="it has 2 layers, the job's 3"):
        check_profiled(job(), model, by_hand.profile([first, last]))
    with pytest.raises(RequestError, match="'1' has 180 bytes of parameters, and the job's '1 ReL"):
        check_profiled(job(), model, by_hand.profile([first, replace(last, name="1"), last]))
