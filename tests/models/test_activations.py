"""Sizes of layers: small models by hand, and what they say of large ones."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import nn

from dayfly.models import MODELS, LayerSize, digits_cnn, layer_sizes, on_meta, resnet101
from dayfly.models.resnet import Residual


def sizes(*layers: nn.Module, shape: tuple[int, ...] = (2, 5)) -> tuple[LayerSize, ...]:
    return layer_sizes(nn.Sequential(*layers).to("meta"), torch.empty(shape, device="meta"))


def mib(sizes_bytes: Iterable[int]) -> float:
    return round(sum(sizes_bytes) / 2**20, 1)


def size(parameters: int, output: int, kept: int, alone: int) -> LayerSize:
    """Of so many float32 numbers."""
    return LayerSize(
        parameter_bytes=4 * parameters,
        output_bytes=4 * output,
        kept_bytes=4 * kept,
        alone_bytes=4 * alone,
    )


def test_a_perceptron() -> None:
    """The input is not counted; ReLU keeps what it puts out, and the last layer that, too."""
    assert sizes(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1)) == (
        size(18, 6, 0, 6),
        size(0, 6, 6, 6),
        size(4, 2, 0, 2),
    )


def test_a_layer_keeps_the_input_that_no_other_keeps() -> None:
    assert sizes(nn.Linear(5, 3), nn.Linear(3, 1)) == (size(18, 6, 0, 6), size(4, 2, 6, 2))


def test_in_place_nothing_is_added_and_a_view_is_nothing_new() -> None:
    inner = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Unflatten(1, (2, 2)))
    assert sizes(inner, nn.Flatten()) == (size(24, 8, 8, 8), size(0, 8, 0, 0))


def test_max_pooling_keeps_where_the_largest_was() -> None:
    """Its indices are int64: two numbers each."""
    assert sizes(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2), shape=(1, 1, 4, 4)) == (
        size(2, 16, 0, 16),
        size(0, 16, 16, 16),
        size(0, 4, 8, 12),
    )


def test_batch_norm_keeps_its_input_and_statistics_of_the_batch() -> None:
    (_, norm) = sizes(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), shape=(2, 1, 4, 4))
    assert norm == size(6, 96, 96 + 6, 96 + 6)


def test_what_a_pair_of_tensors_takes_counts() -> None:
    found = sizes(Twice(), Joined(nn.Identity()))
    assert [layer.output_bytes for layer in found] == [80, 40]
    assert [layer.alone_bytes for layer in found] == [0, 40]


def test_what_is_kept_is_what_a_real_forward_pass_keeps() -> None:
    model, x = digits_cnn(), torch.randn(3, 1, 8, 8)
    own = {p.data_ptr() for p in model.parameters()} | {x.data_ptr()}
    held: dict[int, torch.Tensor] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            held[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        model(x)
    found = layer_sizes(on_meta(digits_cnn), torch.empty(3, 1, 8, 8, device="meta"))
    real = sum(tensor.numel() * tensor.element_size() for tensor in held.values())
    assert sum(layer.kept_bytes for layer in found) == real


class Beside(nn.Module):
    """(x, y) -> (part(x), y)."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.part(pair[0]), pair[1]


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


class Joined(nn.Module):
    """(x, y) -> x + shortcut(y)."""

    def __init__(self, shortcut: nn.Module) -> None:
        super().__init__()
        self.shortcut = shortcut

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        joined: torch.Tensor = pair[0] + self.shortcut(pair[1])
        return joined


def as_fine_as_funcpipe(model: nn.Sequential) -> nn.Sequential:
    """Its published ResNet: each convolution and each norm is a layer; no ReLU within a block."""
    layers: list[nn.Module] = []
    for layer in model:
        if not isinstance(layer, Residual):
            layers.append(layer)
            continue
        parts = [Beside(part) for part in layer.body if not isinstance(part, nn.ReLU)]
        layers += [Twice(), *parts, Joined(layer.shortcut), nn.ReLU()]
    return nn.Sequential(*layers)


def test_activations_of_funcpipes_table_1() -> None:
    """198 MB for ResNet101: what a process that ran each fine layer was seen to take up.

    The sums have 3% less, as nobody's memory has gaps there.
    """
    sample = MODELS["resnet101"].sample(1)
    blocks = layer_sizes(on_meta(resnet101), sample)
    fine = layer_sizes(as_fine_as_funcpipe(on_meta(resnet101)), sample)
    assert mib(layer.alone_bytes for layer in fine) == 192.0
    assert mib(layer.alone_bytes for layer in blocks) == 123.9
    assert mib(layer.kept_bytes for layer in blocks) == 120.8
    assert mib(layer.output_bytes for layer in blocks) == 44.0


@pytest.mark.parametrize(
    ("model", "sample"),
    [
        (nn.Sequential(nn.Linear(1, 1)), torch.empty(1, 1, device="meta")),
        (nn.Sequential(nn.Linear(1, 1, device="meta")), torch.empty(1, 1)),
    ],
)
def test_nothing_is_computed(model: nn.Sequential, sample: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="without computing"):
        layer_sizes(model, sample)
