"""ResNets: many layers of about one cost, whose activations are large beside their parameters.

He and others, "Deep Residual Learning for Image Recognition" (2015). Table 1 has those for
ImageNet, section 4.2 that for CIFAR-10 (`resnet32`).

    resnet18 ... 152    stem 7x7 / 2, 64 channels, max pool 3x3 / 2 | blocks | mean | linear
    resnet*_32          the same for 32x32 images, as is usual: stem 3x3, no pooling
    resnet32            stem 3x3, 16 channels | 5 blocks each of 16, 32 and 64 | mean | linear

    for 224x224      56x56   28x28   14x14   7x7
    resnet18            2       2       2     2    blocks of 64, 128, 256, 512 channels
    resnet34            3       4       6     3
    resnet50            3       4       6     3    bottlenecks, which put out four times as many
    resnet101           3       4      23     3
    resnet152           3       8      36     3

Each block is a layer; so are the parts of the stem and of the head. A bottleneck halves the image
in its 3x3 convolution, as frameworks' models do; in the paper it does so in the first 1x1, with as
many parameters.

Shapes: B samples, C channels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


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


class Residual(nn.Module):
    """x_BCHW -> the sum of two ways, `body` and `shortcut`, rectified."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Both ways give one shape."""
        return F.relu(self.body(x_BCHW) + self.shortcut(x_BCHW))


class ZeroPadding(nn.Module):
    """x_BCHW (B, C, H, W) -> (B, 2C, H / 2, W / 2): every other pixel, and channels of zeros.

    The paper's shortcut A, which has no parameters.
    """

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Half of the new channels come before the old ones, half after."""
        around = x_BCHW.shape[1] // 2
        return F.pad(x_BCHW[:, :, ::2, ::2], (0, 0, 0, 0, around, around))


def _projection(channels_in: int, channels: int, stride: int) -> nn.Module:
    """The paper's shortcut B: nothing where the shape stays, a 1x1 convolution elsewhere."""
    if stride == 1 and channels_in == channels:
        return nn.Identity()
    return nn.Sequential(*conv_norm(channels_in, channels, 1, stride))


def _two_convolutions(channels_in: int, channels: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        *conv_norm_relu(channels_in, channels, 3, stride), *conv_norm(channels, channels, 3)
    )


class ResidualBlock(Residual):
    """x_BCHW (B, C, H, W) -> (B, `channels`, H / stride, W / stride): two 3x3 convolutions."""

    #: Channels that are put out, as a multiple of `channels`.
    EXPANSION = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__(
            _two_convolutions(channels_in, channels, stride),
            _projection(channels_in, channels, stride),
        )


class Bottleneck(Residual):
    """x_BCHW (B, C, H, W) -> (B, 4 `channels`, H / stride, W / stride): 1x1, 3x3, 1x1."""

    EXPANSION = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__(
            nn.Sequential(
                *conv_norm_relu(channels_in, channels, 1),
                *conv_norm_relu(channels, channels, 3, stride),
                *conv_norm(channels, 4 * channels, 1),
            ),
            _projection(channels_in, 4 * channels, stride),
        )


def _stem(channels: int, kernel: int, stride: int) -> list[nn.Module]:
    """Layers of their own; the last does not work in place (see `blocks`)."""
    return [*conv_norm(3, channels, kernel, stride), nn.ReLU()]


def _resnet(
    stem: list[nn.Module],
    block: type[ResidualBlock | Bottleneck],
    blocks: tuple[int, ...],
    classes: int,
) -> nn.Sequential:
    """`blocks` of 64, 128, 256 and 512 channels; the first of each but of 64 halves the image."""
    layers, channels_in = stem, 64
    for stage, number in enumerate(blocks):
        channels = 64 * 2**stage
        for index in range(number):
            layers.append(block(channels_in, channels, 2 if stage and not index else 1))
            channels_in = block.EXPANSION * channels
    return nn.Sequential(*layers, *mean_and_scores(channels_in, classes))


