"""Handwritten digits (scikit-learn's 1,797 images of 8x8), a small CNN, shifted images.

dayfly train examples/digits.py --workers 4
"""

import torch
from torch import nn

import dayfly


def model() -> nn.Module:
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


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The image (1, 8, 8) moved by up to a pixel: the same for a sample and epoch, anywhere."""
    rows, columns = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (rows, columns), dims=(1, 2))


job = dayfly.Job(
    model=model,
    data="digits",
    loss=nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15),
    batch_size=64,
    epochs=15,
    transform=shifted,
)
