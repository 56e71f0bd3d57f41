"""The three trainings that are measured: the same job, data and first weights for both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dayfly.data.npy_arrays import digits
from dayfly.job import Job
from dayfly.models import digits_cnn, resnet18_32, wide_mlp

Arrays = dict[str, Any]


def _momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def _gentle(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """With momentum, and so small steps that rounding does not grow: few samples a BatchNorm."""
    return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)


def _plain(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02)


def _digits(samples: int) -> Arrays:
    """scikit-learn's digits, from the first on; again and again if they do not suffice."""
    whole = digits()
    rows = np.arange(samples) % len(whole["x_train"])
    return {"x_train": whole["x_train"][rows], "y_train": whole["y_train"][rows]}


def _noise(*shape: int) -> Callable[[int], Arrays]:
    """Random samples of a shape, in ten random classes: what is learnt does not matter here."""

    def make(samples: int) -> Arrays:
        random = np.random.default_rng(0)
        x = random.standard_normal((samples, *shape), dtype=np.float32)
        return {"x_train": x, "y_train": random.integers(0, 10, samples)}

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training of `epochs` x `steps_an_epoch` steps.

    batch_size: samples a step, all processes together. warm_steps: first steps that are not
    measured: until dayfly has made its first checkpoint, and uses the memory of its message log
    again, as it does from then on. Nor is the last step, after which dayfly validates. tolerance:
    how far the losses of the two sides may be apart in any step, as a share of the larger of the
    loss and 1.
    """

    name: str
    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    arrays: Callable[[int], Arrays]
    batch_size: int
    steps_an_epoch: int
    epochs: int
    warm_steps: int
    tolerance: float

    @property
    def steps(self) -> int:
        """Steps of a run."""
        return self.steps_an_epoch * self.epochs

    @property
    def measured_steps(self) -> int:
        """Steps of a run that are measured: neither the first ones nor the last."""
        return self.steps - self.warm_steps - 1

    @property
    def samples(self) -> int:
        """Training samples."""
        return self.batch_size * self.steps_an_epoch

    def write_data(self, directory: Path) -> None:
        """Put the arrays into a directory, as a job takes them; few to validate with."""
        directory.mkdir()
        arrays = self.arrays(self.samples)
        arrays |= {f"{name}_val": arrays[f"{name}_train"][: self.batch_size] for name in "xy"}
        for name, array in arrays.items():
            np.save(directory / f"{name}.npy", array)

    def job(self, data: Path) -> Job:
        """What both sides train."""
        return Job(
            model=self.model,
            data=data,
            loss=nn.functional.cross_entropy,
            optimizer=self.optimizer,
            batch_size=self.batch_size,
            epochs=self.epochs,
            validate_every=self.epochs,
        )

    def quick(self) -> Workload:
        """A short form, to see that everything works; its figures say less."""
        if self.epochs > 1:
            return replace(self, epochs=max(1, self.epochs // 6))
        return replace(self, steps_an_epoch=6, warm_steps=2)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="digits-cnn",
            model=digits_cnn,
            optimizer=_momentum,
            arrays=_digits,
            batch_size=64,
            steps_an_epoch=28,
            epochs=12,
            warm_steps=20,
            tolerance=0.005,
        ),
        Workload(
            name="resnet18",
            model=resnet18_32,
            optimizer=_gentle,
            arrays=_noise(3, 32, 32),
            batch_size=32,
            steps_an_epoch=28,
            epochs=1,
            warm_steps=14,
            tolerance=0.005,
        ),
        Workload(
            name="wide-mlp",
            model=wide_mlp,
            optimizer=_plain,
            arrays=_noise(1024),
            batch_size=32,
            steps_an_epoch=60,
            epochs=1,
            warm_steps=14,
            tolerance=0.005,
        ),
    )
}


def workload_of(name: str, quick: bool) -> Workload:
    """A workload by its name, in its short form if asked."""
    return WORKLOADS[name].quick() if quick else WORKLOADS[name]
