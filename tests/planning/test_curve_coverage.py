"""How often the epochs of real runs lie in the range that a curve through the first ones gives.

loss |*                 of each run, from its first epochs alone: when is the loss of a later
     |  *               epoch reached? That epoch is known.
     |     *  .  x  .
     |  seen  |low  high|
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dayfly.errors import RequestError
from dayfly.planning.curves import ACCURACY, LOSS, epochs_to
from tests.training.jobs import one_thread

# Trains for some ten seconds; curves of known coefficients are in test_curves.py, in the suite.
pytestmark = [pytest.mark.slow, pytest.mark.long]

EPOCHS = 40
#: Epochs that are seen, and how many times as late the target is.
SEEN, LATER = (4, 5, 6, 8, 12, 16), (1.5, 2, 2.5)

Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "plain": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=2e-3),
}


def model(hidden: int) -> nn.Module:
    if not hidden:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def history(seed: int, make: Make, hidden: int) -> Iterator[tuple[float, float]]:
    """Validation's loss and accuracy after each epoch of a run on the digits."""
    from sklearn.datasets import load_digits  # takes a second: not in each process of tests

    digits = load_digits()
    x, y = torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target)
    torch.manual_seed(seed)
    order = torch.randperm(len(x))
    held_out, trained = order[:180], order[180:]
    net = model(hidden)
    optimizer = make(net.parameters())
    for _ in range(EPOCHS):
        for batch in trained[torch.randperm(len(trained))].split(64):
            optimizer.zero_grad()
            cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            scores = net(x[held_out])
            right = (scores.argmax(1) == y[held_out]).float().mean()
            yield float(cross_entropy(scores, y[held_out])), float(right)


def count(values: list[float], what: str, seen: int) -> Iterator[str]:
    """Of each later target: whether it was reached within the range, before, or after it."""
    falling = [1 - value for value in values] if what == ACCURACY else values
    for later in LATER:
        best = min(falling[: int(seen * later)])
        if best >= min(falling[:seen]):
            continue
        at = 1 + falling.index(best)
        try:
            found = epochs_to(dict(enumerate(values[:seen], 1)), what, values[at - 1])
        except RequestError:
            yield "refused"
            continue
        assert found.low <= found.epochs <= (found.high or found.epochs)
        yield "early" if at < found.low else "late" if at > (found.high or at) else "in"


def test_epochs_of_real_runs_lie_in_the_range() -> None:
    counts: dict[tuple[str, int], Counter[str]] = {}
    with one_thread():
        runs = [
            list(history(100 + seed, make, hidden))
            for make in OPTIMIZERS.values()
            for hidden in (0, 32)
            for seed in range(4)
        ]
    for run in runs:
        for seen in SEEN:
            for side, what in enumerate((LOSS, ACCURACY)):
                values = [epoch[side] for epoch in run]
                counts.setdefault((what, seen), Counter()).update(count(values, what, seen))
    for (what, seen), found in counts.items():
        told = found["in"] + found["early"] + found["late"]
        print(f"{what} seen {seen}: {found['in'] / told:.0%} of {told}, {dict(found)}")
        assert told >= 20
        assert found["in"] >= (0.6 if seen < 5 else 0.75) * told
    for what in (LOSS, ACCURACY):
        total = sum((one for (of, _), one in counts.items() if of == what), Counter[str]())
        assert total["in"] >= 0.85 * (total["in"] + total["early"] + total["late"])
