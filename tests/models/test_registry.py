"""The table of models: every line holds, every size agrees with what a paper prints."""

from __future__ import annotations

import inspect
import re
from functools import cache

import pytest
import torch
from benchmarks.parts.papers.model_sizes import FIGURES, Figure
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dayfly.models import MODELS, on_meta, parameters_of

pytestmark = pytest.mark.long

#: All that is not reached. A figure that joins them needs a reason in its note.
NOT_REACHED = {
    ("resnet34", "Hydrozoa, table 2", "21.5", "21.3"),
    ("resnet152", "Hydrozoa, table 2", "58.5", "58.2"),
    ("amoebanet_d18", "FuncPipe, table 1", "476", "467"),
    ("amoebanet_d36", "FuncPipe, table 1", "900", "901"),
    ("resnet50_32", "CE-scaling, section IV-A", "89", "90"),
}
#: Each has the layers of a smaller one, only more of them.
OF_MORE_OF_THE_SAME = {"amoebanet_d36", "bert_large", "resnet101", "resnet152"}
each_model = pytest.mark.parametrize("name", MODELS)
most_models = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in OF_MORE_OF_THE_SAME else ())
        for name in MODELS
    ],
)


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """As a stage receives it: whole numbers and marks have no gradient."""
    return tensor.requires_grad_(tensor.is_floating_point())


def differentiable(tensors: object) -> list[torch.Tensor]:
    return [tensor for tensor in tree_leaves(tensors) if tensor.is_floating_point()]


@cache
def model_of(name: str) -> nn.Sequential:
    return on_meta(MODELS[name].build)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda one: f"{one.model}-{one.where}")
def test_figures_of_the_papers(figure: Figure) -> None:
    assert figure.measure() == figure.ours


def test_all_figures_are_reached_but_those_that_say_why_not() -> None:
    missed = {
        (figure.model, figure.where, figure.printed, figure.ours)
        for figure in FIGURES
        if not figure.reached
    }
    assert missed == NOT_REACHED
    assert all(figure.note.startswith("not reached") != figure.reached for figure in FIGURES)


@pytest.mark.parametrize(
    ("printed", "unit", "measured"),
    [("1", "thousand", "1"), ("1.0", "thousand", "1.1"), ("0.004", "MB", "0.004")],
)
def test_a_figure_is_measured_to_the_digits_that_are_printed(
    printed: str, unit: str, measured: str
) -> None:
    figure = Figure(
        model="",
        where="here",
        printed=printed,
        unit=unit,  # type: ignore[arg-type]
        ours="",
        build=lambda: nn.Sequential(nn.Linear(32, 32)),
    )
    assert figure.measure() == measured  # of 1056 numbers
    assert not figure.reached


@most_models
def test_it_gives_scores_and_every_parameter_learns(name: str) -> None:
    entry, model = MODELS[name], model_of(name)
    sample = entry.sample(2)
    assert (sample.shape, sample.dtype) == ((2, *entry.sample_shape), entry.sample_type)
    model.zero_grad()  # of another test
    scores = model(sample)
    assert scores.shape == (2, entry.scores)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@most_models
def test_it_can_be_cut_anywhere(name: str) -> None:
    """The input of a stage is a leaf that wants a gradient: nothing may overwrite it."""
    passed: object = MODELS[name].sample(2)
    for layer in model_of(name):
        received = tree_map(lambda tensor: leaf(tensor.detach()), passed)
        passed = layer(received)
        sum(tensor.sum() for tensor in differentiable(passed)).backward()
        assert all(tensor.grad is not None for tensor in differentiable(received))


def test_a_layer_that_works_in_place_would_be_caught() -> None:
    with pytest.raises(RuntimeError, match="in-place"):
        nn.ReLU(inplace=True)(torch.empty(2, device="meta").requires_grad_())


@each_model
def test_its_docstring_counts_right(name: str) -> None:
    model, text = model_of(name), inspect.getdoc(MODELS[name].build) or ""
    parameters = re.search(r"([\d,]+) parameters", text)
    assert parameters is not None
    assert int(parameters[1].replace(",", "")) == parameters_of(model)
    layers = re.search(r"(\d+) layers", text)
    assert layers is not None
    assert int(layers[1]) == len(model)


@each_model
def test_its_name_is_that_of_the_function(name: str) -> None:
    assert getattr(MODELS[name].build, "__name__", None) == name
