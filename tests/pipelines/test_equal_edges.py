"""What a pipeline trains where there is little or nothing of something; see test_equal.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives.conformance_world import LinkedChannel as Distant
from dayfly.wire.pipelines.orders import ORDERS
from tests.pipelines import nets
from tests.pipelines.case import Case, score
from tests.training.jobs import one_thread

#: As in memory by one schedule, as over a link by the other.
WAYS = tuple(zip(ORDERS, (FileChannel, Distant), strict=True))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def case_of(model: Callable[[], nn.Module] = nets.cnn, **changes: Any) -> Case:
    """Two batches of images, 8 and 5 of them, in 3 micro-batches, unless it is said otherwise."""
    samples = changes.pop("samples", 13)
    micro_batches = changes.pop("micro_batches", 3)
    job = nets.job_of(model, **{"batch_size": 8, "metrics": {"score": score}, **changes})
    data, unseen = nets.images(samples, 1, 4), nets.images(5, 1, 4, seed=1)
    return Case.of(job, data, unseen, micro_batches=micro_batches)


def check(case: Case, *cuts: list[int]) -> None:
    """With a replica and with two, by one schedule and by the other, in turns."""
    for turn, cut in enumerate(cuts):
        for replicas in (1, 2):
            schedule, kind = WAYS[(turn + replicas) % 2]
            case.check(cut, replicas, schedule, kind)


def test_one_micro_batch() -> None:
    check(case_of(micro_batches=1), [4], [2, 5, 8])


@pytest.mark.long
def test_fewer_samples_than_micro_batches() -> None:
    """A replica's last batch has two or three samples, in six micro-batches."""
    check(case_of(micro_batches=6), [4], [2, 5, 8])


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.long
def test_a_replica_without_samples(micro_batches: int) -> None:
    """The last batch is one sample, which is the second replica's."""
    check(case_of(samples=9, micro_batches=micro_batches), [4], [2, 5, 8])


@pytest.mark.long
def test_stages_without_parameters() -> None:
    """ReLU alone; pooling and ReLU; Flatten alone. In their replicas nothing is summed."""
    check(case_of(), [2, 3], [5, 7], [8, 9])


def flatten_first() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)
    ).double()


def test_a_first_stage_that_has_nothing_to_learn() -> None:
    """No gradients come back to it."""
    check(case_of(flatten_first), [1], [1, 2], [1, 3])


def frozen_first() -> nn.Module:
    """Weights that stay, whose statistics move; and one that no pass reaches."""
    model = nets.cnn()
    for layer in list(model.children())[:5]:
        layer.requires_grad_(False)
    last = model[-1]
    assert isinstance(last, nn.Linear)
    last.spare = nn.Parameter(torch.ones(3, dtype=torch.float64))
    return model


@pytest.mark.long
def test_a_stage_whose_weights_stay() -> None:
    case = case_of(frozen_first)
    assert len(case.whole[1][0][0].gradients) == 4
    check(case, [1], [4], [3, 7])


@pytest.mark.parametrize("clip_norm", [0.05, 1e6])
@pytest.mark.long
def test_the_gradient_of_the_whole_model_is_clipped(clip_norm: float) -> None:
    case = case_of(clip_norm=clip_norm)
    gradients = case.whole[1][0][0].gradients.values()
    norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
    assert norm == pytest.approx(0.05, rel=1e-3) if clip_norm < 1 else norm > 0.1
    check(case, [4], [2, 5, 8], [8, 9])


@pytest.mark.long
def test_adamw_with_groups_over_several_steps() -> None:
    """A stage of convolutions has both groups, one of BatchNorm only the second's parameters."""
    job = nets.job_of(nets.cnn, optimizer=nets.adamw, batch_size=5)
    data, unseen = nets.images(23, 1, 4), nets.images(5, 1, 4, seed=1)
    check(Case.of(job, data, unseen, micro_batches=2, steps=5), [3], [1, 2], [2, 5, 8])


def test_nothing_to_compare_is_found() -> None:
    """The comparison itself: another seed's training is not equal."""
    case = case_of()
    other = case_of(seed=1)
    case.whole = other.whole
    with pytest.raises(AssertionError, match="apart"):
        case.check([4], 1, "1f1b")
