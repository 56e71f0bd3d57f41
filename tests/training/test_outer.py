"""DiLoCo: outer gradients, the outer optimizer's step, and what is kept of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life.checkpoints import Writer, share_of
from dayfly.runs.protocols.outer import OuterRounds
from dayfly.specs.compression import compression
from dayfly.specs.outer import OF_JOB, Outer, refuses
from dayfly.training.compression.exchange import contributed
from dayfly.training.local_sgd import LocalSgd
from dayfly.training.outer import OuterGradients, joined, outer_optimizer, parted, travelling
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors
from dayfly.wire.codec import CODECS
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.schedule import Schedule
from tests.training.jobs import clusters, job, one_thread, with_batch_norm
from tests.training.local_world import LocalWorld
from tests.training.test_gradients import OPTIMIZERS

DATA = clusters(40)
LR, MOMENTUM = 0.7, 0.9


def schedule(rank: int, workers: int, buffer: torch.Tensor) -> Schedule:
    return COLLECTIVES["scatter-reduce"].schedule(rank, workers, buffer.numel())


def world(asked: Job, workers: int, k: int | None, outer: Outer, codec: str = "none") -> LocalWorld:
    """Replicas with this outer optimizer."""
    ranks = iter(range(workers))

    def make(replica: Replica, numbers: int) -> OuterGradients:
        made = outer_optimizer(outer, asked, replica.model)
        if codec == "none":
            return OuterGradients(replica, numbers, made)
        plan = partial(schedule, next(ranks), workers)
        return OuterGradients(replica, numbers, made, *travelling(compression(codec), plan))

    return LocalWorld(asked, DATA, workers, k, make=make)


def sum_of(those: LocalWorld, rank: int) -> OuterGradients:
    found = those.locals[rank].round_sum
    assert isinstance(found, OuterGradients)
    return found


def parameters(replica: Replica) -> list[torch.Tensor]:
    return [p.detach().clone() for p in replica.model.parameters()]


def steps_alone(those: LocalWorld) -> None:
    for rank, own in enumerate(those.locals):
        own.begin_round()
        those.train_alone(rank, those.rounds.steps(those.at))


def shares(those: LocalWorld) -> list[float]:
    """Each rank's part of the samples of the round."""
    steps = those.rounds.steps(those.at)
    every = sum(len(those.epochs.batch(step)) for step in steps)
    mine = [
        sum(len(those.epochs.indices(step, rank, those.workers)) for step in steps)
        for rank in range(those.workers)
    ]
    return [one / every for one in mine]


@pytest.mark.parametrize("name", ["nesterov", "momentum"])
def test_the_outer_step_is_the_papers(name: str) -> None:
    """theta_0 - lr (g + momentum m), or - lr m; g the mean weighted by samples, m its momentum.

    Batches of 16 and 8 of three workers: shares are unequal.
    """
    those = world(job(batch_size=16), 3, 2, Outer(name=name, lr=LR, momentum=MOMENTUM))
    momenta: list[torch.Tensor] = []
    for _ in range(4):
        starts = parameters(those.replicas[0])
        weights = shares(those)
        steps_alone(those)
        ends = [parameters(replica) for replica in those.replicas]
        those.merge()
        means = [
            sum(w * (start - one[n]) for w, one in zip(weights, ends, strict=True))
            for n, start in enumerate(starts)
        ]
        momenta = [MOMENTUM * m + g for m, g in zip(momenta, means, strict=False)] or means
        ways = momenta
        if name == "nesterov":
            ways = [g + MOMENTUM * m for g, m in zip(means, momenta, strict=True)]
        for replica in those.replicas:
            for start, way, found in zip(starts, ways, parameters(replica), strict=True):
                torch.testing.assert_close(found, start - LR * way, rtol=1e-5, atol=1e-6)


