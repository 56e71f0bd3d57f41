"""A profile survives being written and read; a wrong key, type or sign is named."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.planning.profile import (
    Affine,
    Figure,
    Fit,
    LayerBytes,
    Pass,
    Profile,
    SizeProfile,
    Transfer,
    dump_profile,
    load_profile,
    parse_profile,
    profile_text,
)

seconds = st.floats(0.0, 1e6)
above = st.floats(1e-9, 1e12)
affines = st.builds(Affine, seconds, seconds)
whole = st.integers(0, 2**40)


@st.composite
def figures(draw: st.DrawFn, of: st.SearchStrategy[float]) -> Figure:
    low, value, high = sorted(draw(st.tuples(of, of, of)))
    return Figure(value, low, high, draw(st.integers(0, 99)))


transfers = st.builds(
    Transfer,
    latency_s=figures(seconds),
    peak_bytes_per_s=figures(above),
    saturation_per_byte=above | st.just(math.inf),
    cpu_s=seconds,
    cpu_s_per_byte=seconds,
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layers = draw(st.integers(1, 3))
    passes = st.builds(
        Pass,
        samples=st.integers(1, 10**6),
        forward=st.lists(figures(seconds), max_size=layers).map(tuple),
        backward=st.lists(figures(seconds), max_size=layers).map(tuple),
        data=figures(seconds),
        held_mib=st.none() | seconds,
    )
    each = st.lists(affines, min_size=layers, max_size=layers).map(tuple)
    trained = draw(whole)
    memories: list[int | None] = [*sorted(draw(st.sets(st.integers(1, 10240), max_size=2)))]
    if not memories or draw(st.booleans()):
        memories.append(None)
    return Profile(
        job=draw(st.text()),
        platform="local",
        imitate=draw(st.none() | st.text()),
        channel=draw(st.text()),
        listed=layers > 1,
        samples=draw(st.integers(1, 10**9)),
        validation_samples=draw(whole),
        sample_bytes=draw(seconds),
        state_per_trained_byte=draw(seconds),
        layers=tuple(
            LayerBytes(name=f"{n}", parameters=trained + n, trained=trained, output=draw(seconds))
            for n in range(layers)
        ),
        sizes=tuple(
            SizeProfile(
                memory_mib=memory,
                cpu_cores=draw(st.none() | above),
                cpu_period_s=draw(seconds),
                forward=draw(each),
                backward=draw(each),
                data=draw(affines),
                apply=draw(affines),
                step_s=draw(figures(seconds)),
                reduce_s_per_byte=draw(seconds),
                up=draw(transfers),
                down=draw(transfers),
                beta=draw(figures(above)),
                sum_cpu_s=draw(seconds),
                pass_cpu_s=draw(seconds),
                crowd=draw(figures(st.floats(1.0, 100.0))),
                crowd_cores=draw(seconds),
                jitter=draw(seconds),
                init_s=draw(figures(seconds)),
                start_s=draw(figures(seconds)),
                end_s=draw(figures(seconds)),
                base_mib=draw(figures(seconds)),
                passes=draw(st.lists(passes, max_size=2).map(tuple)),
            )
            for memory in memories
        ),
        fit=draw(st.none() | st.builds(Fit, a=above, b=seconds, m=st.floats(-9, 9), error=seconds)),
        how=draw(st.text()),
        took_s=draw(seconds),
        machine=draw(st.none() | st.just({"cpu": "x", "cores": 2})),
    )


@settings(max_examples=40)
@given(profiles())
def test_written_and_read(profile: Profile) -> None:
    text = profile_text(profile)
    assert parse_profile(text, "profile.json") == profile
    assert json.loads(text) == dump_profile(profile)


def _line(fixed: float) -> dict[str, float]:
    return {"fixed": fixed, "each": 0.0}


def by_hand() -> dict[str, Any]:
    """As few keys as a profile can have."""
    way = {"latency_s": 0.01, "peak_bytes_per_s": 7e7}
    return {
        "version": 1,
        "job": "mine",
        "platform": "aws-lambda",
        "imitate": None,
        "channel": "s3",
        "listed": False,
        "samples": 1000,
        "validation_samples": 100,
        "sample_bytes": 784,
        "state_per_trained_byte": 1,
        "layers": [{"name": "all", "parameters": 400, "trained": 400}],
        "sizes": [
            {
                "memory_mib": 1024,
                "cpu_cores": 0.5,
                "forward": [_line(0.1)],
                "backward": [_line(0.2)],
                "data": _line(0.0),
                "apply": _line(0.0),
                "step_s": 0.001,
                "reduce_s_per_byte": 1e-9,
                "up": way,
                "down": way,
                "beta": 1.1,
                "init_s": 0.2,
                "start_s": 1,
                "end_s": 0.1,
                "base_mib": 300,
            }
        ],
    }


def test_by_hand() -> None:
    profile = load_profile(by_hand())
    size = profile.size(1024)
    assert size.step_s == Figure.given(0.001)
    assert size.up.saturation_per_byte == math.inf
    assert size.up.message_s(7e6) == pytest.approx(0.11)
    assert profile.fit is None


REMOVED = object()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["version"], 2, "p.json is of version 2, and this dayfly reads 1: measure it anew"),
        (["version"], REMOVED, "lacks 'version'"),
        (["jobs"], "x", "unknown key 'jobs'"),
        (["job"], 3, "p.json: job is 3: give text"),
        (["listed"], 1, "p.json: listed is 1: give true or false"),
        (["samples"], 0, "p.json: samples is 0"),
        (["samples"], 1.5, "p.json: samples is 1.5: give a whole number"),
        (["sample_bytes"], -1, "p.json: sample_bytes is -1: give a number from 0"),
        (["layers"], [], "layers is empty"),
        (["layers"], {}, "p.json: layers is an object: give a list"),
        (["layers", 0, "trained"], 401, "layers[0]: trains 401 bytes of 400"),
        (["layers", 0, "trained"], True, "p.json: layers[0].trained is true"),
        (["sizes"], [], "sizes is empty"),
        (["sizes", 0, "memory_mib"], 0, "sizes[0].memory_mib is 0"),
        (["sizes", 0, "cpu_cores"], 0, "sizes[0].cpu_cores is 0: give a number above 0"),
        (["sizes", 0, "forward"], [], "sizes[0].forward has 0 entries, and there are 1 layers"),
        (["sizes", 0, "forward", 0, "each"], -1.0, "sizes[0].forward[0].each is -1"),
        (["sizes", 0, "forward", 0, "each"], "1", 'sizes[0].forward[0].each is "1": give a number'),
        (["sizes", 0, "beta"], None, "sizes[0].beta is null: give a number"),
        (["sizes", 0, "beta"], {"value": 1}, "sizes[0].beta lacks"),
        (
            ["sizes", 0, "beta"],
            {"value": 1, "low": 2, "high": 3, "count": 1},
            "sizes[0].beta: give low <= value <= high",
        ),
        (["sizes", 0, "up", "peak_bytes_per_s"], 0, "up.peak_bytes_per_s is 0: give a number"),
        (["fit"], {"a": 1, "b": 1, "m": 1}, "p.json: fit lacks 'error'"),
        (["decline"], [[8, 1], [4, 0.5]], "p.json: decline: give rising numbers of functions"),
        (["decline"], [[8, 1.5]], "p.json: decline: give the parts that are left, above 0"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, said: str) -> None:
    tree = by_hand()
    here: Any = tree
    for step in path[:-1]:
        here = here[step]
    if value is REMOVED:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    with pytest.raises(RequestError) as raised:
        load_profile(tree, "p.json")
    assert said in str(raised.value)


def test_no_json_and_no_numbers() -> None:
    with pytest.raises(RequestError, match=r"p\.json is no JSON"):
        parse_profile("{", "p.json")
    text = json.dumps(by_hand()).replace("0.001", "NaN")
    with pytest.raises(RequestError, match="NaN is no number of JSON"):
        parse_profile(text, "p.json")


def test_layers_and_sizes_fit_each_other() -> None:
    tree = by_hand()
    tree["sizes"] *= 2
    with pytest.raises(RequestError, match="sizes must rise by memory_mib"):
        load_profile(tree)
    tree = by_hand()
    tree["layers"] *= 2
    with pytest.raises(RequestError, match="one entry in layers, not 2"):
        load_profile(tree)
