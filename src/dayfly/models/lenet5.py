"""LeNet-5: a small network for grey digits, in which everything but computation dominates.

LeCun and others, "Gradient-Based Learning Applied to Document Recognition" (1998), figure 2, as it
is trained today: rectified, with max pooling, and every map sees all maps before it.
"""

from __future__ import annotations

from torch import nn


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