def test_a_plain_step_by_1_is_the_mean_of_parameters() -> None:
    """The job's own outer optimizer; it is what averaging does to parameters alone."""
    asked = job(
        batch_size=20,
        optimizer=OPTIMIZERS["sgd"],
        outer_optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
    )
    found, expected = world(asked, 2, 3, Outer(name=OF_JOB)), LocalWorld(asked, DATA, 2, 3)
    for _ in range(3):
        found.round()
        expected.round()
    pairs = zip(parameters(found.replicas[0]), parameters(expected.replicas[0]), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_replicas_have_models_alike_and_inner_optimizers_of_their_own() -> None:
    asked = job(model=with_batch_norm, optimizer=OPTIMIZERS["adamw"], batch_size=20)
    those = world(asked, 3, 3, Outer())
    for _ in range(4):
        those.round()
    states = [parted(*replica.state()) for replica in those.replicas]
    assert len({json.dumps(tree) for tree, _, _ in states}) == 1
    for name, tensor in states[0][1].items():
        assert all(torch.equal(tensor, tensors[name]) for _, tensors, _ in states), name
    first = "optimizer.state.0.weight.exp_avg"
    assert not torch.equal(states[0][2][first], states[1][2][first])
    assert not [name for name in states[0][1] if name.startswith("optimizer.state")]
    outer = [sum_of(those, rank).shared() for rank in range(3)]
    assert len({json.dumps(tree) for tree, _ in outer}) == 1
    assert all(torch.equal(outer[0][1][name], outer[2][1][name]) for name in outer[0][1])


def test_a_third_of_the_bytes_of_averaging_with_adam() -> None:
    asked = job(optimizer=OPTIMIZERS["adamw"])
    sizes = [
        those.locals[0].round_sum.data.numel()
        for those in (world(asked, 1, 1, Outer()), LocalWorld(asked, DATA, 1, 1))
    ]
    elements = sum(p.numel() for p in parameters(Replica(asked)))
    assert sizes[0] == elements + 1 + 2
    assert sizes[1] > 3 * elements


def kept(own: LocalSgd) -> tuple[Any, Tensors]:
    """A state within a round, as the store has it."""
    tree, tensors = own.state()
    return json.loads(json.dumps(tree)), share_of(Writer(), tensors)


@pytest.mark.parametrize("codec", ["none", "int8", "int4", "topk:0.1"])
@pytest.mark.parametrize("done", [1, 3])
def test_a_replica_goes_on_within_a_round_with_the_same_bits(done: int, codec: str) -> None:
    """Also once it has contributed: what the codec loses counts from the sum on, not before."""
    asked = job(
        model=with_batch_norm,
        optimizer=OPTIMIZERS["adamw"],
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
        scheduler_every="step",
    )
    whole, broken, successor = (world(asked, 2, 3, Outer(), codec) for _ in range(3))
    for _ in range(3):
        whole.round()
    broken.round()
    steps = broken.rounds.steps(broken.at)
    done = min(done, len(steps))
    for rank, own in enumerate(broken.locals):
        own.begin_round()
        broken.train_alone(rank, steps[:done] if rank else steps)
    if done == len(steps):
        broken.locals[1].contribute(broken.at, Wishes())
    tree, tensors = kept(broken.locals[1])
    successor.locals[1].load_state(tree, tensors)
    successor.train_alone(1, steps[done:])
    broken.replicas[1], broken.locals[1] = successor.replicas[1], successor.locals[1]
    broken.merge()
    broken.round()
    found, expected = ([own.state() for own in those.locals] for those in (broken, whole))
    for (tree, tensors), (other_tree, others) in zip(found, expected, strict=True):
        assert tree == other_tree
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, others[name]), name


def test_a_state_between_rounds_is_the_replicas_again() -> None:
    """Shared once, and of each worker its own; with no own, as at the beginning."""
    asked = job(optimizer=OPTIMIZERS["adamw"])
    those = world(asked, 2, 2, Outer())
    those.round()
    tree, tensors = those.replicas[1].state()
    shared_tree, shared, own = parted(tree, tensors)
    one, whole = joined(shared_tree, shared, own)
    assert one == tree
    assert all(torch.equal(whole[name], tensors[name]) for name in tensors)
    assert joined(shared_tree, shared, {}) == (shared_tree, shared)
    fresh = Replica(asked)
    fresh.load_state(shared_tree, shared)
    assert not fresh.optimizers[""].state


