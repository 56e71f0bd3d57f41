"""A model's layers, and what cannot be cut from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.training.stages.layers import check_cut, check_held, check_tied, layers_of, stages
from tests.stages.models import Gpt, mlp


class Listed(nn.Module):
    """A model whose `layers()` returns what it is given a function for."""

    def __init__(self, choose: Callable[[Listed], Any]) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))
        self.choose = choose

    def layers(self) -> Any:
        return self.choose(self)


def test_a_sequential_is_its_children() -> None:
    model = mlp()
    assert layers_of(model) == list(model)


def test_a_child_may_stand_in_several_places() -> None:
    act, linear = nn.ReLU(), nn.Linear(4, 4)
    assert layers_of(nn.Sequential(linear, act, nn.Linear(4, 4), act))[1::2] == [act, act]


def test_a_method_gives_the_layers() -> None:
    model = Gpt()
    assert layers_of(model) == [model.embed, *model.blocks, model.mean, model.head]


def test_a_sequentials_method_is_asked_first() -> None:
    class Paired(nn.Sequential):
        def layers(self) -> list[nn.Module]:
            return [*self[0], *self[1:]]

    model = Paired(mlp(), nn.Linear(4, 4))
    assert layers_of(model) == [*model[0], model[1]]


def test_stages_are_what_is_between_the_cuts() -> None:
    assert stages([4, 9], 12) == (range(4), range(4, 9), range(9, 12))
    assert stages([1], 2) == (range(1), range(1, 2))


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(RequestError) as caught:
        action()
    return str(caught.value)


def test_a_model_that_is_no_list_is_told_how_to_be_one() -> None:
    assert refusal(lambda: layers_of(nn.Linear(4, 4))) == (
        "the job's model is a Linear, which is no list of layers: give an nn.Sequential, or a "
        "method layers() that returns its layers in the order in which forward applies them"
    )


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (
            lambda m: {"one": m.one},
            "the job's model's layers() returned dict: return a list of the model's submodules",
        ),
        (
            lambda m: [m.one, nn.Sequential(m.two, m.three)],
            "layer 1 that the job's model's layers() returned is a Sequential that is none of the "
            "model's submodules: make it one, by assigning it to an attribute of the model",
        ),
        (
            lambda m: [m],
            "layer 0 that the job's model's layers() returned is a Listed that is none of the "
            "model's submodules: make it one, by assigning it to an attribute of the model",
        ),
        (lambda m: [], "the job's model has no layers: there is nothing to cut"),
        (
            lambda m: [m.four],
            "the job's model's layers() fails: AttributeError: 'Listed' object has no attribute "
            "'four'",
        ),
    ],
)
def test_layers_that_are_none(choose: Callable[[Listed], Any], message: str) -> None:
    assert refusal(lambda: layers_of(Listed(choose))) == message


def test_a_layer_within_another_is_refused() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def layers(self) -> list[nn.Module]:
            return [self.body[0], self.body]

    assert refusal(lambda: layers_of(Nested())) == (
        "layer 0 of the job's model lies within its layer 1: let layers() return modules of which "
        "none holds another"
    )


@pytest.mark.parametrize("cut", [[4, 40], [0, 4], [4, 4], [9, 4], [12], [-1]])
def test_a_cut_outside_the_layers_names_their_number(cut: list[int]) -> None:
    assert refusal(lambda: check_cut(cut, 12)) == (
        f"--cut {','.join(map(str, cut))}: the model has 12 layers: give ascending numbers from 1 "
        "to 11"
    )


def test_one_layer_cannot_be_cut() -> None:
    assert refusal(lambda: check_cut([1], 1)) == (
        "the job's model has one layer, which cannot be cut: run it uncut"
    )


@pytest.mark.parametrize("cut", [[1], [11], [4, 9], list(range(1, 12))])
def test_a_cut_between_layers_passes(cut: list[int]) -> None:
    check_cut(cut, 12)


def test_what_no_layer_holds_is_named() -> None:
    model = Gpt()
    model.scale = nn.Parameter(torch.ones(1))
    model.register_buffer("seen", torch.zeros(1))
    assert refusal(lambda: check_held(model, layers_of(model))) == (
        "the job's model holds scale, seen in none of its layers: move them into the layer that "
        "uses them"
    )
    for name in ("a", "b", "c"):
        model.register_parameter(name, nn.Parameter(torch.ones(1)))
    assert "holds scale, a, b and 2 more in none" in refusal(
        lambda: check_held(model, layers_of(model))
    )


def test_another_name_of_what_a_layer_holds_is_fine() -> None:
    model = Gpt()
    model.alias = model.head.weight
    check_held(model, layers_of(model))


def tied(*pairs: tuple[int, int], count: int = 5) -> nn.Sequential:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
    for one, other in pairs:
        model[other].weight = model[one].weight
    return model


@pytest.mark.parametrize(
    ("pairs", "cut", "message"),
    [
        (
            [(1, 3)],
            [2],
            "--cut 2 parts layers that share weights: 1.weight and 3.weight are one tensor, in "
            "layers 1 and 3: give --cut 1, or each its own",
        ),
        (
            [(1, 3)],
            [1, 2, 3],
            "--cut 1,2,3 parts layers that share weights: 1.weight and 3.weight are one tensor, in "
            "layers 1 and 3: give --cut 1,4, or each its own",
        ),
        (
            [(0, 4)],
            [2],
            "--cut 2 parts layers that share weights: 0.weight and 4.weight are one tensor, in "
            "layers 0 and 4: give each its own, as every cut parts them",
        ),
    ],
)
def test_tied_weights_are_not_parted(
    pairs: list[tuple[int, int]], cut: list[int], message: str
) -> None:
    model = tied(*pairs)
    assert refusal(lambda: check_tied(model, layers_of(model), cut)) == message


@pytest.mark.parametrize("cut", [[1], [4], [1, 4]])
def test_within_a_stage_weights_may_be_tied(cut: list[int]) -> None:
    model = tied((1, 3), (1, 2))
    check_tied(model, layers_of(model), cut)


def test_three_users_of_one_tensor_are_all_seen() -> None:
    model = tied((0, 1), (0, 4))
    assert "0.weight and 4.weight" in refusal(lambda: check_tied(model, layers_of(model), [2]))


def test_a_layer_in_two_places_is_tied_to_itself() -> None:
    linear = nn.Linear(4, 4)
    model = nn.Sequential(linear, nn.ReLU(), linear, nn.ReLU())
    assert refusal(lambda: check_tied(model, layers_of(model), [1])) == (
        "--cut 1 parts layers that share weights: layers 0 and 2 share 0.weight: "
        "give --cut 3, or each its own"
    )
    check_tied(model, layers_of(model), [3])


def test_a_shared_buffer_is_not_parted_either() -> None:
    model = mlp()
    model[1].register_buffer("scale", torch.ones(1))
    model[3].register_buffer("scale", model[1].scale)
    assert "1.scale and 3.scale are one tensor" in refusal(
        lambda: check_tied(model, layers_of(model), [2])
    )


def test_memory_is_shared_by_being_one_parameter_only() -> None:
    model = mlp()
    model[2].bias.data = model[0].bias.data
    assert refusal(lambda: check_tied(model, layers_of(model), [4])) == (
        "0.bias and 2.bias of the job's model share memory, and are not one parameter: assign the "
        "same parameter to both, or copy one"
    )


def test_parts_of_one_memory_that_do_not_overlap_are_fine() -> None:
    memory = torch.zeros(20)
    model = mlp()
    model[0].bias = nn.Parameter(memory[:16])
    model[4].bias = nn.Parameter(memory[16:])
    check_tied(model, layers_of(model), [2])
    model[4].bias = nn.Parameter(memory[15:19])
    assert "0.bias and 4.bias of the job's model share memory" in refusal(
        lambda: check_tied(model, layers_of(model), [2])
    )
