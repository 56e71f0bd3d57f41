"""`dayfly bench planning --steady`: layers that take as long as they are to."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks.parts.planning.jobs import WORKS
from benchmarks.parts.planning.pace import Even
from benchmarks.parts.planning.steady import Layer, SteadyLayer, Takes, steady, steady_model
from torch import nn

from benchmarks import planning
from dayfly.errors import RequestError

TAKES = Layer(forward=Takes(0.02, 0.005), backward=Takes(0.03, 0.01))


def small() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def floats() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))


def cpu_s(what: nn.Module, x: torch.Tensor) -> tuple[float, float]:
    """Of a forward and a backward pass."""
    began = time.thread_time()
    out = what(x).sum()
    between = time.thread_time()
    out.backward()
    return between - began, time.thread_time() - between


def test_layers_take_what_they_are_told() -> None:
    model = steady_model(floats, [TAKES, Layer()])
    cpu_s(model, torch.ones(2, 8))
    forward_s, backward_s = cpu_s(model, torch.ones(2, 8))
    assert 0.03 <= forward_s < 0.09
    assert 0.05 <= backward_s < 0.15
    layer = model[0]
    assert isinstance(layer, SteadyLayer)
    assert 0 < layer.forward_s < 0.02, "what it took itself"
    assert 0 < layer.backward_s < 0.02


def test_a_layer_that_takes_longer_is_left_alone() -> None:
    model = steady_model(floats, [TAKES, Layer(Takes(1e-9), Takes(1e-9))])
    assert cpu_s(model, torch.ones(1, 8))[0] < 0.15


def test_without_gradients_only_the_forward_pass_is_filled() -> None:
    model = steady_model(floats, [TAKES, Layer()])
    began = time.thread_time()
    with torch.no_grad():
        out = model(torch.ones(2, 8))
    assert 0.03 <= time.thread_time() - began < 0.09
    assert not out.requires_grad


def test_it_computes_the_same() -> None:
    """Of tokens, too, which have no gradients."""
    plain, filled = small(), steady_model(small, [TAKES] * 4)
    x = torch.tensor([[1, 2], [4, 0]])
    for model in (plain, filled):
        model(x).square().sum().backward()
    assert torch.equal(plain(x), filled(x))
    for one, other in zip(plain.parameters(), filled.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


@pytest.mark.long
def test_a_work_made_steady() -> None:
    plain, made = WORKS["mlp"], steady(WORKS["mlp"])
    assert isinstance(made.model, partial)
    shapes = [[p.shape for p in one.model().parameters()] for one in (plain, made)]
    assert shapes[0] == shapes[1]
    x = torch.from_numpy(plain.data(plain.batch_size)[0].x)
    takes: list[Layer] = made.model.args[1]
    for model in (plain.model(), made.model()):
        cpu_s(model, x)
    forward_s, backward_s = cpu_s(made.model(), x)
    assert forward_s >= sum(one.forward.of(len(x)) for one in takes) > 0
    # The first layer's input has no gradient in the plain model, and is filled here nevertheless.
    assert backward_s >= sum(one.backward.of(len(x)) for one in takes) > 0


@pytest.mark.long
def test_layers_keep_their_times_beside_profiles(tmp_path: Path) -> None:
    made = steady(WORKS["mlp"], tmp_path)
    again = steady(WORKS["mlp"], tmp_path)
    assert isinstance(made.model, partial)
    assert isinstance(again.model, partial)
    assert again.model.args[1] == made.model.args[1]
    file = tmp_path / "mlp.layers.json"
    for text, why in (
        ("[]", "give times from 0, of "),
        (json.dumps([[[-1, 0], [0, 0]]] * len(made.model.args[1])), "give times from 0, of "),
        ("[[1, 2]]", "is no list of layers' times"),
        ("{", "is no list of layers' times"),
    ):
        file.write_text(text)
        with pytest.raises(RequestError, match=why):
            steady(WORKS["mlp"], tmp_path)
    file.unlink()
    (tmp_path / "mlp-file-lambda.json").touch()
    with pytest.raises(RequestError, match="what the layers of mlp-file-lambda"):
        steady(WORKS["mlp"], tmp_path)


def test_its_pace_is_always_the_same() -> None:
    assert Even().beside(lambda: 7) == (7, 1.0)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--choose"], "--steady: not with --choose"),
        (["--again", "{}"], "--again: not with --choose or --steady"),
    ],
)
def test_what_does_not_go_with_it(
    flags: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        planning.run(["--steady", *(flag.format(tmp_path) for flag in flags)])
    assert why in capsys.readouterr().err


def test_a_file_where_its_profiles_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steady").touch()
    with pytest.raises(SystemExit):
        planning.run(["--steady", "--profiles", str(tmp_path)])
    assert f"--profiles: {tmp_path}/steady is no directory" in capsys.readouterr().err
