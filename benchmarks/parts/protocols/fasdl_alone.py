"""A run of HAP, or of workers that wait, in one process: to choose settings by.

    g_t of the aggregators' samples    at w_t
    g_t of the others' samples         at w_(t-1); in an epoch's first step at w_t
    w_(t+1)                            the optimizer's step from w_t, by the sum of both

First weights, batches, shares and validation's samples are those of a real run with the same seed.
So its losses are, too, but for the order in which a step's gradients are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dayfly.batches import share
from dayfly.job import Job
from dayfly.training.arrays import validation_samples
from dayfly.training.order import Epochs, permuted
from dayfly.training.randomness import SPLIT
from dayfly.training.replica import build_model


def losses(
    job: Job,
    arrays: Mapping[str, NDArray[Any]],
    *,
    workers: int,
    aggregators: int,
    shares: tuple[int, ...] = (),
) -> Iterator[float]:
    """Yields the validation loss after each epoch; infinity from the first one that is not finite.

    Args:
        job: of a model without buffers and dropout.
        arrays: x_train and y_train, of which a part is split off for validation.
        workers: of the run.
        aggregators: ranks below this have the newest weights; as many as workers: all wait.
        shares: of the workers in each batch; empty: equal ones.
    """
    x, y = (torch.from_numpy(arrays[f"{side}_train"]) for side in "xy")
    cut = validation_samples(len(x))
    rows = torch.from_numpy(permuted(np.arange(len(x)), len(x), SPLIT, job.seed))
    held, rows = rows[:cut], rows[cut:]
    epochs = Epochs.of(len(rows), job)
    model = build_model(job)
    parameters = list(model.parameters())
    optimizer = job.optimizer(parameters)  # type: ignore[operator]
    lag = [one.detach().clone() for one in parameters]

    def backward(some: torch.Tensor, of: int) -> None:
        (job.loss(model(x[some]), y[some]) * (len(some) / of)).backward()  # type: ignore[misc]

    for epoch in range(job.epochs):
        for step in range(epochs.first(epoch), epochs.first(epoch + 1)):
            batch = rows[epochs.indices(step, 0, 1)]
            newest = share(len(batch), aggregators - 1, workers, shares).stop
            now = [one.detach().clone() for one in parameters]
            optimizer.zero_grad()
            if newest:
                backward(batch[:newest], len(batch))
            if newest < len(batch):
                with _at(parameters, now if epochs.begins_epoch(step) else lag):
                    backward(batch[newest:], len(batch))
            optimizer.step()
            lag = now
        with torch.no_grad():
            loss = float(job.loss(model(x[held]), y[held]))  # type: ignore[misc]
        if not isfinite(loss):
            yield from repeat(inf, job.epochs - epoch)
            return
        yield loss


@contextmanager
def _at(parameters: Sequence[nn.Parameter], values: Sequence[torch.Tensor]) -> Iterator[None]:
    """The parameters have these values inside."""
    own = [one.data for one in parameters]
    for one, value in zip(parameters, values, strict=True):
        one.data = value
    try:
        yield
    finally:
        for one, value in zip(parameters, own, strict=True):
            one.data = value
