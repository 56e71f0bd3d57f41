"""What the convolutional models share: a convolution with its normalisation, rectified or not.

Rectifying is done in place here, within a layer, and never by a layer of a model: the input of a
stage is a leaf of autograd, which nothing may overwrite.
"""

from __future__ import annotations

from torch import nn


def conv_norm(
    channels_in: int, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """x_BCHW (B, channels_in, H, W) -> (B, channels, H / stride, W / stride), no bias."""
    return [
        nn.Conv2d(
            channels_in,
            channels,
            kernel,
            stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        ),
        nn.BatchNorm2d(channels),
    ]


def conv_norm_relu(
    channels_in: int, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """The same, rectified."""
    return [*conv_norm(channels_in, channels, kernel, stride, groups), nn.ReLU(inplace=True)]


def mean_and_scores(channels: int, classes: int, dropout: float = 0.0) -> list[nn.Module]:
    """x_BCHW (B, channels, H, W) -> scores (B, classes): the mean over all places, then a line."""
    forget = [nn.Dropout(dropout)] if dropout else []
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *forget, nn.Linear(channels, classes)]
