"""Dropout in a cut model: another in each micro-batch, the same when replayed and in every cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import nn

from dayfly.training.replica import build_model
from dayfly.training.stages.compute import Micro, Stage
from dayfly.training.stages.layers import build_stage
from dayfly.training.state import load_model_tensors, model_tensors
from dayfly.wire.pipelines.orders import BACKWARD, FORWARD, ORDERS
from tests.pipelines import nets
from tests.pipelines.taken import Named
from tests.pipelines.trained import boundaries, pipelining
from tests.training.jobs import one_thread

MICRO_BATCHES = 3
STEP, REPLICA = 4, 1


def dropping() -> nn.Module:
    """Two layers that drop, one of them in the width of the other."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.Dropout(0.5),
        nn.Linear(8, 8),
        nn.Sequential(nn.Tanh(), nn.Dropout(0.5)),
        nn.Linear(8, nets.CLASSES),
    ).double()


JOB = nets.job_of(dropping)
#: Every micro-batch has the same two samples.
DATA = nets.images(4, 1, 4)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def stages(cut: Sequence[int]) -> list[Stage]:
    """The stages with the weights that the seed decides, at the beginning of a step."""
    line = pipelining(boundaries(JOB, DATA), cut, 2, MICRO_BATCHES, "1f1b")
    whole = model_tensors(build_model(JOB))
    made = []
    for number in range(len(cut) + 1):
        built = build_stage(JOB, cut, number)
        own = model_tensors(built.model).keys()
        load_model_tensors(built.model, {name: whole[name] for name in own})
        made.append(Stage(JOB, built, line.received(number), line.sent(number)))
        made[-1].begin()
        made[-1].flat.begin()
    return made


def micro(number: int) -> Micro:
    weight = 1 / MICRO_BATCHES
    return Micro(number=number, samples=2, weight=weight, x=DATA.x[:2], y=DATA.y[:2])


def forward(
    line: Sequence[Stage], number: int, *, step: int = STEP, replica: int = REPLICA
) -> float:
    """The micro-batch's loss."""
    passed, before = None, line[-1].loss
    for stage in line:
        passed = stage.forward(micro(number), step, (replica, number), passed)
    return line[-1].loss - before


def train(cut: Sequence[int], schedule: str) -> tuple[float, Named]:
    """A step's loss and gradients, the last stage's passes in the order of the schedule."""
    line = stages(cut)
    order = ORDERS[schedule](len(cut), len(cut) + 1, range(MICRO_BATCHES))
    for work in order:
        if work.what == FORWARD:
            forward(line, work.micro_batch)
        elif work.what == BACKWARD:
            passed = None
            for stage in reversed(line):
                passed = stage.backward(micro(work.micro_batch), passed)
    gradients = {}
    for stage in line:
        stage.flat.end(1.0)
        stage.flat.spread()
        named = stage.model.named_parameters()
        gradients |= {name: p.grad.clone() for name, p in named if p.grad is not None}
    return line[-1].loss, gradients


def test_it_differs_by_micro_batch_step_and_replica() -> None:
    line = stages([2, 4])
    losses = [forward(line, number) for number in range(MICRO_BATCHES)]
    losses += [forward(line, 0, step=STEP + 1), forward(line, 0, replica=0)]
    assert len({round(loss, 9) for loss in losses}) == len(losses)


def test_it_is_the_same_when_replayed_in_any_order() -> None:
    one, other = stages([2, 4]), stages([2, 4])
    first = {number: forward(one, number) for number in (0, 1, 2)}
    torch.manual_seed(99)  # what a worker that started again drew before
    again = {number: forward(other, number) for number in (2, 0, 1)}
    assert again == pytest.approx(first, rel=0, abs=1e-15)


def test_layers_drop_apart() -> None:
    """Each draws by its number, so two layers of one shape drop other places."""
    kept = []
    for number in (2, 4):
        line = stages([number, number + 1])
        width = torch.ones(2, 8, dtype=torch.float64)
        sent = line[1].forward(micro(0), STEP, (REPLICA, 0), width.view(torch.uint8).reshape(-1))
        assert sent is not None
        kept.append(sent.view(torch.float64) != 0)
    assert not torch.equal(*kept)


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize("cut", [[2], [3], [2, 3], [1, 4, 5], [1, 2, 3, 4, 5]], ids=str)
def test_it_depends_neither_on_the_cut_nor_on_the_schedule(cut: list[int], schedule: str) -> None:
    loss, gradients = train([1], "fill-drain")
    cut_loss, cut_gradients = train(cut, schedule)
    assert cut_loss == loss
    assert cut_gradients.keys() == gradients.keys() == dict(dropping().named_parameters()).keys()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, cut_gradients[name]), name


class Always(nn.Module):
    """Drops in evaluation mode, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5)


def always_dropping() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), Always(), nn.Linear(8, nets.CLASSES)
    ).double()


def test_a_stage_that_draws_in_a_validation_draws_the_same_again() -> None:
    """A middle stage has no samples, by which the generators are seeded where they are fetched."""
    job = nets.job_of(always_dropping)
    line = pipelining(boundaries(job, DATA), [2, 3], 2, MICRO_BATCHES, "1f1b")
    built = build_stage(job, [2, 3], 1)
    stage = Stage(job, built, line.received(1), line.sent(1))
    one = Micro(number=0, samples=2, weight=1.0)

    def evaluated(first: int) -> bytes:
        received = torch.ones(2, 8, dtype=torch.float64).view(torch.uint8).reshape(-1)
        found: bytes = stage.evaluate(one, first, received).numpy().tobytes()
        return found

    before = evaluated(0), evaluated(2)
    torch.manual_seed(99)  # what a worker that started again drew before
    assert (evaluated(0), evaluated(2)) == before
    assert before[0] != before[1]
