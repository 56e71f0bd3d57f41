"""Convolutional models: LeNet-5, AlexNet, VGG, SqueezeNet, MobileNet, one for digits."""

from __future__ import annotations

import torch
from torch import nn

from dayfly.models.resnet import conv_norm, conv_norm_relu, mean_and_scores


def lenet5(classes: int = 10, padding: int = 0) -> nn.Sequential:
    """x_BCHW (B, 1, 28, 28) -> scores (B, classes); 12 layers, 44,426 parameters for ten.

    KubeML's table 4.1 has 44K: MNIST's 28x28 as they are, so that 16 maps of 4x4 are left. LeCun
    puts the digits into 32x32 (`padding=2`): 16 maps of 5x5, 61,706 parameters.
    """
    left = (28 + 2 * padding - 12) // 4
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * left * left, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def digits_cnn() -> nn.Sequential:
    """x_BCHW (B, 1, 8, 8) -> scores (B, 10); 9 layers, 38,282 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def alexnet(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 21 layers, 61,100,840 parameters.

    Hydrozoa's table 2 has 57M: 57,044,810 with the ten classes of CIFAR-10. (384 filters in the
    fourth convolution would make 57.8M.)
    """
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, classes),
    )


def _vgg(convolutions: tuple[int, ...], classes: int) -> nn.Sequential:
    """`convolutions` in each of the five groups."""
    layers: list[nn.Module] = []
    channels_in = 3
    for number, channels in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(number):
            layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU()]
            channels_in = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, classes),
    )


def vgg16(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 40 layers, 138,357,544 parameters.

    KubeML's table 4.1 has 134M: 134,301,514 with the ten classes of CIFAR-10.
    """
    return _vgg((2, 2, 3, 3, 3), classes)


def vgg19(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 46 layers, 143,667,240 parameters.

    Hydrozoa's table 2 has 143.7M: although it trains on CIFAR-10, for a thousand classes.
    """
    return _vgg((2, 2, 4, 4, 4), classes)


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
