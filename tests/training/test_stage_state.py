"""A stage's state is a part of the whole's, and trains on with the bits of the whole."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lr

from dayfly.errors import RequestError
from dayfly.life.checkpoints import merged
from dayfly.training.optimizers import check_groups, split_state
from dayfly.training.replica import Replica
from dayfly.training.state import model_tensors
from tests.training.jobs import bits, job

#: Which of the model's layers each stage has.
STAGES = (("0", "1"), ("2", "3"), ("4",))


class Twice(nn.Module):
    """A parameter that has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(8, 8, bias=False)
        self.two = nn.Linear(8, 8, bias=False)
        self.two.weight = self.one.weight


def model() -> nn.Module:
    """With a buffer, a shared parameter, and a layer in bfloat16."""
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), Twice(), nn.Linear(8, 8).bfloat16(), nn.Linear(8, 4)
    )


def frozen_middle() -> nn.Module:
    made = model()
    for layer in STAGES[1]:
        made.get_submodule(layer).requires_grad_(False)
    return made


class Odd(torch.optim.SGD):
    """Keeps numbers, None, tuples, what is of no parameter, and something at the top."""

    seen = 0

    def step(self, closure: Any = None) -> None:
        super().step()
        self.seen += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter]
                kept["count"] = kept.get("count", 0) + 1
                kept["none"], kept[3] = None, (1, [2.5, float("inf")], parameter.detach() * 2)
        self.state["all"]["steps"] = self.seen

    def state_dict(self) -> Any:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state_dict: Any) -> None:
        self.seen = state_dict["seen"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "seen"})


def decaying(parameters: list[nn.Parameter], kind: Any = torch.optim.AdamW) -> Any:
    """Weights decay, and biases do not; the last stage's matrix is the only one of its group."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        {"params": [p for p in parameters if p.dtype is torch.bfloat16 and p.ndim > 5]},
    ]
    return kind(groups, lr=0.01)


OPTIMIZERS: dict[str, Any] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), amsgrad=True),
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "odd": lambda p: Odd(p, lr=0.1, momentum=0.5),
    "groups": decaying,
    "groups of adagrad": lambda p: decaying(p, torch.optim.Adagrad),
    "groups of SGD": lambda p: decaying(p, torch.optim.SGD),
    "some": lambda p: torch.optim.Adam([{"params": [q for q in p if q.ndim < 2]}]),
    "named": lambda p: torch.optim.SGD([(f"p{n}", q) for n, q in enumerate(p)], lr=0.1),
}
SCHEDULERS: dict[str, Any] = {
    "none": None,
    "steps": lambda o: lr.StepLR(o, 2),
    "lambda": lambda o: lr.LambdaLR(o, lambda step: 1 / (1 + step)),
    "sequence": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, total_iters=2), lr.ExponentialLR(o, 0.8)], milestones=[2]
    ),
}


def stage_of(whole: nn.Module, layers: tuple[str, ...]) -> nn.Module:
    """The layers under the names that they have in the whole model; zeros, to be loaded."""
    made = copy.deepcopy(whole)
    for name, _ in list(made.named_children()):
        if name not in layers:
            setattr(made, name, nn.Identity())
    with torch.no_grad():
        for tensor in model_tensors(made).values():
            tensor.zero_()
    return made


def advance(replica: Replica, step: int) -> None:
    """A step by gradients that depend on the parameter's name and the step alone."""
    for name, parameter in replica.model.named_parameters():
        if parameter.requires_grad:
            torch.manual_seed(hash_of(name) + step)
            parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
    replica.step()
    replica.end_step()


def hash_of(name: str) -> int:
    return sum(ord(char) * 31**at for at, char in enumerate(name)) % 2**31


def kept(replica: Replica) -> tuple[Any, dict[str, torch.Tensor]]:
    """What a checkpoint keeps, as it comes back from one."""
    tree, tensors = replica.state()
    return json.loads(json.dumps(tree, allow_nan=False)), {n: t.clone() for n, t in tensors.items()}


def raw(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        n: (t.dtype, t.shape, t.contiguous().reshape(-1).view(torch.uint8).tolist())
        for n, t in tensors.items()
    }


@pytest.mark.parametrize(
    ("name", "built", "scheduler"),
    [
        *((name, model, "steps") for name in OPTIMIZERS),
        *((name, frozen_middle, "steps") for name in ("momentum", "groups", "odd")),
        *(("adamw", model, scheduler) for scheduler in SCHEDULERS if scheduler != "steps"),
    ],
)
@pytest.mark.long
def test_stages_train_on_as_the_whole_does(name: str, built: Any, scheduler: str) -> None:
    asked = job(
        model=built,
        optimizer=OPTIMIZERS[name],
        scheduler=SCHEDULERS[scheduler],
        scheduler_every="step" if SCHEDULERS[scheduler] else "epoch",
    )
    whole = Replica(asked)
    stages = [Replica(asked, stage_of(whole.model, layers)) for layers in STAGES]
    for stage in stages:
        check_groups(whole.state(), stage.state())
    for step in range(3):
        advance(whole, step)
    tree, tensors = kept(whole)
    for stage in stages:
        stage.load_state(*split_state(tree, tensors, model_tensors(stage.model).keys()))
    for step in range(3, 6):
        for replica in (whole, *stages):
            advance(replica, step)
    tree, tensors = kept(whole)
    trees: Any = {}
    found: dict[str, torch.Tensor] = {}
    for stage in stages:
        part, its = split_state(tree, tensors, model_tensors(stage.model).keys())
        its_tree, its_tensors = kept(stage)
        if stage.optimizers:
            assert its_tree == part
            assert raw(its_tensors) == raw(its)
        assert bits(stage.model).items() <= bits(whole.model).items()
        trees, found = merged(trees, its_tree), found | its_tensors
    assert trees == tree
    assert raw(found) == raw(tensors)
    again = Replica(asked)
    again.load_state(trees, found)
    advance(again, 6)
    advance(whole, 6)
    assert str(kept(again)) == str(kept(whole))


