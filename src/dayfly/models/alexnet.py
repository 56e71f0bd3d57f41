"""AlexNet: nine tenths of the parameters in three linear layers, few operations each.

Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural Networks"
(2012), in the one column of Krizhevsky's "One weird trick for parallelizing convolutional neural
networks" (2014), with 256 filters in its fourth convolution, as frameworks' models have it, not
384; Hydrozoa's figure tells which was used.
"""

from __future__ import annotations

from torch import nn


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
