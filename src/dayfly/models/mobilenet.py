"""MobileNets: few parameters and few operations, in many short layers.

Howard and others, "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications" (2017), table 1, and Sandler and others, "MobileNetV2: Inverted Residuals and Linear
Bottlenecks" (2018), table 2. A 3x3 convolution is parted into one in each channel by itself, and a
1x1 convolution across channels. The second version narrows the channels between blocks, and adds a
block's input to what it puts out where both have one shape.

Shapes: B samples, C channels, H and W pixels.
"""

from __future__ import annotations

import torch
from torch import nn

from dayfly.models.blocks import conv_norm, conv_norm_relu, mean_and_scores

#: Of version 1: channels that a block puts out, and its stride.
_V1 = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)
#: Of version 2: factor of expansion, channels, number of blocks, stride of the first of them.
_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _relu6(parts: list[nn.Module]) -> list[nn.Module]:
    return [*parts, nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    """x_BCHW (B, C, H, W) -> (B, `channels`, H / stride, W / stride), over expansion * C channels.

    The last convolution is not rectified. The input is added where the shape stays.
    """

    def __init__(self, channels_in: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * channels_in
        widen = _relu6(conv_norm(channels_in, wide, 1)) if expansion != 1 else []
        self.body = nn.Sequential(
            *widen,
            *_relu6(conv_norm(wide, wide, 3, stride, groups=wide)),
            *conv_norm(wide, channels, 1),
        )
        self.adds = stride == 1 and channels_in == channels

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """The body, and the input where it fits."""
        out_BCHW: torch.Tensor = self.body(x_BCHW)
        return x_BCHW + out_BCHW if self.adds else out_BCHW


def _v1(stem_stride: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [*conv_norm(3, 32, 3, stem_stride), nn.ReLU()]
    channels_in = 32
    for channels, stride in _V1:
        each = conv_norm_relu(channels_in, channels_in, 3, stride, groups=channels_in)
        layers.append(nn.Sequential(*each, *conv_norm_relu(channels_in, channels, 1)))
        channels_in = channels
    return nn.Sequential(*layers, *mean_and_scores(channels_in, classes))


def mobilenet_v1(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 19 layers, 4,231,976 parameters."""
    return _v1(2, classes)


def mobilenet_v1_32(classes: int = 10) -> nn.Sequential:
    """x_BCHW (B, 3, 32, 32) -> scores (B, classes); 19 layers, 3,217,226 parameters for ten.

    The stem keeps the size. LambdaML's MobileNet, which CE-scaling compares with: 12 MB, and here
    12.3 MiB.
    """
    return _v1(1, classes)


def mobilenet_v2(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 27 layers, 3,504,872 parameters.

    FasDL's table II has a "MobileNet" of 13.37 MB; this is the version, with a thousand classes
    although it trains on CIFAR-10, that takes as many MiB.
    """
    layers: list[nn.Module] = [*conv_norm(3, 32, 3, 2), nn.ReLU6()]
    channels_in = 32
    for expansion, channels, number, stride in _V2:
        for index in range(number):
            first = stride if index == 0 else 1
            layers.append(InvertedResidual(channels_in, channels, first, expansion))
            channels_in = channels
    last = [*conv_norm(channels_in, 1280, 1), nn.ReLU6()]
    return nn.Sequential(*layers, *last, *mean_and_scores(1280, classes, dropout=0.2))
