"""The table of models: what they take and give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from dayfly.models.amoebanet_d import amoebanet_d18, amoebanet_d36
from dayfly.models.convolutional import (
    alexnet,
    digits_cnn,
    lenet5,
    mobilenet_v1,
    mobilenet_v1_32,
    mobilenet_v2,
    squeezenet,
    vgg16,
    vgg19,
)
from dayfly.models.linear import wide_mlp
from dayfly.models.resnet import (
    resnet18,
    resnet18_32,
    resnet32,
    resnet34,
    resnet50,
    resnet50_32,
    resnet101,
    resnet152,
)
from dayfly.models.transformers import bert_base, bert_large

Build = Callable[[], nn.Sequential]


def parameters_of(model: nn.Module) -> int:
    """How many numbers its parameters hold; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(build: Build) -> nn.Sequential:
    """The model without values: its shapes and sizes, for no memory."""
    with torch.device("meta"):
        return build()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the table.

    Args:
        build: makes it, as a list of layers.
        sample_shape: of one sample.
        sample_type: of its numbers.
        scores: numbers that it gives for a sample, which are one a class for those that classify.
    """

    build: Build
    sample_shape: tuple[int, ...]
    scores: int
    sample_type: torch.dtype = torch.float32

    def sample(self, batch_size: int) -> torch.Tensor:
        """A batch without values, (batch_size, *sample_shape), on the meta device."""
        shape = (batch_size, *self.sample_shape)
        return torch.empty(shape, dtype=self.sample_type, device="meta")


_COLOUR_224, _COLOUR_32 = (3, 224, 224), (3, 32, 32)

#: By name. A new model is a new line.
MODELS: dict[str, Entry] = {
    "digits_cnn": Entry(build=digits_cnn, sample_shape=(1, 8, 8), scores=10),
    "wide_mlp": Entry(build=wide_mlp, sample_shape=(1024,), scores=10),
    "lenet5": Entry(build=lenet5, sample_shape=(1, 28, 28), scores=10),
    "alexnet": Entry(build=alexnet, sample_shape=_COLOUR_224, scores=1000),
    "resnet18": Entry(build=resnet18, sample_shape=_COLOUR_224, scores=1000),
    "resnet34": Entry(build=resnet34, sample_shape=_COLOUR_224, scores=1000),
    "resnet50": Entry(build=resnet50, sample_shape=_COLOUR_224, scores=1000),
    "resnet101": Entry(build=resnet101, sample_shape=_COLOUR_224, scores=1000),
    "resnet152": Entry(build=resnet152, sample_shape=_COLOUR_224, scores=1000),
    "resnet18_32": Entry(build=resnet18_32, sample_shape=_COLOUR_32, scores=10),
    "resnet32": Entry(build=resnet32, sample_shape=_COLOUR_32, scores=10),
    "resnet50_32": Entry(build=resnet50_32, sample_shape=_COLOUR_32, scores=10),
    "vgg16": Entry(build=vgg16, sample_shape=_COLOUR_224, scores=1000),
    "vgg19": Entry(build=vgg19, sample_shape=_COLOUR_224, scores=1000),
    "mobilenet_v1": Entry(build=mobilenet_v1, sample_shape=_COLOUR_224, scores=1000),
    "mobilenet_v1_32": Entry(build=mobilenet_v1_32, sample_shape=_COLOUR_32, scores=10),
    "mobilenet_v2": Entry(build=mobilenet_v2, sample_shape=_COLOUR_224, scores=1000),
    "squeezenet": Entry(build=squeezenet, sample_shape=_COLOUR_224, scores=1000),
    "amoebanet_d18": Entry(build=amoebanet_d18, sample_shape=_COLOUR_224, scores=1000),
    "amoebanet_d36": Entry(build=amoebanet_d36, sample_shape=_COLOUR_224, scores=1000),
    "bert_base": Entry(build=bert_base, sample_shape=(128,), sample_type=torch.int64, scores=2),
    "bert_large": Entry(build=bert_large, sample_shape=(128,), sample_type=torch.int64, scores=2),
}