@pytest.mark.parametrize("rounds", [1, 5])
def test_nothing_of_an_outer_gradient_is_lost_for_ever(rounds: int) -> None:
    """What arrived and what is kept for the next round are all that was to be sent."""
    rank, workers = 1, 3
    those = world(job(batch_size=20), workers, 2, Outer(), "int8")
    codec = CODECS["int8"]()
    due = arrived = torch.zeros(0)
    for _ in range(rounds):
        weight, start = shares(those)[rank], parameters(those.replicas[rank])
        steps_alone(those)
        ends = parameters(those.replicas[rank])
        moved = [(one - two).reshape(-1) for one, two in zip(start, ends, strict=True)]
        delta = weight * torch.cat(moved).double()
        due = due + delta if len(due) else delta
        those.locals[rank].contribute(those.at, Wishes())
        ((own, packing),) = those.locals[rank].round_sum.parts
        assert packing is not None
        assert packing.tail is not None
        assert len(packing.tail) == 2 + 2  # losses, wishes
        sent = own.clone()
        for span in contributed(schedule(rank, workers, own)):
            part = sent[span.start : span.stop]
            codec.decode(codec.encode(part, span, total=False), part)
        arrived = arrived + sent.double() if len(arrived) else sent.double()
        those.merge()
    residual = sum_of(those, rank).own()["residual"].double()
    assert residual.any()
    assert torch.allclose(arrived + residual, due, rtol=0, atol=1e-6)


def test_rounding_costs_little_of_what_is_learned() -> None:
    with one_thread():
        losses = []
        for codec in ("none", "int8"):
            those = world(job(batch_size=20, epochs=30), 4, 2, Outer(), codec)
            while those.at < 30 * those.epochs.steps:
                loss = those.round()[-1]
            losses.append(loss)
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    assert losses[0] < 0.3


def test_who_takes_over_residuals_has_their_sum_and_others_none() -> None:
    those = world(job(), 2, 1, Outer(), "int8")
    made = sum_of(those, 0)
    elements = len(made.own()["residual"])
    made.load_own([{"residual": torch.full((elements,), value)} for value in (1.0, 2.0)])
    assert (made.own()["residual"] == 3.0).all()
    made.load_own([{}])  # of a run of one worker
    assert not made.own()["residual"].any()


class NoState(torch.optim.SGD):
    """Keeps what a checkpoint cannot have."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["kept"] = object()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda p: torch.optim.LBFGS(p), "LBFGS evaluates the loss several times"),
        (lambda p: 3, "outer_optimizer function returned int"),
        (lambda p: torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 1.0), "not those of the"),
        (lambda p: NoState(p, 1.0), "which a checkpoint cannot keep"),
        (lambda p: 1 / 0, "the job's outer_optimizer cannot be built"),
    ],
)
def test_an_outer_optimizer_that_cannot_be_is_refused(
    made: Callable[[Any], Any], words: str
) -> None:
    asked, rounds = job(outer_optimizer=made), LocalWorld(job(), DATA, 1, 1).rounds
    with pytest.raises(RequestError, match=words):
        OuterRounds.round_bytes(asked, Replica(asked), rounds)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("newton", None, None), "--outer newton: give one of average, nesterov, momentum"),
        ((None, 0.5, None), "--outer-lr 0.5 is for --outer nesterov and momentum"),
        (("average", None, 0.5), "--outer-momentum 0.5 is for --outer nesterov"),
        (("nesterov", 0.0, None), "--outer-lr 0: give a number above 0"),
        (("nesterov", None, 1.0), "--outer-momentum 1: give a number between 0 and 1"),
        (("momentum", float("nan"), None), "--outer-lr nan: give"),
    ],
)
def test_settings_that_cannot_be(given: Sequence[Any], words: str) -> None:
    found = refuses(*given)
    assert found is not None
    assert found.startswith(words)


def test_what_is_left_out_is_diloco() -> None:
    assert Outer.of("nesterov", None, None) == Outer(name="nesterov", lr=0.7, momentum=0.9)
    assert Outer.of("average", None, None) is Outer.of(None, None, None) is None
    assert refuses("momentum", 1.0, 0.5) is None