def _for_224(
    block: type[ResidualBlock | Bottleneck], blocks: tuple[int, ...], classes: int
) -> nn.Sequential:
    stem = [*_stem(64, 7, 2), nn.MaxPool2d(3, stride=2, padding=1)]
    return _resnet(stem, block, blocks, classes)


def resnet18(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 15 layers, 11,689,512 parameters."""
    return _for_224(ResidualBlock, (2, 2, 2, 2), classes)


def resnet34(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 23 layers, 21,797,672 parameters.

    KubeML's table 4.1 has 21M: 21,289,802 with the ten classes of CIFAR-10. Hydrozoa's table 2 has
    21.5M, on CIFAR-10, too, which is not reached: 21.3M. It is 21.5M if the means and variances of
    BatchNorm count, and the 150,528 numbers of an image, so its figure may be the sum of all arrays
    that its framework holds.
    """
    return _for_224(ResidualBlock, (3, 4, 6, 3), classes)


def resnet50(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 23 layers, 25,557,032 parameters.

    97.49 MiB, as FasDL's table II has it: although it trains on CIFAR-10, for a thousand classes.
    """
    return _for_224(Bottleneck, (3, 4, 6, 3), classes)


def resnet101(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 40 layers, 44,549,160 parameters.

    FuncPipe's table 1 has 170 MB, which are MiB in its profiler, hence a thousand classes (for ten
    it would be 170 of 10^6 bytes). Its 198 MB of activations a sample, for 224x224, are memory that
    a process was seen to take up, layer by layer (`alone_bytes` of `layer_sizes`); computed for
    layers as fine as FuncPipe's, that is 192.0 MiB. Blocks as they are here take 123.9.
    """
    return _for_224(Bottleneck, (3, 4, 23, 3), classes)


def resnet152(classes: int = 1000) -> nn.Sequential:
    """x_BCHW (B, 3, 224, 224) -> scores (B, classes); 57 layers, 60,192,808 parameters.

    Hydrozoa's table 2 has 58.5M, on CIFAR-10, which is not reached: 58.2M for ten classes, 60.2M
    for a thousand. It is 58.5M for ten if as much else counts as for `resnet34`.
    """
    return _for_224(Bottleneck, (3, 8, 36, 3), classes)


def resnet18_32(classes: int = 10) -> nn.Sequential:
    """x_BCHW (B, 3, 32, 32) -> scores (B, classes); 14 layers, 11,173,962 parameters for ten."""
    return _resnet(_stem(64, 3, 1), ResidualBlock, (2, 2, 2, 2), classes)


def resnet50_32(classes: int = 10) -> nn.Sequential:
    """x_BCHW (B, 3, 32, 32) -> scores (B, classes); 22 layers, 23,520,842 parameters for ten.

    LambdaML's ResNet50, which CE-scaling compares with. Both give 89 MB for what is 89.7 MiB:
    it was cut, not rounded.
    """
    return _resnet(_stem(64, 3, 1), Bottleneck, (3, 4, 6, 3), classes)


def resnet32(classes: int = 10) -> nn.Sequential:
    """x_BCHW (B, 3, 32, 32) -> scores (B, classes); 21 layers, 464,154 parameters for ten.

    The paper's n = 5: 6n + 2 layers with weights. KubeML's table 4.1 has 0.46M.
    """
    layers, channels_in = _stem(16, 3, 1), 16
    for channels in (16, 32, 64):
        for _ in range(5):
            halves = channels_in != channels
            shortcut: Callable[[], nn.Module] = ZeroPadding if halves else nn.Identity
            body = _two_convolutions(channels_in, channels, 2 if halves else 1)
            layers.append(Residual(body, shortcut()))
            channels_in = channels
    return nn.Sequential(*layers, *mean_and_scores(64, classes))
