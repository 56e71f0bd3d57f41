"""State as JSON and tensors: there and back without loss, refused where that cannot be."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dayfly.errors import RequestError
from dayfly.training.state import (
    Tensors,
    decode,
    encode,
    load_model_tensors,
    model_tensors,
    state_digests,
)

keys = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
leaves = keys | st.floats()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(keys | st.tuples(keys, keys), inner, max_size=4)
    ),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    tensors: Tensors = {}
    tree = encode(value, "here", tensors)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), tensors)


def same(a: Any, b: Any) -> bool:
    """Equal in value and type at any depth; NaN is itself, -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, torch.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return len(a) == len(b) and all(same(x, y) for both in pairs for x, y in zip(*both))  # noqa: B905
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@given(trees)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(there_and_back(value), value)


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        -math.inf,
        math.nan,
        -0.0,
        5e-324,
        2**100,
        (),
        [(), [()], {}],
        {1: "a", "1": "b", None: 1, False: 2},
        Counter({30: 1, 80: 2}),
        deque([1, 2], maxlen=3),
        {"$tensor": "no", "$tuple": [1]},
        "$tuple",
    ],
    ids=repr,
)
def test_values_that_json_lacks(value: Any) -> None:
    assert same(there_and_back(value), value)
    assert getattr(there_and_back(value), "maxlen", None) == getattr(value, "maxlen", None)


def test_kinds_of_dict_come_back_as_plain_ones() -> None:
    assert same(there_and_back(OrderedDict(b=1, a=2)), {"b": 1, "a": 2})
    assert same(there_and_back(defaultdict(list, a=[1])), {"a": [1]})
    assert same(there_and_back(np.float32(0.5)), 0.5)
    assert same(there_and_back([np.int64(7), np.bool_(True)]), [7, True])
    assert same(there_and_back([np.float64("inf"), np.float32("nan")]), [math.inf, math.nan])


def test_tensors_stay_tensors_under_names_of_their_own() -> None:
    """Keys such as 1 and "1", or a dot in a key, must not make two tensors one."""
    value = {
        1: torch.tensor(1.0),
        "1": torch.tensor([2], dtype=torch.int8),
        "a": {"b": torch.tensor(3.0, dtype=torch.bfloat16)},
        "a.b": torch.tensor(True),
        "list": [torch.empty(0, 2), torch.tensor(1 + 1j)],
    }
    assert same(there_and_back(value), value)


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        ({"state": {0: {"seen": {1, 2}}}}, "here.state.0.seen", "set"),
        ([1, (2, object())], "here.1.1", "object"),
        ({"f": len}, "here.f", "builtin"),
        ({(1, 2): b"bytes"}, "here.(1, 2)", "bytes"),
        ([Pair(1, 2)], "here.0", "Pair"),
        ({"array": np.ones(2)}, "here.array", "ndarray"),
        ({"array": np.ones(1)}, "here.array", "ndarray"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_place(value: Any, place: str, kind: str) -> None:
    with pytest.raises(RequestError) as refused:
        encode(value, "here", {})
    text = str(refused.value)
    assert text.startswith(f"{place} holds a {kind}")
    assert "which a checkpoint cannot keep: use numbers" in text


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown tag '\$pickle'"):
        decode({"$pickle": "x"}, {})


class Model(nn.Module):
    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.a = nn.Linear(size, size)
        self.tied = self.a
        self.register_buffer("hidden", torch.ones(1), persistent=False)


def test_a_models_tensors_are_all_that_it_keeps_shared_ones_once() -> None:
    assert list(model_tensors(Model())) == ["a.weight", "a.bias", "hidden"]
    a, b = Model(), Model()
    b.hidden += 4
    load_model_tensors(a, model_tensors(b))
    assert same(model_tensors(a), model_tensors(b))
    assert a.a.weight.requires_grad


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda: Model(3), "a.weight is [3, 3], not [2, 2]"),
        (lambda: nn.Linear(2, 2), "a.bias, a.weight, bias differ"),
    ],
)
def test_another_models_tensors_are_refused(other: Any, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        load_model_tensors(Model(), model_tensors(other()))
    assert str(refused.value) == f"the weights are another model's: {text}"


def test_equal_states_have_equal_digests_however_they_lie_in_memory() -> None:
    weight = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    tree, tensors = {"a": 1, "b": [2]}, {"w": weight, "n": torch.tensor(3)}
    same = {"n": torch.tensor(3), "w": weight.t().contiguous().t()}
    assert state_digests(tree, tensors) == state_digests({"b": [2], "a": 1}, same)
    others = [
        ({**tree, "a": 2}, tensors),
        (tree, {**tensors, "w": weight + 1}),
        (tree, {**tensors, "w": weight.reshape(3, 2)}),
        (tree, {**tensors, "n": torch.tensor(3, dtype=torch.int32)}),
        (tree, {"w": weight, "m": torch.tensor(3)}),
    ]
    assert len({state_digests(*state)[0] for state in [(tree, tensors), *others]}) == 6


def test_sums_of_stages_are_those_of_the_whole_model() -> None:
    names = ["model.a", "model.b", "ema.a", "optimizer.state.a.step", "outer.state.a", "lag.a"]
    tensors = {name: torch.tensor([float(at)]) for at, name in enumerate(names)}
    _, whole = state_digests({"of": "the whole"}, tensors)
    parts = [
        state_digests({}, {name: one for name, one in tensors.items() if (name == "model.b") is b})
        for b in (False, True)
    ]
    sums = [
        {what: int(text, 16) for what, text in one.items()}
        for one in (whole, *(s for _, s in parts))
    ]
    assert list(sums[0]) == ["moving average", "weights", "optimizer state"]
    assert sums[2].keys() == {"weights"}
    together = {what: (one + sums[2].get(what, 0)) % 2**128 for what, one in sums[1].items()}
    assert together == sums[0]
    _, other = state_digests({}, {**tensors, "model.b": torch.tensor([9.0])})
    assert {what for what in whole if whole[what] != other[what]} == {"weights"}