def test_a_stage_takes_its_part_of_the_whole_state_too() -> None:
    asked = job(model=model, optimizer=torch.optim.AdamW)
    whole = Replica(asked)
    advance(whole, 0)
    stage = Replica(asked, stage_of(whole.model, STAGES[1]))
    stage.load_state(*kept(whole))
    part = split_state(*kept(whole), model_tensors(stage.model).keys())
    assert kept(stage)[0] == part[0]
    assert raw(kept(stage)[1]) == raw(part[1])


def test_tensors_are_named_by_parameters() -> None:
    replica = Replica(job(model=lambda: nn.Linear(2, 3), optimizer=OPTIMIZERS["momentum"]))
    advance(replica, 0)
    tree, tensors = replica.state()
    assert list(tensors) == [
        "model.weight",
        "model.bias",
        "optimizer.state.weight.momentum_buffer",
        "optimizer.state.bias.momentum_buffer",
    ]
    assert tree["optimizer"]["group_of"] == {"weight": 0, "bias": 0}
    assert tree["optimizer"]["state"]["bias"] == {
        "$dict": [["momentum_buffer", {"$tensor": "optimizer.state.bias.momentum_buffer"}]]
    }


def test_a_stage_without_parameters_takes_steps_that_do_nothing() -> None:
    asked = job(scheduler=lambda o: lr.StepLR(o, 1), scheduler_every="step")
    stage = Replica(asked, nn.Sequential(nn.Identity(), nn.Tanh()))
    assert not stage.optimizers
    assert not stage.schedulers
    stage.step()
    stage.end_step()
    stage.end_epoch(1.0)
    assert stage.state() == ({}, {})
    stage.load_state(*kept(Replica(asked)))
    assert stage.state() == ({}, {})


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (
            lambda p: torch.optim.SGD(
                [{"params": [q for q in p if q.ndim == n]} for n in {q.ndim for q in p}]
            ),
            "has 1 groups of parameters for stage 1, but 2 for the whole model: let its function",
        ),
        (
            lambda p: torch.optim.SGD([{"params": p[:2]}, {"params": p[2:]}]),
            "has 2.one.weight in group 0 for stage 1, but in group 1 for the whole model: let",
        ),
        (
            lambda p: torch.optim.SGD([{"params": p[:1]}]),
            "has 2.one.weight in group 0 for stage 1, but in no group for the whole model: let",
        ),
        (
            lambda p: torch.optim.SGD(p, lr=1 / len(p)),
            "has other hyperparameters for stage 1 than for the whole model, in its group 0: let",
        ),
        (
            lambda p: torch.optim.Adam(p, lr=torch.tensor(1 / len(p))),
            "has other hyperparameters for stage 1 than for the whole model, in its group 0: let",
        ),
    ],
)
def test_an_optimizer_that_depends_on_the_cut_is_refused(optimizer: Any, text: str) -> None:
    asked = job(model=biases_last, optimizer=optimizer)
    whole = Replica(asked)
    stage = Replica(asked, stage_of(whole.model, ("2",)))
    with pytest.raises(RequestError) as refused:
        check_groups(whole.state(), stage.state(), "stage 1")
    assert text in str(refused.value)
    # Of a checkpoint alone, one in no group was frozen when it was written.
    if "hyperparameters" not in text and "no group" not in text:
        with pytest.raises(RequestError, match="for this model, but"):
            stage.load_state(*kept(whole))


def biases_last() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), Twice())


def test_the_state_of_an_earlier_version_is_refused() -> None:
    replica = Replica(job())
    tree, tensors = kept(replica)
    tree["optimizer"] = {"$dict": [["state", {"$dict": []}], ["param_groups", []]]}
    with pytest.raises(RequestError, match=r"by an earlier version of dayfly.*start the run anew"):
        replica.load_state(tree, tensors)


def test_another_models_names_are_refused() -> None:
    tree, tensors = kept(Replica(job()))
    with pytest.raises(RequestError, match=r"the weights are another model's: 9\.weight differ"):
        split_state(tree, tensors, {"0.weight", "9.weight"})
    stage = Replica(job(), nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 16)))
    with pytest.raises(RequestError, match=r"another model's: 1\.bias, 1\.weight"):
        stage.load_state(tree, tensors)
