"""A GAN with two optimizers, on scikit-learn's handwritten digits.

dayfly train examples/gan.py --workers 2
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dayfly

NOISE = 16


class Gan(nn.Module):
    """A generator of images (N, 1, 8, 8) and a discriminator (N,)."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(NOISE, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid()
        )
        self.discriminator = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

    def drawn(self, count: int) -> torch.Tensor:
        """So many images, from noise that follows from seed, step and worker."""
        images: torch.Tensor = self.generator(torch.randn(count, NOISE))
        return images.view(count, 1, 8, 8)

    def judged(self, images: torch.Tensor) -> torch.Tensor:
        """Scores: above 0, the image is taken for a real one."""
        scores: torch.Tensor = self.discriminator(images.flatten(1))
        return scores


def _loss(scores: torch.Tensor, real: float) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))


def discriminate(model: Any, batch: Any) -> torch.Tensor:
    """The first phase: tells real images from those of the generator, which stays as it is."""
    images, _ = batch
    with torch.no_grad():
        drawn = model.drawn(len(images))
    return (_loss(model.judged(images), 1.0) + _loss(model.judged(drawn), 0.0)) / 2


def generate(model: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The second phase: draws images that the discriminator takes for real ones."""
    images, _ = batch
    drawn = model.drawn(len(images))
    return _loss(model.judged(drawn), 1.0), drawn


job = dayfly.Job(
    model=Gan,
    data="digits",
    step={"discriminator": discriminate, "generator": generate},
    optimizer={
        "discriminator": lambda m: torch.optim.Adam(m.discriminator.parameters(), 5e-4),
        "generator": lambda m: torch.optim.Adam(m.generator.parameters(), 1e-3),
    },
    clip_norm={"discriminator": 1.0},
    ema=0.99,
    batch_size=64,
    epochs=10,
)
