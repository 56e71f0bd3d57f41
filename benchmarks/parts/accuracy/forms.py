"""Models of KubeML's table 4.1 at the size of a small machine, and images for them, made here.

    a person's digit (8, 8)  ->  enlarged, put somewhere  ->  + ground, colours and noise

The images are scikit-learn's handwritten digits, which nobody has to download. Those of validation
are other digits than those of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from benchmarks.parts.protocols.trained import Task
from dayfly.data.npy_arrays import digits
from dayfly.job import Job
from dayfly.models import lenet5
from dayfly.models.resnet import ResidualBlock, conv_norm_relu, mean_and_scores

#: Samples of a step of each worker: small, as where KubeML is fastest.
BATCH = 16
TRAIN, _VALIDATION = 1280, 512
_NOISE = 0.2


def resnet8() -> nn.Sequential:
    """x_BCHW (B, 3, 16, 16) -> scores (B, 10); 78,042 parameters, a residual block a width."""
    return nn.Sequential(
        *conv_norm_relu(3, 16, 3),
        ResidualBlock(16, 16, 1),
        ResidualBlock(16, 32, 2),
        ResidualBlock(32, 64, 2),
        *mean_and_scores(64, 10),
    )


def vgg6() -> nn.Sequential:
    """x_BCHW (B, 3, 16, 16) -> scores (B, 10); most parameters are of two wide layers, as in VGG16.

    Without dropout, so that all sides train alike.
    """
    layers: list[nn.Module] = []
    for channels_in, channels in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    wide = [nn.Linear(64 * 2 * 2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *wide, nn.Linear(512, 10))


def _sgd(rate: float, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """With KubeML's momentum and weight decay (table 4.2)."""
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=1e-4)


def images(channels: int, pixels: int) -> dict[str, NDArray[Any]]:
    """Returns x (N, channels, pixels, pixels) and y (N,) for training and for validation.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    whole, random = digits(), torch.Generator().manual_seed(0)
    order = torch.randperm(len(whole["y_train"]), generator=random)[: TRAIN + _VALIDATION]
    small, y = torch.from_numpy(whole["x_train"])[order], whole["y_train"][order.numpy()]
    side = 7 * pixels // 8
    large = F.interpolate(small, size=(side, side), mode="bilinear", align_corners=False)
    shape_N = torch.zeros(len(order), 1, pixels, pixels)
    for image, digit in zip(shape_N, large, strict=True):
        top, left = torch.randint(pixels - side + 1, (2,), generator=random).tolist()
        image[:, top : top + side, left : left + side] = digit
    ground, ink = torch.rand(2, len(order), channels, 1, 1, generator=random) / 2
    clean = ground * (1 - shape_N) + (0.5 + ink) * shape_N
    noisy = clean + _NOISE * torch.randn(clean.shape, generator=random)
    x = ((noisy - noisy.mean()) / noisy.std()).numpy()
    return {
        "x_train": x[:TRAIN],
        "y_train": y[:TRAIN],
        "x_val": x[TRAIN:],
        "y_val": y[TRAIN:],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A model, and how it is trained.

    Args:
        name: for people, and of the runs that are kept.
        title: for people, if several forms have one name.
        model: builds it.
        channels, pixels: of an image, and of its side.
        rate: learning rate.
        epochs: of a run.
        timed_epochs: of a run whose seconds count; of these, the first does not.
    """

    name: str
    model: Callable[[], nn.Module]
    channels: int
    pixels: int
    rate: float
    epochs: int
    timed_epochs: int
    title: str = ""

    def job(self, scratch: Path) -> Job:
        """Returns the job; its files are in the directory, and are made if they are not there."""
        data = scratch / f"images-{self.channels}-{self.pixels}"
        if not data.exists():
            data.mkdir()
            for name, array in images(self.channels, self.pixels).items():
                np.save(data / f"{name}.npy", array)
        return Job(
            model=self.model,
            data=data,
            loss=F.cross_entropy,
            optimizer=partial(_sgd, self.rate),
            batch_size=BATCH,
            epochs=self.epochs,
        )

    @property
    def task(self) -> Task:
        """What runs are kept by."""
        facts = {
            "rate": self.rate,
            "epochs": self.epochs,
            "batch": BATCH,
            "samples": [TRAIN, _VALIDATION],
            "noise": _NOISE,
        }
        return Task(name=self.name, facts=facts, make=self.job, batch=self._batch)

    def _batch(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(count, self.channels, self.pixels, self.pixels)
        return x, torch.randint(10, (count,))


#: Learning rates of `--choose`, with other seeds than those that are reported.
RATES = (0.02, 0.03, 0.05)
FORMS: Mapping[str, Form] = {
    one.name: one
    for one in (
        Form(
            name="lenet",
            model=lenet5,
            channels=1,
            pixels=28,
            rate=0.03,
            epochs=16,
            timed_epochs=4,
        ),
        Form(
            name="resnet",
            model=resnet8,
            channels=3,
            pixels=16,
            rate=0.05,
            epochs=16,
            timed_epochs=3,
        ),
        Form(
            name="vgg",
            model=vgg6,
            channels=3,
            pixels=16,
            rate=0.03,
            epochs=16,
            timed_epochs=2,
        ),
    )
}
