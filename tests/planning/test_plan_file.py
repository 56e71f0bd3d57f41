"""`plan.json` as text, and back."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.planning.plan import Plan
from dayfly.planning.profile import parse_profile, profile_text
from tests.planning import by_hand
from tests.reading.test_dataclass_json import ONE

PROFILE = by_hand.profile([by_hand.layer("0", 100), by_hand.layer("1")])
PLAN = Plan(
    settings={"workers": 2, "cut": [1]},
    job={"batch_size": 8, "epochs": 3, "validate_every": 2, "clips": True},
    profile=PROFILE,
    prediction=ONE,
)


@pytest.mark.parametrize("prediction", [ONE, None])
def test_a_plan_is_itself_by_way_of_its_file(prediction: Any) -> None:
    plan = Plan(settings=PLAN.settings, job=PLAN.job, profile=PROFILE, prediction=prediction)
    assert Plan.parse(plan.text(), "plan.json") == plan


def test_a_plan_by_hand_needs_no_prediction() -> None:
    tree = PLAN.dump()
    del tree["prediction"]
    assert Plan.load(tree).prediction is None


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["version"], 2, "plan.json is of version 2, and this dayfly reads 1"),
        (["settings"], [], "plan.json: settings is a list: give an object"),
        (["job", "epochs"], 0, "plan.json: job.epochs is 0: give a whole number from 1"),
        (["job", "clips"], 1, "plan.json: job.clips is 1: give true or false"),
        (["job", "seed"], 1, "plan.json: job has an unknown key 'seed'"),
        (["profile", "layers", 0, "trained"], -4, "plan.json: profile.layers[0].trained is -4"),
        (["profile", "sizes", 0, "up", "latency_s"], "x", "profile.sizes[0].up.latency_s"),
        (["prediction", "step_s"], None, "plan.json: prediction.step_s is null"),
        (["plan"], {}, "plan.json has an unknown key 'plan'"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, words: str) -> None:
    tree: Any = PLAN.dump()
    within = tree
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    with pytest.raises(RequestError) as refused:
        Plan.load(tree, "plan.json")
    assert words in str(refused.value)


def test_what_was_taken_for_another_file_is_named() -> None:
    with pytest.raises(RequestError, match=r"p\.json is a profile, and no plan: dayfly plan makes"):
        Plan.parse(profile_text(PROFILE), "p.json")
    with pytest.raises(RequestError, match=r"plan\.json is a plan, and no profile"):
        parse_profile(PLAN.text(), "plan.json")
    with pytest.raises(RequestError, match=r"job\.py is Python, and no JSON"):
        parse_profile("import dayfly", "job.py")
