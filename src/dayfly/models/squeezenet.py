"""SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters.

Iandola and others, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model
size" (2016), in version 1.1 of its authors: a smaller stem, and pooling earlier, for 2.4 times
fewer operations.

Shapes: B samples, C channels, H and W pixels.
"""

from __future__ import annotations

import torch
from torch import nn


class Fire(nn.Module):
    """x_BCHW (B, C, H, W) -> (B, 2 `expanded`, H, W).

    A 1x1 convolution squeezes the channels; a 1x1 and a 3x3 beside each other expand them.
    """

    def __init__(self, channels_in: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels_in, squeezed, 1)
        self.expand_1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand_3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """All three are rectified."""
        few_BSHW = self.squeeze(x_BCHW).relu_()
        return torch.cat([self.expand_1(few_BSHW), self.expand_3(few_BSHW)], dim=1).relu_()


def squeezenet(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 18 layers, 1,235,496 parameters.

    4.71 MiB, as FasDL's table II has it: although it trains on CIFAR-10, for a thousand classes.
    (Version 1.0 would take 4.76.)
    """
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(128, 32, 128),
        Fire(256, 32, 128),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(256, 48, 192),
        Fire(384, 48, 192),
        Fire(384, 64, 256),
        Fire(512, 64, 256),
        nn.Dropout(),
        nn.Conv2d(512, classes, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
