"""Losses with denominators of their own: any number of workers gives the numbers of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.errors import RequestError
from dayfly.training.combining import weighting_of
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.replica import build_model
from tests.training.jobs import Pairs, World, bits, clusters, job, one_thread
from tests.training.local_world import LocalWorld

WEIGHTS = torch.tensor([4.0, 1.0, 0.25, 2.0])


def ignoring(samples: int = 40) -> Pairs:
    """Half of the labels are ignored, and all of some micro-batches."""
    data = clusters(samples)
    return Pairs(data.x, data.y.masked_fill(torch.arange(samples) % 8 < 4, -100))


def tokens(samples: int = 40, *, padded: bool) -> Pairs:
    """x (samples, 5, 6), y (samples, 5), of which padding is 9."""
    torch.manual_seed(3)
    y = torch.randint(0, 4, (samples, 5))
    if padded:
        y[torch.arange(5) > torch.arange(samples)[:, None] % 5] = 9
    return Pairs(torch.randn(samples, 5, 6), y)


def class_weights(outputs: Any, targets: Any) -> torch.Tensor:
    """As a user writes it: torch's loss inside a function."""
    return 1.5 * F.cross_entropy(outputs, targets, weight=WEIGHTS) + 0.1


def log_likelihood(outputs: Any, targets: Any) -> torch.Tensor:
    return nn.NLLLoss(weight=WEIGHTS)(F.log_softmax(outputs, dim=1), targets)


def of_tokens(outputs: Any, targets: Any) -> torch.Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=9)


def masked(model: nn.Module, batch: Any) -> Any:
    """A step that says what it divided by."""
    x, y = batch
    outputs, mask = model(x), y != 9
    each = F.cross_entropy(outputs.transpose(1, 2), y.clamp(max=3), reduction="none")
    return {"loss": (each * mask).sum() / mask.sum(), "outputs": outputs, "weight": mask.sum()}


CASES: dict[str, tuple[dict[str, Any], Pairs, str]] = {
    "class weights": ({"loss": class_weights}, clusters(), "torch"),
    "weighted nll": ({"loss": log_likelihood}, clusters(), "torch"),
    "ignored": ({"loss": F.cross_entropy}, ignoring(), "torch"),
    "token mean": ({"loss": of_tokens}, tokens(padded=True), "torch"),
    "weight of a step": ({"loss": None, "step": masked}, tokens(padded=True), "step"),
    "torch's in a step": (
        {"loss": None, "step": lambda m, b: class_weights(m(b[0]), b[1])},
        clusters(),
        "torch",
    ),
}


def found(asked: Any, data: Pairs, samples: int = 8) -> Weighting:
    return weighting_of(asked, build_model(asked), [data[at] for at in range(samples)])


def loss_of(asked: Any, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if asked.step is None:
        return asked.loss(model(x), y)
    result = asked.step(model, (x, y))
    return result["loss"] if isinstance(result, dict) else result


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("workers", "accumulate"), [(1, 3), (2, 1), (4, 2)])
def test_the_gradient_is_that_of_the_whole_batch(name: str, workers: int, accumulate: int) -> None:
    changes, data, by = CASES[name]
    asked = job(accumulate=accumulate, **changes)
    weighting = found(asked, data)
    assert weighting.by == by
    world = World(asked, data, workers, weighting=weighting)
    for _ in range(2):
        model = build_model(asked)
        model.load_state_dict(world.replicas[0].model.state_dict())
        indices = torch.from_numpy(world.epochs.indices(world.at, 0, 1))
        loss = loss_of(asked, model, data.x[indices], data.y[indices])
        loss.backward()
        before = [p.detach().clone() for p in world.replicas[0].model.parameters()]
        assert world.step() == pytest.approx(loss.item(), rel=1e-6)
        for own, plain in zip(world.steps[0].flat.found(), model.parameters(), strict=True):
            torch.testing.assert_close(own, plain.grad, rtol=1e-5, atol=1e-6)
        assert any(
            not torch.equal(p, q)
            for p, q in zip(world.replicas[0].model.parameters(), before, strict=True)
        )


def test_where_nothing_is_ignored_the_bits_are_those_of_a_mean_over_samples() -> None:
    data, asked = tokens(padded=False), job(loss=of_tokens, accumulate=3)
    weighting = found(asked, data)
    assert weighting == Weighting("torch", 5.0), "targets of other batches may be ignored"
    with one_thread():
        worlds = [World(asked, data, 3, weighting=one) for one in (SAMPLES, weighting)]
        losses = [[world.step() for _ in range(4)] for world in worlds]
    assert losses[0] == losses[1]
    assert bits(worlds[0].replicas[0].model) == bits(worlds[1].replicas[0].model)


