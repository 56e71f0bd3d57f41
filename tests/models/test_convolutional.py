"""The papers' convolutional models: what their papers say of their form, and that they train."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dayfly.models import (
    alexnet,
    lenet5,
    mobilenet_v1,
    mobilenet_v1_32,
    mobilenet_v2,
    on_meta,
    parameters_of,
    resnet18,
    resnet32,
    resnet34,
    resnet50,
    resnet50_32,
    resnet101,
    resnet152,
    squeezenet,
    vgg16,
    vgg19,
)
from dayfly.models.convolutional import InvertedResidual
from dayfly.models.resnet import ZeroPadding

pytestmark = pytest.mark.long

Build = Callable[[int], nn.Sequential]


def weighted(model: nn.Module) -> int:
    """Layers with weights, as names of models count them: without shortcuts."""
    return sum(
        isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in name
        for name, module in model.named_modules()
    )


@pytest.mark.parametrize(
    ("build", "layers"),
    [
        (lenet5, 5),
        (alexnet, 8),
        (resnet18, 18),
        (resnet32, 32),
        (resnet34, 34),
        (resnet50, 50),
        (resnet50_32, 50),
        (resnet101, 101),
        (resnet152, 152),
        (vgg16, 16),
        (vgg19, 19),
        (mobilenet_v1, 28),
    ],
)
def test_layers_with_weights(build: Build, layers: int) -> None:
    assert weighted(on_meta(lambda: build(10))) == layers


@pytest.mark.parametrize(
    ("build", "size", "places"),
    [
        (resnet34, 224, [*[(64, 56)] * 3, *[(128, 28)] * 4, *[(256, 14)] * 6, *[(512, 7)] * 3]),
        (resnet50, 224, [*[(256, 56)] * 3, *[(512, 28)] * 4, *[(1024, 14)] * 6, *[(2048, 7)] * 3]),
        (resnet32, 32, [*[(16, 32)] * 5, *[(32, 16)] * 5, *[(64, 8)] * 5]),
    ],
)
def test_blocks_of_resnets(build: Build, size: int, places: list[tuple[int, int]]) -> None:
    """Channels and pixels a side after each block: table 1, and section 4.2."""
    model, passed = on_meta(lambda: build(10)), torch.empty(2, 3, size, size, device="meta")
    found = []
    for layer in model:
        passed = layer(passed)
        if hasattr(layer, "shortcut"):
            assert passed.shape[2] == passed.shape[3]
            found.append((passed.shape[1], passed.shape[2]))
    assert found == places


@pytest.mark.parametrize(("build", "printed"), [(resnet34, 21.5), (resnet152, 58.5)])
def test_hydrozoas_sizes_of_resnets_may_count_more_than_parameters(
    build: Build, printed: float
) -> None:
    """Means and variances of BatchNorm, and an image: table 2 would be explained."""
    model = on_meta(lambda: build(10))
    moments = sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    millions = (parameters_of(model) + moments + 3 * 224 * 224) / 1e6
    assert round(millions, 1) == printed


def test_a_shortcut_without_parameters() -> None:
    x_BCHW = torch.arange(2 * 4 * 4.0).reshape(1, 2, 4, 4) + 1
    out_BCHW = ZeroPadding()(x_BCHW)
    assert out_BCHW.shape == (1, 4, 2, 2)
    assert out_BCHW[0, 0].eq(0).all()
    assert out_BCHW[0, 1].tolist() == [[1, 3], [9, 11]]
    assert out_BCHW[0, 2].tolist() == [[17, 19], [25, 27]]
    assert out_BCHW[0, 3].eq(0).all()


def test_inverted_residuals_that_keep_their_shape_add_their_input() -> None:
    model = on_meta(mobilenet_v2)
    assert [block.adds for block in model if isinstance(block, InvertedResidual)] == [
        False,  # 16
        *[False, True],  # 24
        *[False, True, True],  # 32
        *[False, True, True, True],  # 64
        *[False, True, True],  # 96
        *[False, True, True],  # 160
        False,  # 320
    ]
    block = InvertedResidual(4, 4, 1, 2).eval()
    x_BCHW = torch.randn(1, 4, 3, 3)
    assert torch.equal(block(x_BCHW), x_BCHW + block.body(x_BCHW))


def test_mobilenet_halves_the_image_five_times_and_four_for_small_ones() -> None:
    for build, size, left in ((mobilenet_v1, 224, 7), (mobilenet_v1_32, 32, 2)):
        body = on_meta(build)[:-3]
        assert body(torch.empty(2, 3, size, size, device="meta")).shape == (2, 1024, left, left)


def test_lecuns_own_size_of_image() -> None:
    model = lenet5(padding=2)
    assert parameters_of(model) == 61_706
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("build", [vgg16, vgg19])
def test_vgg_takes_images_of_other_sizes(build: Build) -> None:
    model = on_meta(lambda: build(10))
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lenet5, (1, 28, 28)),
        (resnet32, (3, 32, 32)),
        (mobilenet_v1_32, (3, 32, 32)),
        (mobilenet_v2, (3, 32, 32)),
        (squeezenet, (3, 32, 32)),
    ],
)
def test_small_ones_pass_forward_and_backward(build: Build, shape: tuple[int, ...]) -> None:
    """On small images, which suffice: most end in a mean over the places that are left."""
    model = build(10)
    nn.functional.cross_entropy(model(torch.randn(2, *shape)), torch.tensor([0, 1])).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
