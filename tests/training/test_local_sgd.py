"""Local SGD: rounds, means, and what the mean of the optimizer's state is good for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from dayfly.training.averaging import Averaging
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, build_model
from tests.training.jobs import (
    Pairs,
    bits,
    clusters,
    job,
    one_thread,
    perceptron,
    with_batch_norm,
)
from tests.training.local_world import LocalWorld
from tests.training.test_gradients import OPTIMIZERS, Tied, Unused, plain_loop

DATA = clusters(40)


def test_rounds_of_two_steps_in_epochs_of_five() -> None:
    rounds = Rounds(Epochs(samples=45, batch_size=10, seed=0), 2)
    assert [rounds.steps(step) for step in range(7)] == [
        range(2), range(2), range(2, 4), range(2, 4), range(4, 5), range(5, 7), range(5, 7)
    ]  # fmt: skip
    assert [rounds.number(step) for step in range(8)] == [0, 0, 1, 1, 2, 3, 3, 4]


def test_rounds_of_four_steps_in_epochs_of_nine_that_begin_anew_with_a_step() -> None:
    rounds = Rounds(Epochs(samples=90, batch_size=10, seed=0), 4, 15)
    starts = [step for step in range(27) if rounds.steps(step).start == step]
    assert starts == [0, 4, 8, 9, 11, 15, 18, 22, 26]
    assert [rounds.number(step) for step in starts] == list(range(9))
    assert Rounds(rounds.epochs, None, 15).steps(16) == range(15, 18)


@given(
    samples=st.integers(1, 200),
    batch_size=st.integers(1, 40),
    k=st.none() | st.integers(1, 30),
    step=st.integers(0, 300),
    begun=st.integers(0, 300),
)
def test_rounds_follow_one_another(
    samples: int, batch_size: int, k: int | None, step: int, begun: int
) -> None:
    epochs = Epochs(samples, batch_size, 0)
    rounds = Rounds(epochs, k, begun)
    assert rounds.steps(begun).start == begun
    assert rounds.number(0) == 0
    steps = rounds.steps(step)
    assert step in steps
    assert len(steps) <= rounds.longest
    assert all(rounds.steps(other) == steps for other in steps)
    assert rounds.number(steps.stop) == rounds.number(steps.start) + 1
    assert all(rounds.number(other) == rounds.number(steps.start) for other in steps)
    assert epochs.epoch(steps.start) == epochs.epoch(steps[-1]), "epochs end with a round"


@pytest.mark.parametrize(
    ("model", "optimizer", "clip_norm"),
    [
        *((Unused, optimizer, None) for optimizer in OPTIMIZERS),
        *((model, "decay", 0.3) for model in (perceptron, Tied, Unused)),
    ],
)
def test_one_worker_has_the_bits_of_a_plain_loop(
    model: Any, optimizer: str, clip_norm: float | None
) -> None:
    """The mean of one is itself, whatever the optimizer keeps."""
    with one_thread():
        asked = job(model=model, optimizer=OPTIMIZERS[optimizer], clip_norm=clip_norm)
        world = LocalWorld(asked, DATA, 1, 2)
        while world.at < 6:
            world.round()
        assert bits(world.replicas[0].model) == bits(plain_loop(asked, world.epochs, world.at))


@pytest.mark.parametrize("workers", [5])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("model", [with_batch_norm, Unused])
def test_replicas_are_equal_after_every_round(model: Any, optimizer: str, workers: int) -> None:
    asked = job(model=model, optimizer=OPTIMIZERS[optimizer], batch_size=20)
    world = LocalWorld(asked, DATA, workers, 3)
    for _ in range(4):
        world.round()
        assert len({str(through(replica)) for replica in world.replicas}) == 1


def through(replica: Replica) -> Any:
    tree, tensors = replica.state()
    return tree, {name: tensor.tolist() for name, tensor in tensors.items()}


def test_models_and_momenta_become_their_means_weighted_by_samples() -> None:
    """Batches of 16 and 8 of three workers: shares are unequal."""
    world = LocalWorld(job(optimizer=OPTIMIZERS["momentum"]), DATA, 3, None)
    steps = world.rounds.steps(0)
    for rank, own in enumerate(world.locals):
        own.begin_round()
        world.train_alone(rank, steps)
    shares = [
        sum(len(world.epochs.indices(step, rank, 3)) for step in steps) / len(DATA)
        for rank in range(3)
    ]
    assert len(set(shares)) > 1
    weights, momenta = [], []
    for replica in world.replicas:
        first = next(replica.model.parameters())
        weights.append(first.detach().clone())
        momenta.append(replica.optimizers[""].state[first]["momentum_buffer"].clone())
    world.merge()
    first = next(world.replicas[0].model.parameters())
    for found, parts in (
        (first.detach(), weights),
        (world.replicas[0].optimizers[""].state[first]["momentum_buffer"], momenta),
    ):
        mean = sum(share * part for share, part in zip(shares, parts, strict=True))
        torch.testing.assert_close(found, mean, rtol=1e-6, atol=1e-7)


def test_counts_stay_whole() -> None:
    """Adam counts its steps; a third, three times, is not quite one."""
    world = LocalWorld(
        job(model=with_batch_norm, optimizer=OPTIMIZERS["adamw"], batch_size=20), DATA, 3, 2
    )
    while world.at < 8:
        world.round()
    for replica in world.replicas:
        for parameter in replica.model.parameters():
            assert replica.optimizers[""].state[parameter]["step"].item() == 8
        assert replica.model[1].num_batches_tracked.item() == 8


def test_the_losses_of_a_round_are_the_batches_means() -> None:
    """With one step a round all replicas compute the loss of the same model."""
    world = LocalWorld(job(), DATA, 3, 1)
    model = build_model(world.job)
    indices = torch.from_numpy(world.epochs.indices(0, 0, 1))
    expected = F.cross_entropy(model(DATA.x[indices]), DATA.y[indices]).item()
    assert world.round() == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_replica_goes_on_within_a_round_with_the_same_bits(done: int) -> None:
    asked = job(
        model=with_batch_norm,
        optimizer=OPTIMIZERS["adamw"],
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
        scheduler_every="step",
    )
    whole, broken = (LocalWorld(asked, DATA, 2, 3) for _ in range(2))
    for _ in range(2):
        whole.round()
    broken.round()
    steps = broken.rounds.steps(broken.at)
    for rank, own in enumerate(broken.locals):
        own.begin_round()
        broken.train_alone(rank, steps[:done] if rank else steps)
    tree, tensors = broken.locals[1].state()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    successor = LocalWorld(asked, DATA, 2, 3)
    successor.locals[1].load_state(tree, kept)
    assert successor.locals[1].done == done
    successor.train_alone(1, steps[done:])
    broken.replicas[1], broken.locals[1] = successor.replicas[1], successor.locals[1]
    broken.merge()
    assert [through(r) for r in broken.replicas] == [through(r) for r in whole.replicas]


def digits() -> tuple[Pairs, Pairs]:
    from dayfly.data.npy_arrays import BUILTIN

    arrays = BUILTIN["digits"]()
    x, y = (torch.tensor(np.asarray(arrays[name])) for name in ("x_train", "y_train"))
    x = x.reshape(len(x), -1).float()
    return Pairs(x[:1200], y[:1200].long()), Pairs(x[1200:], y[1200:].long())


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def reset(replica: Replica) -> None:
    """What KubeML does after each merge."""
    replica.optimizers[""].state.clear()


@pytest.mark.slow  # a result of learning; that momentum is averaged is above, bit by bit
@pytest.mark.long
def test_resetting_momentum_harms_and_averaging_it_cures() -> None:
    """KubeML's figure 4.10: four workers, a merge every two steps, measured on unseen digits."""
    train, unseen = digits()
    asked = job(
        model=linear,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        batch_size=64,
        epochs=4,
    )
    losses: dict[str, float] = {}
    for name, workers, after_merge in (
        ("together", 1, lambda replica: None),
        ("averaged", 4, lambda replica: None),
        ("reset", 4, reset),
    ):
        world = LocalWorld(asked, train, workers, 2, after_merge)
        while world.at < asked.epochs * world.epochs.steps:
            world.round()
        with torch.no_grad():
            model = world.replicas[0].model.eval()
            losses[name] = F.cross_entropy(model(unseen.x), unseen.y).item()
    harm = losses["reset"] - losses["together"]
    left = losses["averaged"] - losses["together"]
    assert harm > 0.05, losses
    assert left < 0.2 * harm, losses


def test_the_step_that_shows_what_an_optimizer_keeps_leaves_no_second_state() -> None:
    """Only forms are kept of it: Adam's state would be twice the model."""
    replica = Replica(job(optimizer=lambda parameters: torch.optim.Adam(parameters)))
    averaging = Averaging(replica, numbers=1)
    kept = [place.like for place in averaging._places]
    elements = sum(p.numel() for p in replica.model.parameters())
    assert sum(like.numel() for like in kept if like.dim()) == 2 * elements
    assert all(like.untyped_storage().nbytes() <= 8 for like in kept)