def test_a_batch_that_is_ignored_as_a_whole_changes_nothing_and_has_no_loss() -> None:
    data = Pairs(clusters().x, torch.full((40,), -100))
    asked = job(optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
    world = World(asked, data, 2, weighting=Weighting("torch"))
    before = bits(world.replicas[0].model)
    assert repr(world.step()) == "nan"
    assert bits(world.replicas[0].model) == before


def test_local_sgd_reports_the_loss_of_the_whole_batch() -> None:
    data, asked = clusters(), job(loss=class_weights, accumulate=2)
    world = LocalWorld(asked, data, 3, k=1, weighting=found(asked, data))
    indices = torch.from_numpy(world.epochs.indices(0, 0, 1))
    loss = class_weights(build_model(asked)(data.x[indices]), data.y[indices])
    assert world.round() == [pytest.approx(loss.item(), rel=1e-6)]


def test_local_sgd_takes_the_step_of_its_own_slice() -> None:
    data, asked = ignoring(), job(optimizer=lambda p: torch.optim.SGD(p, lr=0.3), accumulate=2)
    world = LocalWorld(asked, data, 2, k=1, weighting=found(asked, data))
    model = build_model(asked)
    indices = torch.from_numpy(world.epochs.indices(0, 1, 2))
    F.cross_entropy(model(data.x[indices]), data.y[indices]).backward()
    world.locals[1].begin_round()
    world.train_alone(1, [0])
    for own, plain in zip(world.replicas[1].model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own, plain - 0.3 * plain.grad, rtol=1e-5, atol=1e-6)


def mean_of_squares(outputs: Any, targets: Any) -> torch.Tensor:
    return ((outputs - F.one_hot(targets, 4)) ** 2).mean()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
        {"loss": mean_of_squares},
        {"loss": lambda o, t: F.cross_entropy(o, F.one_hot(t, 4).float())},
        {"loss": None, "step": lambda m, b: (F.cross_entropy(m(b[0]), b[1]), None)},
        {"loss": lambda o, t: F.cross_entropy(F.dropout(o, 0.5), t)},
    ],
)
def test_means_over_samples_stay_what_they_were(changes: dict[str, Any]) -> None:
    assert found(job(**changes), clusters()) == SAMPLES


def zeros() -> nn.Module:
    """All losses are log(4), whatever the weights."""
    model = nn.Linear(6, 4)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def of_own_mean(outputs: Any, targets: Any) -> torch.Tensor:
    """What torch does with class weights, in a user's own words."""
    weights = WEIGHTS[targets]
    each = F.cross_entropy(outputs, targets, reduction="none")
    return (weights * each).sum() / weights.sum()


def contrastive(outputs: Any, targets: Any) -> torch.Tensor:
    likeness = outputs @ outputs.T
    return F.cross_entropy(likeness, torch.arange(len(outputs)))


def in_a_step(loss: Any) -> dict[str, Any]:
    return {"loss": None, "step": lambda model, batch: loss(model(batch[0]), batch[1])}


NO_MEAN = "loss is no mean over its samples, so workers cannot share a batch: of 8 samples it is "


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"loss": of_own_mean}, NO_MEAN),
        ({"loss": of_own_mean, "model": zeros}, NO_MEAN),
        ({"loss": contrastive}, NO_MEAN),
        (in_a_step(of_own_mean), NO_MEAN),
        (in_a_step(contrastive), NO_MEAN),
        ({"loss": lambda o, t: F.mse_loss(o, o * 0, reduction="sum")}, "is a sum over its samples"),
        (in_a_step(lambda o, t: F.cross_entropy(o, t, reduction="sum")), "is a sum over its"),
        (
            {"loss": lambda o, t: class_weights(o, t) + F.cross_entropy(o, t, weight=WEIGHTS**2)},
            NO_MEAN,
        ),
    ],
)
def test_what_is_no_mean_is_refused_with_the_way_out(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        found(job(**changes), clusters())
    assert text in str(caught.value)
    assert "make it their mean" in str(caught.value)
    if text is NO_MEAN:
        assert "a mapping of loss, outputs, targets and weight" in str(caught.value)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"outputs": 1}, "a mapping that has no loss"),
        ({"loss": 1, "wieght": 2}, "a mapping that has wieght: return loss, and of outputs"),
        ({"loss": 1, "weight": -1}, "the weight -1: return what the loss was divided by"),
        ({"loss": 1, "weight": "all"}, "the weight str"),
        ((1, 2, 3), "a tuple of 3: return the loss, (loss, outputs), or a mapping"),
    ],
)
def test_wrong_results_of_a_step(result: Any, text: str) -> None:
    with pytest.raises(
        RequestError, match=r"(?s).*" + text.replace("(", r"\(").replace(")", r"\)")
    ):
        found(job(loss=None, step=lambda model, batch: result), clusters())
