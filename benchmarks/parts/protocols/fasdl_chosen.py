"""Settings of SGD for each of FasDL's methods, by runs in one process.

all settings         as many epochs as the first budget buys, in dollars over S3
the best of them     as many as the last one buys: the best of these is chosen
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import Any

from rich.table import Table

from benchmarks.parts.machine import one_thread
from benchmarks.parts.protocols import fasdl_alone
from benchmarks.parts.protocols.fasdl import BASE, BUDGETS, Compared, How, bought, curves, job
from benchmarks.parts.protocols.trained import Runs
from benchmarks.parts.spread import columns, framed, number, say
from dayfly.data.npy_arrays import digits

Json = dict[str, Any]
_MOMENTA = (0.9, 0.5, 0.0)
#: Learning rates over 1 - momentum, which is what a gradient counts in the end.
_EFFECTIVE = (0.05, 0.1, 0.2, 0.5)
#: The same for all.
GRID = tuple(
    How(round(each * (1 - momentum), 6), momentum) for momentum in _MOMENTA for each in _EFFECTIVE
)
_STORE, _OF = "s3", "usd"
_FIRST, _LAST = BUDGETS[0], BUDGETS[-1]
#: Settings that are trained for the last budget.
_GO_ON = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Runs with some settings. losses: by seed. coming: of later epochs."""

    how: How
    losses: list[list[float]]
    coming: list[Iterator[float]]

    def train(self, epochs: int) -> None:
        """Has that many epochs trained in all."""
        for known, coming in zip(self.losses, self.coming, strict=True):
            known.extend(islice(coming, epochs - len(known)))

    def score(self, budgets: Sequence[int]) -> float:
        """Returns the geometric mean of the least losses within these epochs, over all seeds."""
        least = [min(one[:epochs]) for one in self.losses for epochs in budgets]
        return math.exp(fmean(math.log(one) for one in least))


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a curve and settings, the best first."""
    rows = []
    with one_thread():
        for curve, sharing in curves(runs.workers).items():
            rows += _chosen(curve, sharing, runs.workers, seeds)
    return rows


def _chosen(
    curve: str, sharing: Sequence[Compared], workers: int, seeds: Sequence[int]
) -> list[Json]:
    epochs = {
        budget: [bought(one.name, _STORE, workers, _OF, budget) for one in sharing]
        for budget in (_FIRST, _LAST)
    }
    tried = [_try(sharing[0], how, workers, seeds, max(epochs[_LAST])) for how in GRID]
    for one in tried:
        one.train(max(epochs[_FIRST]))
        _say(curve, one, epochs[_FIRST])
    tried.sort(key=lambda one: one.score(epochs[_FIRST]))
    on = tried[:_GO_ON]
    for one in on:
        one.train(max(epochs[_LAST]))
        _say(curve, one, epochs[_LAST])
    on.sort(key=lambda one: one.score(epochs[_LAST]))
    return [
        {
            "method": curve,
            "rate": one.how.rate,
            "momentum": one.how.momentum,
            "first": _finite(one.score(epochs[_FIRST])),
            "last": _finite(one.score(epochs[_LAST])) if one in on else None,
            "epochs": len(one.losses[0]),
            "seeds": len(seeds),
        }
        for one in (*on, *tried[_GO_ON:])
    ]


def _try(one: Compared, how: How, workers: int, seeds: Sequence[int], epochs: int) -> _Tried:
    """Runs of a method's curve, of which nothing is trained yet."""
    coming = [
        fasdl_alone.losses(
            replace(job(one.batch, how, epochs), seed=seed),
            digits(),
            workers=workers,
            aggregators=one.settings["aggregators"] if one.lags else workers,
            shares=one.shares,
        )
        for seed in seeds
    ]
    return _Tried(how=how, losses=[[] for _ in seeds], coming=coming)


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None


def _say(curve: str, one: _Tried, epochs: Sequence[int]) -> None:
    rate, momentum, loss = one.how.rate, one.how.momentum, one.score(epochs)
    say(f"{curve}, rate {rate:g}, momentum {momentum:g}: {loss:.4f} in {max(epochs)} epochs")


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    made = columns(["method"], ["rate", "momentum", f"budget {_FIRST}", f"budget {_LAST}"])
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before["method"] != row["method"]:
            made.add_section()
        cells = [row["method"], f"{row['rate']:g}", f"{row['momentum']:g}"]
        first = "diverged" if row["first"] is None else number(row["first"], 4)
        made.add_row(*cells, first, number(row["last"], 4))
    return framed(
        f"least losses in one process, as of {workers} workers; means of {rows[0]['seeds']} seeds",
        made,
        f"budget: for the dollars that so many epochs of {BASE} cost over {_STORE}; the first of "
        "each method is chosen",
    )
