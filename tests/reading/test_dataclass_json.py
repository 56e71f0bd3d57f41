"""Dataclasses as JSON and back; what a hand-written file has wrong is named with its place."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly import dataclass_json, json_files
from dayfly.errors import RequestError
from dayfly.planning.plan import Prediction, Volume

NUMBER = st.floats(0, 1e12)
COUNT = st.integers(0, 10**15)
VOLUME = st.builds(Volume, puts=COUNT, gets=COUNT, bytes_up=COUNT, bytes_down=COUNT)
PREDICTION = st.builds(
    Prediction,
    **dict.fromkeys(("step_s", "epoch_s", "run_s", "billed_s", "gb_s", "cost_usd"), NUMBER),
    by_kind=st.dictionaries(st.text(), NUMBER),
    price_list=st.text(),
    memory_mib=st.lists(NUMBER).map(tuple),
    step_volume=VOLUME,
    epoch_volume=VOLUME,
    run_volume=VOLUME,
    breakdown=st.dictionaries(st.text(), NUMBER),
    invocations=COUNT,
)
ONE = Prediction(
    step_s=0.1,
    epoch_s=1.0,
    run_s=2.0,
    billed_s=4.0,
    gb_s=4.0,
    cost_usd=0.001,
    by_kind={"compute": 0.001},
    price_list="aws-lambda",
    memory_mib=(300.0,),
    step_volume=Volume(puts=1, gets=1, bytes_up=10, bytes_down=10),
    epoch_volume=Volume(puts=1, gets=1, bytes_up=10, bytes_down=10),
    run_volume=Volume(puts=1, gets=1, bytes_up=10, bytes_down=10),
    breakdown={"compute": 0.1},
    invocations=2,
)


@given(PREDICTION)
def test_a_prediction_is_itself_by_way_of_json(prediction: Prediction) -> None:
    tree = json.loads(json.dumps(dataclass_json.dump(prediction), allow_nan=False))
    assert dataclass_json.read(Prediction, tree, "p") == prediction


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["step_s"], -1, "p: step_s is -1: give a number from 0"),
        (["step_s"], "1", 'p: step_s is "1": give a number from 0'),
        (["step_s"], True, "p: step_s is true: give a number from 0"),
        (["step_s"], math.inf, "p: step_s is Infinity: give a number from 0"),
        (["price_list"], 3, "p: price_list is 3: give text"),
        (["invocations"], 1.5, "p: invocations is 1.5: give a whole number from 0"),
        (["memory_mib"], 300, "p: memory_mib is 300: give a list"),
        (["memory_mib", 0], None, "p: memory_mib[0] is null: give a number from 0"),
        (["by_kind"], [], "p: by_kind is a list: give an object"),
        (["by_kind", "compute"], -2, "p: by_kind.compute is -2"),
        (["run_volume", "puts"], -2, "p: run_volume.puts is -2: give a whole number from 0"),
        (["run_volume", "put"], 2, "p: run_volume has an unknown key 'put': give bytes_down"),
        (["run_volume"], 2, "p: run_volume is 2: give an object with bytes_down"),
        (["steps"], 2, "p has an unknown key 'steps'"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, words: str) -> None:
    tree = dataclass_json.dump(ONE)
    within = tree
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    with pytest.raises(RequestError) as refused:
        dataclass_json.read(Prediction, tree, "p")
    assert words in str(refused.value)


def test_what_is_missing_is_named() -> None:
    tree = dataclass_json.dump(ONE)
    del tree["run_volume"]["gets"]
    with pytest.raises(RequestError, match=r"p: run_volume lacks 'gets': add it"):
        dataclass_json.read(Prediction, tree, "p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "p is no JSON"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ("[]", "p holds no JSON object, but a list: it needs one, in braces"),
        ("[" * 100_000, "p is no JSON"),
    ],
)
def test_text_that_is_no_object(text: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        json_files.parse(text, "p")
    assert words in str(refused.value)
