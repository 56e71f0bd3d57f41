"""Merged layers: which become one, and that a plan of them is the same plan of the layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parts.enumerated.stages import every_point
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.merging import CRITERIA, MergedLayers, Merging
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverStore,
    memory_bytes,
    step_s,
    step_usd,
)
from tests.choose.pipelines_by_hand import assert_is_the_front, link_problems, store_problems


def over_store() -> StagesOverStore:
    """Time grows forwards, parameters backwards; activations are of the middle layers alone."""
    return StagesOverStore(
        layers=tuple(
            LayerBytes(
                parameter_bytes=parameters,
                activation_bytes=activations,
                output_bytes=10.0 + at,
                gradient_bytes=20.0 + at,
            )
            for at, (parameters, activations) in enumerate(
                [(8.0, 0.0), (4.0, 4.0), (2.0, 4.0), (1.0, 0.0), (1.0, 0.0)]
            )
        ),
        options=(
            MemoryOption(
                memory_mib=1,
                forward_s=(1.0, 1.0, 2.0, 4.0, 8.0),
                backward_s=(2.0, 2.0, 4.0, 8.0, 16.0),
                bytes_per_s=1.0,
                base_bytes=0.0,
                usd_per_s=1.0,
            ),
        ),
        degrees=(1,),
        micro_batches=1,
    )


@pytest.mark.parametrize(
    ("by", "firsts"), [("time", (0, 4)), ("parameters", (0, 1)), ("activations", (0, 2))]
)
def test_each_criterion_has_its_equal_shares(by: str, firsts: tuple[int, ...]) -> None:
    problem = over_store()
    layers = MergedLayers.of(problem, Merging(2, by))
    assert (layers.firsts, layers.merges) == (firsts, True)
    fewer = layers.merge(problem)
    assert sum(fewer.options[0].backward_s) == 32.0
    last, first = firsts[1] - 1, firsts[1]
    assert fewer.layers[0].output_bytes == problem.layers[last].output_bytes
    assert fewer.layers[1].gradient_bytes == problem.layers[first].gradient_bytes


def test_layers_that_weigh_nothing_are_merged_by_number() -> None:
    problem = over_store()
    nothing = replace(problem.layers[0], activation_bytes=0.0)
    light = replace(problem, layers=(nothing,) * 5)
    assert MergedLayers.of(light, Merging(2, "activations")).firsts == (0, 2)


def test_no_more_layers_than_asked_for_stay_as_they_are() -> None:
    problem = over_store()
    for merging in (None, Merging(5), Merging()):
        layers = MergedLayers.of(problem, merging)
        assert not layers.merges
        assert layers.merge(problem) is problem


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    problem=st.one_of(store_problems(), link_problems()),
    most=st.integers(2, 4),
    by=st.sampled_from(CRITERIA),
)
@pytest.mark.long
def test_the_search_is_that_of_every_cut_between_merged_layers(
    problem: Problem, most: int, by: str
) -> None:
    layers = MergedLayers.of(problem, Merging(most, by))
    assert len(layers.firsts) <= max(most, 2)
    fewer = layers.merge(problem)
    points = every_point(problem, layers.firsts)
    if not points:
        with pytest.raises(RequestError):
            choose(fewer)
        return
    found = choose(fewer).front
    whole = []
    for point in found.points:
        plan = layers.unmerged(point.plan)
        taken = step_s(problem, plan), step_usd(problem, plan)  # sums are rounded in another order
        assert taken == pytest.approx((point.seconds, point.usd), rel=1e-9)
        whole.append(Point(*taken, plan))
        assert memory_bytes(problem, plan) == pytest.approx(memory_bytes(fewer, point.plan))
    assert_is_the_front(Front.of(whole), points)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "--merge-layers 1: give 2 at least"),
        ("8:size", "--merge-layers 8:size: merge by time, parameters, activations"),
        ("few", "--merge-layers 'few': give a number, as 32, or 32:parameters"),
        ("8:", "--merge-layers 8:: merge by time"),
    ],
)
def test_what_is_no_merging(text: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        Merging.parse(text)
    assert said in str(refused.value)


def test_how_it_is_written() -> None:
    assert Merging.parse("32") == Merging(32, "time")
    assert Merging.parse("8:activations") == Merging(8, "activations")
