"""A trained model in other programs' files: the same outputs, and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import dayfly
from dayfly.runs.exporting import export
from tests.runs import small


@pytest.fixture
def job(data: Path) -> dayfly.Job:
    return small.job(data)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(3)
    return small.model().eval()


@pytest.mark.parametrize(
    ("name", "load"),
    [("m.safetensors", safetensors.torch.load_file), ("m.pt", torch.load), ("m.pth", torch.load)],
)
def test_weights_are_the_state_dict(
    job: dayfly.Job, model: nn.Module, tmp_path: Path, name: str, load: Callable[..., Any]
) -> None:
    found = load(export(job, model, tmp_path / name))
    own = model.state_dict()
    assert found.keys() == own.keys()
    assert all(torch.equal(found[key], own[key]) for key in own)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_torchscript_computes_the_same(job: dayfly.Job, model: nn.Module, tmp_path: Path) -> None:
    x = torch.randn(7, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.jit.load(str(export(job, model, tmp_path / "m.ts")))
    assert torch.equal(found(x), model(x))


@pytest.mark.slow  # torch.onnx takes seconds; what it refuses is below
@pytest.mark.parametrize("sample", [None, torch.zeros(2, 12)])
def test_onnx_computes_the_same_for_any_number_of_samples(
    job: dayfly.Job, model: nn.Module, tmp_path: Path, sample: Any
) -> None:
    import onnxruntime

    file = export(job, model, tmp_path / "m.onnx", sample)
    session = onnxruntime.InferenceSession(str(file))
    for samples in (1, 5, 64):
        x = torch.randn(samples, 12)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)


class Deciding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_what_cannot_be_written_leaves_nothing(
    job: dayfly.Job, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[nn.Module, str, Any, str]] = [
        (model, "m.bin", None, "ends with .safetensors, .pt, .pth, .onnx, .ts"),
        (model, "none/m.pt", None, "there is no directory"),
        (Deciding(), "m.ts", None, "cannot be written as .ts"),
        (model, "m.ts", torch.tensor(1.0), "without dimensions"),
    ]
    for given, name, sample, words in cases:
        with pytest.raises(dayfly.RequestError, match=words):
            export(job, given, tmp_path / name, sample)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(dayfly.RequestError, match=r"onnx and onnxscript .* pip install"):
        export(job, model, tmp_path / "m.onnx")
    own_step = small.job(Path("x"), loss=None, step=lambda model, batch: model(batch).sum())
    with pytest.raises(dayfly.RequestError, match="give sample="):
        export(own_step, model, tmp_path / "m.ts")
    assert not list(tmp_path.iterdir())
