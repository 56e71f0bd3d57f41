"""FLOPs of layers: by hand, as papers print them, and what the catalogue derives from them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.models import MODELS, on_meta
from dayfly.models.entry import Entry
from dayfly.plan.figures import Affine
from dayfly.runs.profiling.flops import layer_flops
from dayfly.runs.profiling.layers import layer_bytes


def job(model: nn.Module) -> dayfly.Job:
    """A job with this model, and outputs' mean for a loss."""
    return dayfly.Job(
        model=lambda: model,
        data="digits",
        loss=lambda outputs, y: outputs.float().mean(),
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
        batch_size=4,
        epochs=1,
    )


def samples(entry: Entry) -> list[tuple[torch.Tensor, int]]:
    """Two of a model's, without values."""
    return [(one, 0) for one in entry.sample(2)]


def flops(entry: Entry) -> tuple[Affine, ...]:
    """Of a model of the table."""
    model = on_meta(entry.build)
    return layer_flops(job(model), model, samples(entry))


def test_layers_by_hand() -> None:
    """A multiply-add is two: 2 x 12 x 5, none, and 2 x 5 x 3 a sample."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    found = layer_flops(job(model), model, [(torch.zeros(3, 4), 0), (torch.zeros(3, 4), 1)])
    assert found == (Affine(0, 0), Affine(0, 120), Affine(0, 0), Affine(0, 30))
    assert len(found) == len(layer_bytes(job(model), model, [(torch.zeros(3, 4), 0)]))


def test_what_does_not_grow_with_the_samples_is_apart() -> None:
    class Squared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight @ self.weight)

    with torch.device("meta"):
        model = Squared()
    found = layer_flops(job(model), model, [(torch.zeros(4), 0), (torch.zeros(4), 1)])
    assert found == (Affine(2 * 4**3, 2 * 4**2),)


def test_a_model_that_reads_values_is_refused() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight if x.sum() > 0 else x

    with torch.device("meta"):
        model = Reads()
    with pytest.raises(RequestError, match=r"cannot be run on torch's meta device.*by hand"):
        layer_flops(job(model), model, [(torch.zeros(4), 0)])
    with pytest.raises(ValueError, match="build the model on the meta device"):
        layer_flops(job(Reads()), Reads(), [(torch.zeros(4), 0)])


@pytest.mark.parametrize(
    ("name", "printed", "ours"),
    [
        ("alexnet", "0.7", "0.7"),
        ("resnet34", "3.7", "3.7"),
        ("resnet152", "11.3", "11.5"),
        ("vgg19", "19.6", "19.6"),
    ],
)
def test_hydrozoas_table_2_counts_multiply_adds(name: str, printed: str, ours: str) -> None:
    """In 10^9 of a forward pass; ResNet-152 is a little off, and printed too small."""
    found = sum(one(1) for one in flops(MODELS[name])) / 2e9
    assert f"{found:.1f}" == ours
    assert float(printed) == pytest.approx(found, rel=0.02)


def test_lambdas_flops_are_funcpipes_six_seconds() -> None:
    """Section 1: AmoebaNet-D of 900 MB, 8 samples a function of 10 GB, computes for 6 s a step.

    Forward and twice that backward. The 6 s are read off a figure, so the row is good to a tenth.
    """
    entry, aws = MODELS["amoebanet_d36"], Catalogue().platform("aws-lambda")
    vcpus = aws.vcpus(10240)
    assert vcpus is not None
    step = 3 * sum(one(8) for one in flops(entry))
    assert step / 8 == pytest.approx(167e9, rel=0.01)
    assert aws.vcpu_flops_per_s == pytest.approx(step / 6 / vcpus, rel=0.005)
