"""VGG: large parameters and large activations, at opposite ends of the list of layers.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (2014),
table 1, columns D (16) and E (19): 3x3 convolutions, each rectified, in five groups of 64, 128,
256, 512 and 512 channels, each of which ends in a max pool; then three linear layers, the first of
which holds three quarters of all parameters.

Images of other sizes than 224x224 are brought to 7x7 before the linear layers, by means or by
repetition, which is how KubeML could train it on 32x32; at 224x224 that does nothing.
"""

from __future__ import annotations

from torch import nn


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
