"""Streaming beside its formula, written out for one process."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.data.npy_arrays import load_arrays
from dayfly.training.order import Epochs, permuted
from dayfly.training.randomness import SPLIT, WEIGHTS, seeded
from tests.runs import small
from tests.runs.test_hap import sgd

pytestmark = pytest.mark.long

WORKERS, K, LR, MOMENTUM = 2, 4, 0.7, 0.9


@dataclass
class Flight:
    fragment: int
    due: int
    gradients: list[torch.Tensor]


@pytest.mark.parametrize("overlap", [pytest.param(0, marks=pytest.mark.slow), 1, 3])
def test_what_a_run_computes_is_the_formula(overlap: int, data: Path, tmp_path: Path) -> None:
    """Fragments are the two layers, taken after steps 2 and 4 of a round, and after an epoch's
    last one, which is a round of its own. What is in flight at an epoch's end is applied there."""
    job = small.job(
        data,
        model=small.plain_model,
        optimizer=sgd,
        transform=None,
        scheduler=None,
        clip_norm=None,
        metrics={},
        seed=3,
    )
    how: dict[str, Any] = {"sync": "local-sgd", "k": K, "outer": "nesterov", "workers": WORKERS}
    run = dayfly.train(job, run_dir=tmp_path, progress=False, fragments=2, overlap=overlap, **how)
    outer, losses = by_formula(data, overlap, seed=3)
    np.testing.assert_allclose(small.history(run)["step_loss"], losses, rtol=0, atol=1e-5)
    for trained, plain in zip(run.model().parameters(), outer, strict=True):
        torch.testing.assert_close(trained.detach(), plain, rtol=0, atol=1e-5)


def by_formula(data: Path, overlap: int, seed: int) -> tuple[list[torch.Tensor], list[float]]:
    """The outer parameters at the end, and the loss of each step."""
    arrays = load_arrays(data)
    validation = small.SAMPLES // 10
    with seeded(WEIGHTS, seed):
        models = [small.plain_model()]
    models += [copy.deepcopy(models[0]) for _ in range(WORKERS - 1)]
    inner = [sgd(model.parameters()) for model in models]
    outer = [parameter.detach().clone() for parameter in models[0].parameters()]
    momentum = [torch.zeros_like(one) for one in outer]
    epochs, losses = Epochs(small.SAMPLES - validation, small.BATCH, seed), []
    alpha, members = 0.5 if overlap else 0.0, [(0, 1), (2, 3)]
    flights: list[Flight] = []

    def apply(one: Flight) -> None:
        flights.remove(one)
        for at, gradient in zip(members[one.fragment], one.gradients, strict=True):
            momentum[at].mul_(MOMENTUM).add_(gradient)
            outer[at].sub_(LR * (gradient + MOMENTUM * momentum[at]))
            for model in models:
                own = list(model.parameters())[at].data
                own.copy_(alpha * own + (1 - alpha) * outer[at])

    for step in range(small.STEPS):
        total = 0.0
        for rank, model in enumerate(models):
            (mine,) = epochs.slices(range(step, step + 1), rank, WORKERS)
            rows = permuted(mine + validation, small.SAMPLES, SPLIT, seed)
            x, y = (torch.from_numpy(arrays[name][rows]) for name in ("x_train", "y_train"))
            inner[rank].zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            inner[rank].step()
            total += loss.item() / WORKERS
        losses.append(total)
        within = step % small.STEPS_AN_EPOCH + 1
        taken = {2: [0], 4: [1], 6: [0], 8: [1], 9: [0, 1]}.get(within, [])
        for one in [one for one in flights if one.due <= step]:
            apply(one)
        for fragment in taken:
            for one in [one for one in flights if one.fragment == fragment]:
                apply(one)  # of the epoch's last, short round
            own = [[list(m.parameters())[at].data for at in members[fragment]] for m in models]
            pairs = zip(members[fragment], zip(*own, strict=True), strict=True)
            means = [outer[at] - sum(its) / WORKERS for at, its in pairs]
            flights.append(Flight(fragment, step + overlap, means))
        for one in list(flights):
            if within == small.STEPS_AN_EPOCH or one.due <= step:
                apply(one)
    return outer, losses
