"""Predictions of streaming: what a round does in which order, what it takes, moves and keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.configuration import Configuration, kept_bytes
from dayfly.planning.epochs import epoch_of
from dayfly.planning.local_rounds import Apply, Inner, SumTimes, Take, course
from dayfly.planning.predict import predict
from dayfly.planning.ranks import ChannelModel
from dayfly.specs.methods import Method
from dayfly.specs.streaming import Streaming
from tests.planning.by_hand import given, profile, size
from tests.planning.test_predict import AWS, ONE, PASS_S, over, predicted

NESTEROV: dict[str, Any] = {
    "workers": 2,
    "collective": "scatter-reduce",
    "sync": "local-sgd",
    "k": 4,
    "outer": "nesterov",
}
#: Seconds of a step's passes, and of the sum of all parameters.
STEP_S, SUM_S = 20 * PASS_S, 0.192


def of(fragments: int, overlap: int) -> dict[str, Any]:
    return {**NESTEROV, "streaming": Streaming(fragments=fragments, overlap=overlap)}


def inner(start: int, stop: int) -> Inner:
    return Inner(range(start, stop))


def test_what_the_training_thread_does_in_a_round() -> None:
    assert course(Streaming(fragments=2, overlap=1), 4, closes=False) == [
        *(inner(0, 1), Apply(1, 1), inner(1, 2), Take(0)),
        *(inner(2, 3), Apply(0, 0), inner(3, 4), Take(1)),
    ]
    assert course(Streaming(fragments=2, overlap=3), 4, closes=False) == [
        *(inner(0, 1), Apply(0, 1), inner(1, 2), Take(0)),
        *(inner(2, 3), Apply(1, 1), inner(3, 4), Take(1)),
    ]
    assert course(Streaming(fragments=2, overlap=0), 3, closes=False) == [
        *(inner(0, 2), Take(0), Apply(0, 0), inner(2, 3), Take(1), Apply(1, 0)),
    ]
    assert course(Streaming(fragments=2, overlap=9), 4, closes=True) == [
        *(inner(0, 2), Take(0), inner(2, 4), Take(1), Apply(0, 0), Apply(1, 0)),
    ]


@pytest.mark.parametrize(
    ("fragments", "overlap", "waited_s"),
    [
        (1, 0, SUM_S),
        (2, 0, SUM_S),
        (1, 2, SUM_S - 2 * STEP_S),
        (2, 1, SUM_S - 2 * STEP_S),
        (2, 2, 0.0),
    ],
)
def test_a_sum_is_waited_for_as_far_as_it_takes_longer_than_the_steps_beside_it(
    fragments: int, overlap: int, waited_s: float
) -> None:
    asked = of(fragments, overlap)
    found = predicted(over(0.0), **asked)
    assert found.step_s == pytest.approx(STEP_S + waited_s / 4, rel=0.02)
    c = Configuration(memory_mib=(1024,), batch_size=40, **asked)
    many = predict(over(0.0), c, AWS, most_simulated=1)
    assert many.step_s == pytest.approx(found.step_s, rel=0.02)
    plain = predicted(over(0.0), **NESTEROV)
    ratio = found.step_volume.bytes_up / plain.step_volume.bytes_up
    assert ratio == pytest.approx(1, rel=0.01)
    assert found.step_volume.puts == fragments * plain.step_volume.puts


@pytest.mark.parametrize("most_simulated", [64, 1])
def test_an_epoch_waits_for_all_sums_where_its_last_round_is_a_whole_one(
    most_simulated: int,
) -> None:
    """Taken beside two steps, the last sum of an epoch is waited for as if there were none."""
    c = Configuration(memory_mib=(1024,), batch_size=40, **{**of(1, 2), "k": 5})
    known = over(0.0)
    assert known.samples % (5 * 40) == 0
    found = epoch_of(known, c, ChannelModel.of(known), most_simulated)
    rounds = known.samples // (5 * 40)
    waited_s = found.trained.seconds - found.steps * STEP_S
    assert waited_s == pytest.approx(rounds * SUM_S - (rounds - 1) * 2 * STEP_S, rel=0.02)
    problem = DataParallelProblem(
        profile=known,
        platform=AWS,
        workers=(2,),
        collectives=("scatter-reduce",),
        micro_batches=(1,),
        batch_size=40,
        method=Method.parse("nesterov:5+fragments=1+overlap=2"),
    )
    each_s = problem.waited_s(STEP_S, 0.0, [SumTimes(SUM_S, SUM_S, SUM_S)])
    assert each_s * found.steps == pytest.approx(waited_s, rel=0.02)


def test_a_checkpoint_has_each_workers_own_parameters() -> None:
    known = over(0.0)
    plain, streamed = (
        kept_bytes(known, Configuration(memory_mib=(1024,), batch_size=40, **asked), known.layers)
        for asked in (NESTEROV, of(2, 1))
    )
    assert streamed[0] == plain[0]
    assert streamed[1] == plain[1] + 960_000


def test_a_longer_checkpoint_takes_longer_where_large_messages_are_faster() -> None:
    """One wrote 960 kB and a momentum of as many. Of two, each writes as many of its own, and half
    of as many that they share: half more, at the most bytes a second that there are."""
    saturating = replace(over(0.0).sizes[0].up, saturation_per_byte=1e-5)
    known = profile([ONE], size(1, end_s=given(0.5), up=saturating), validation_samples=0)
    ended_s = [
        found.total_s - found.startup_s - found.train_s
        for found in (predicted(known, workers=1), predicted(known, **of(2, 1)))
    ]
    more_s = 960_000 / saturating.peak_bytes_per_s.value
    assert ended_s == pytest.approx([0.5, 0.5 + more_s], rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({**of(5, 1)}, "--fragments 5 are more than the 4 steps"),
        ({**of(2, 1), "outer": None}, "are for an outer optimizer"),
    ],
)
def test_what_cannot_be_is_not_predicted(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        predicted(over(0.0), **asked)
