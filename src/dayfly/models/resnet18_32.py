"""ResNet-18 for 32x32 images: a real model, in which computation dominates.

He and others, "Deep Residual Learning for Image Recognition" (2015), in the form that is usual for
CIFAR: a stem of one 3x3 convolution and no pooling before the blocks.

    stem 64 | 2 blocks 64, 32x32 | 2 blocks 128, 16x16 | 2 blocks 256, 8x8 | 2 blocks 512, 4x4
    | mean over the 4x4 | linear
"""

from __future__ import annotations

import torch
from torch import nn


class ResidualBlock(nn.Module):
    """x_BCHW (B, C, H, W) -> (B, `channels`, H / stride, W / stride).

    Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """The sum of both ways, rectified."""
        return nn.functional.relu(self.body(x_BCHW) + self.shortcut(x_BCHW))


def resnet18_32(classes: int = 10) -> nn.Sequential:
    """x_BCHW (B, 3, 32, 32) -> scores (B, classes); 11,173,962 parameters for ten classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(ResidualBlock(channels_in, channels, stride))
        layers.append(ResidualBlock(channels, channels, 1))
        channels_in = channels
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, classes)
    )
