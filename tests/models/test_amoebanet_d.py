"""AmoebaNet-D: its sizes against the papers' tables, and what passes between cells."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dayfly.models import amoebanet_d, amoebanet_d18, amoebanet_d36
from dayfly.models.amoebanet_d import Cell, Halved
from tests.models.sizes import mib, on_meta, parameters

pytestmark = pytest.mark.long


def test_sizes_are_those_of_the_tables() -> None:
    d18, d36 = parameters(on_meta(amoebanet_d18)), parameters(on_meta(amoebanet_d36))
    assert (d18, d36) == (122_470_120, 236_194_024)
    # FuncPipe's table 1 has 476 (467 with two digits exchanged, see there) and 900, in MiB.
    assert (mib(d18), mib(d36)) == (467.2, 901.0)
    ten_classes = parameters(on_meta(lambda: amoebanet_d18(classes=10)))
    assert (mib(ten_classes), round(ten_classes * 4 / 1e6, 1)) == (451.7, 473.7)


@pytest.mark.slow
def test_activations_of_a_sample_are_those_of_224_pixels() -> None:
    put_out: list[float] = []
    for build in (amoebanet_d18, amoebanet_d36):
        model, numbers = on_meta(build), 0

        def count(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            nonlocal numbers
            numbers += output.numel()

        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        model(torch.empty(1, 3, 224, 224, device="meta"))
        put_out.append(mib(numbers))
    # FuncPipe's table 1 has 432 and 697.
    assert put_out == [429.9, 723.4]


@pytest.mark.parametrize(
    ("layers", "filters", "millions"),
    # What torchgpipe counts, and GPipe's table 1 within a hundredth: 82, 318, 542, 1050, 1800.
    [(18, 208, 81.5), (18, 416, 319.0), (18, 544, 542.7), (36, 544, 1060), (72, 512, 1840)],
)
def test_sizes_are_those_of_gpipe(layers: int, filters: int, millions: float) -> None:
    counted = parameters(on_meta(lambda: amoebanet_d(layers, filters)))
    assert counted / 1e6 == pytest.approx(millions, abs=0.05 if millions < 1000 else 5)


def test_what_passes_between_the_cells() -> None:
    model = on_meta(lambda: amoebanet_d(layers=6, filters=256))
    passed: object = torch.empty(2, 3, 224, 224, device="meta")
    shapes = []
    for layer in model[:-1]:
        passed = layer(passed)
        tensors = passed if isinstance(passed, tuple) else (passed,)
        shapes.append([tuple(tensor.shape[1:3]) for tensor in tensors])
    assert shapes == [
        [(64, 112)],  # the stem: a convolution and two reductions
        [(384, 56), (64, 112)],
        [(768, 28), (384, 56)],
        [(1024, 28), (768, 28)],
        [(1024, 28), (1024, 28)],
        [(1536, 14), (1024, 28)],
        [(2048, 14), (1536, 14)],
        [(2048, 14), (2048, 14)],
        [(3072, 7), (2048, 14)],
        [(4096, 7), (3072, 7)],
        [(4096, 7)],  # the last cell's input is of no use to the classifier
    ]
    assert model[-1](passed).shape == (2, 1000)


def test_a_small_one_trains_on_small_images() -> None:
    model = amoebanet_d(layers=3, filters=16, classes=10)
    assert parameters(model) == 100_886
    scores = model(torch.randn(3, 3, 32, 32))
    assert scores.shape == (3, 10)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_normal_cell_puts_out_the_cell_before_beside_its_sums() -> None:
    cell = Cell(8, 12, 8, reduction=False, after_reduction=False)
    x, before = torch.randn(2, 12, 6, 6), torch.randn(2, 8, 6, 6)
    out, passed_on = cell((x, before))
    assert out.shape == (2, 32, 6, 6)
    assert passed_on is x
    fitted = cell.fit(x)
    assert torch.equal(out[:, :8], fitted)
    # State 3 is the cell before that, as it is, plus a convolution of state 0.
    assert torch.allclose(out[:, 8:16], before + cell.sums[1].second(fitted), atol=1e-6)


def test_half_of_the_channels_are_from_even_pixels_and_half_from_odd_ones() -> None:
    halved = Halved(1, 2).eval()
    with torch.no_grad():
        halved.even.weight.fill_(1)
        halved.odd.weight.fill_(1)
        image = torch.arange(16.0).view(1, 1, 4, 4)
        even, odd = halved(image)[0] * (1 + halved.norm.eps) ** 0.5
    assert even.round().tolist() == [[0, 2], [8, 10]]
    assert odd.round().tolist() == [[5, 7], [13, 15]]


@pytest.mark.parametrize(("layers", "filters"), [(4, 16), (0, 16), (3, 12), (3, 0)])
def test_what_cannot_be_built_is_refused(layers: int, filters: int) -> None:
    with pytest.raises(ValueError, match="give a multiple of"):
        amoebanet_d(layers, filters)
