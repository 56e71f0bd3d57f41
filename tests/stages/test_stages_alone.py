"""A stage that is built alone has to be what it is in the whole model; else the cut is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.training.replica import build_model
from dayfly.training.stages.probe import check_stages
from tests.stages.models import mlp, rows
from tests.stages.trying import Own, Returning, checked, refusal, returning


def with_attribute(name: str, make: Callable[[nn.Module], Any]) -> Callable[[], nn.Module]:
    def model() -> nn.Module:
        made = mlp()
        setattr(made[2], name, make(made[2]))
        return made

    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda linear: torch.ones(3),
            "2.kept of its Linear is a tensor, but neither parameter nor buffer: register it by "
            'register_buffer("kept", ...)',
        ),
        (
            lambda linear: [1, {"a": (torch.ones(3),)}],
            "2.kept of its Linear is a list that holds tensors: register them as buffers",
        ),
        (
            lambda linear: (linear.weight, linear.bias),
            "2.kept of its Linear is a tuple that holds tensors: use nn.ParameterList",
        ),
        (
            lambda linear: [nn.ReLU(), nn.Linear(4, 4)],
            "2.kept of its Linear is a list that holds modules which are not its own: use "
            "nn.ModuleList",
        ),
    ],
)
def test_tensors_that_are_not_registered_are_refused(
    make: Callable[[nn.Module], Any], message: str
) -> None:
    assert refusal(with_attribute("kept", make), [2]) == (
        f"the job's model cannot be cut, as {message}"
    )


def test_a_list_of_own_modules_is_fine() -> None:
    assert len(checked(with_attribute("kept", lambda linear: [linear, nn.ReLU()]), [2])) == 1


def test_a_module_that_was_built_before_is_refused() -> None:
    model = mlp()
    before = model[0].weight.clone()
    assert refusal(lambda: model, [2]) == (
        "the job's model function gives the same 0.weight whenever it is called: build the model "
        "in the function, and give weights by init=, as a worker holds its stage only"
    )
    assert torch.equal(model[0].weight, before)
    backbone = nn.Linear(8, 8)
    assert "gives the same 1.weight whenever" in refusal(
        lambda: nn.Sequential(nn.Linear(8, 8), backbone, nn.Linear(8, 4)), [1]
    )


def without_values() -> bool:
    return torch.empty(1).is_meta


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 4)),
            "0.weight is [12, 8] float32, not [16, 8] float32",
        ),
        (
            lambda: nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4)),
            "0.bias is missing, not [16] float32",
        ),
        (
            lambda: nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)).double(),
            "0.weight is [16, 8] float64, not [16, 8] float32",
        ),
        (
            lambda: nn.Sequential(nn.Linear(8, 16).requires_grad_(False), nn.Linear(16, 4)),
            "0.weight is [16, 8] float32 without gradient, not [16, 8] float32",
        ),
    ],
)
def test_another_model_without_values_is_refused(
    other: Callable[[], nn.Module], message: str
) -> None:
    def model() -> nn.Module:
        if without_values():
            return other()
        return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))

    assert refusal(model, [1]) == (
        "the job's model cannot be cut, as its function builds another on torch's meta device, "
        f"where tensors have no values: {message}: let what it builds depend on no values"
    )


def test_other_layers_without_values_are_refused() -> None:
    def model() -> nn.Module:
        made = mlp()
        return made if without_values() else made.append(nn.Dropout())

    assert refusal(model, [1]) == (
        "the job's model cannot be cut, as its 6 layers are others on torch's meta device, where "
        "tensors have no values: let what it builds depend on no values"
    )


def test_a_captured_tensor_without_values_is_refused() -> None:
    def model() -> nn.Module:
        scale = torch.full((1,), 2.0)
        return nn.Sequential(nn.Linear(8, 8), Returning(lambda x: x * scale), nn.Linear(8, 4))

    assert refusal(model, [1]).startswith(
        "stage 1 of the job's model fails when it is built alone: RuntimeError: "
    )


def test_what_layers_pass_by_another_way_is_refused() -> None:
    """As the skips of a U-Net, which are not in what a layer returns."""

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.seen: dict[str, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen["x"] = x
            return self.linear(x)

    def model() -> nn.Module:
        first = Keeps()
        seen = first.seen
        return nn.Sequential(first, Returning(lambda x: x + seen["x"]), nn.Linear(8, 4))

    assert refusal(model, [1]) == (
        "stage 1 of the job's model fails when it is built alone: KeyError: 'x': let its layers "
        "use only what they are given and their own submodules, parameters and buffers"
    )


def test_a_value_that_follows_from_random_weights_is_refused() -> None:
    """Under the meta device nothing is drawn for weights, so what is drawn next is another."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = float(torch.rand(1, device="cpu"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.rate

    assert refusal(lambda: nn.Sequential(nn.Linear(8, 8), Scale(), nn.Linear(8, 4)), [1]) == (
        "stage 1 of the job's model gives another result when it is built alone: let its layers "
        "use only what they are given and their own submodules, parameters and buffers"
    )


def test_what_the_function_draws_from_other_generators_is_the_same() -> None:
    def model() -> nn.Module:
        scale, shift = random.random(), np.random.rand()
        return nn.Sequential(nn.Linear(8, 8), Returning(lambda x: x * scale + shift), mlp())

    assert len(checked(model, [1, 2])) == 2


def test_one_activation_may_stand_on_both_sides_of_a_cut() -> None:
    def model() -> nn.Module:
        act = nn.ReLU(inplace=True)
        return nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act, nn.Linear(8, 4))

    assert len(checked(model, [1, 3])) == 2


def test_another_name_of_a_weight_is_its_name_in_its_stage_too() -> None:
    def model() -> nn.Module:
        made = Own(lambda m, x: m.two(m.one(x)))
        made.one_weight = made.one.weight
        return made

    assert len(checked(model, [1])) == 1


def test_another_gradient_is_refused() -> None:
    def model() -> nn.Module:
        made = mlp()
        if not without_values():
            made[2].weight.register_hook(lambda gradient: gradient * 2)
        return made

    assert refusal(model, [1]) == (
        "stage 1 of the job's model gives another gradient of 2.weight when it is built alone: let "
        "its layers use only what they are given and their own submodules, parameters and buffers"
    )


def test_random_numbers_in_evaluation_are_the_same() -> None:
    model = returning(lambda x: x + torch.randn_like(x), lambda x: nn.functional.dropout(x, 0.5))
    assert len(checked(model, [1, 2, 3])) == 3


def test_a_loss_that_fails_is_said() -> None:
    job = Job(
        model=mlp,
        data="digits",
        loss=lambda outputs, y: outputs.missing,
        optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1),
    )
    with pytest.raises(RequestError, match="the job fails on one batch: its loss fails: Attribute"):
        check_stages(job, build_model(job), [1], rows())
