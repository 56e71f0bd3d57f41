"""One stage built alone: its names, its memory, and nothing of the others."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.training.replica import build_model
from dayfly.training.stages.layers import StageModel, build_stage, layers_of
from dayfly.training.state import load_model_tensors, model_tensors
from tests.stages.models import Gpt, cells, cnn, job_of, masked, mlp, recurrent

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def built(model: Callable[[], nn.Module], cut: list[int]) -> list[StageModel]:
    job = job_of(model)
    return [build_stage(job, cut, stage) for stage in range(len(cut) + 1)]


@pytest.mark.parametrize("model", [mlp, cnn, Gpt, cells, masked, recurrent])
def test_names_are_the_whole_models(model: Callable[[], nn.Module]) -> None:
    whole = build_model(job_of(model))
    expected = model_tensors(whole)
    parameters = [name for name, _ in whole.named_parameters()]
    last = len(layers_of(whole)) - 1
    for cut in ([1], [2, last], list(range(1, last + 1))):
        parts = built(model, cut)
        own = [model_tensors(part.model) for part in parts]
        assert sorted(name for part in own for name in part) == sorted(expected)
        assert [n for part in parts for n, _ in part.model.named_parameters()] == parameters
        for name, tensor in ((name, part[name]) for part in own for name in part):
            assert tensor.shape == expected[name].shape
            assert tensor.dtype is expected[name].dtype
            assert tensor.device.type == "cpu"


def test_layers_keep_their_numbers() -> None:
    first, second = built(mlp, [2])
    assert [number for number, _ in first.layers] == [0, 1]
    assert [type(layer) for _, layer in second.layers] == [nn.Linear, nn.ReLU, nn.Linear]
    assert [number for number, _ in second.layers] == [2, 3, 4]
    assert [type(layer) for layer in first.model] == [
        nn.Linear,
        nn.ReLU,
        nn.Identity,
        nn.Identity,
        nn.Identity,
    ]


def test_filled_stages_compute_what_the_whole_does() -> None:
    job = job_of(Gpt)
    whole = build_model(job).eval()
    tensors = model_tensors(whole)
    x = expected = torch.randint(16, (3, 5))
    for layer in whole.layers():
        expected = layer(expected)
    for part in built(Gpt, [1, 3]):
        load_model_tensors(part.model, {name: tensors[name] for name in model_tensors(part.model)})
        part.model.eval()
        for _, layer in part.layers:
            x = layer(x)
    assert torch.equal(x, expected)


def test_what_is_not_trained_stays_so_and_dtypes_stay() -> None:
    def model() -> nn.Module:
        made = mlp().double()
        made[0].weight.requires_grad_(False)
        made[2].half()
        return made

    first, second = (part.model for part in built(model, [2]))
    assert [p.requires_grad for p in first.parameters()] == [False, True]
    assert {p.dtype for p in first.parameters()} == {torch.float64}
    assert second[2].weight.dtype is torch.float16


def test_within_a_stage_weights_stay_shared() -> None:
    def model() -> nn.Module:
        made = mlp()
        made[4].bias = nn.Parameter(torch.zeros(16))
        made[2].bias = made[4].bias
        made.alias = nn.Sequential()
        made[2].register_buffer("scale", torch.ones(2))
        made[3].register_buffer("scale", made[2].scale)
        return made

    part = built(model, [2])[1].model
    assert part[2].bias is part[4].bias
    assert part[2].scale is part[3].scale


def test_hooks_and_marks_of_a_parameter_stay() -> None:
    def model() -> nn.Module:
        made = mlp()
        made[0].weight.register_hook(lambda gradient: gradient * 0)
        made[0].weight.scale = 3
        return made

    weight = built(model, [2])[0].model[0].weight
    assert weight.scale == 3
    weight.data.fill_(1)
    weight.sum().backward()
    assert not weight.grad.any()


def test_a_recurrent_layer_computes_with_its_parameters() -> None:
    lstm = built(recurrent, [1, 2])[1].model[1].lstm
    assert all(map(operator.is_, lstm._flat_weights, lstm.parameters()))


def test_the_callers_generators_stay() -> None:
    before = torch.get_rng_state()
    built(cnn, [3])
    assert torch.equal(torch.get_rng_state(), before)


def on_cpu() -> nn.Sequential:
    """As a function that names the device, or loads weights."""
    return nn.Sequential(*(nn.Linear(64, 64, device="cpu") for _ in range(4)))


def test_what_is_put_on_a_device_by_name_is_not_kept_for_other_stages() -> None:
    part = built(on_cpu, [1])[0]
    assert [name for name, _ in part.model.named_parameters()] == ["0.weight", "0.bias"]


def test_loaded_weights_of_other_stages_are_let_go_of() -> None:
    kept: list[Any] = []

    def model() -> nn.Module:
        made = nn.Sequential(*(nn.Linear(4, 4) for _ in range(2)))
        state = {name: torch.ones_like(t, device="cpu") for name, t in made.state_dict().items()}
        made.load_state_dict(state, assign=True)
        made.all = list(made)  # holds the layers, though they are no longer in the tree
        kept.extend(made)
        return made

    part = built(model, [1])[0]
    assert torch.equal(part.layers[0][1].weight, torch.ones(4, 4))
    assert [sum(1 for _ in layer.parameters()) for layer in kept[:2]] == [2, 0]


def test_weights_loaded_by_copy_leave_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    state = mlp().state_dict()

    def model() -> nn.Module:
        made = mlp()
        made.load_state_dict(state)
        return made

    assert len(built(model, [1])) == 2
    assert not [one for one in recwarn if "no-op" in str(one.message)]


def test_a_function_that_reads_values_is_told_how() -> None:
    def model() -> nn.Module:
        rates = torch.linspace(0, 0.5, 2).tolist()
        return nn.Sequential(nn.Linear(8, 4), nn.Dropout(rates[0]), nn.Dropout(rates[1]))

    with pytest.raises(RequestError) as caught:
        built(model, [1])
    assert str(caught.value) == (
        "the job's model cannot be cut, as its function fails on torch's meta device, where "
        "tensors have no values: NotImplementedError: Cannot copy out of meta tensor; no data!: "
        'make tensors whose values it reads with device="cpu", and take weights by init='
    )


_PEAK = """
import sys, torch
from torch import nn
from dayfly.training.stages.layers import build_stage
from tests.stages.models import job_of

def model():
    return nn.Sequential(*(nn.Linear(1600, 1600) for _ in range(40)), nn.Linear(1600, 10))

def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

build_stage(job_of(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))), [1], 0)
before = peak_mib()
stage = build_stage(job_of(model), [39], int(sys.argv[1]))
for parameter in stage.model.parameters():
    parameter.data.fill_(1)
print(peak_mib() - before)
"""


@pytest.mark.parametrize(
    ("stage", "least_mib", "most_mib"),
    [pytest.param(1, 9, 40, marks=pytest.mark.slow), (0, 380, 430)],
)
def test_building_a_stage_takes_the_stages_memory(
    stage: int, least_mib: float, most_mib: float
) -> None:
    """Of a model of 391 MiB, the last stage is 10 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(stage)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert least_mib < float(done.stdout) < most_mib
