"""The curves of a run: losses by step, and what was measured by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dayfly.errors import RequestError
from dayfly.specs.events import EpochTold, Measured, RoundTold, StepTold, Told, epochs_from_1

Json = Mapping[str, Any]
Losses = Sequence[float | None]

#: Points of a curve on the page.
POINTS = 600
#: Steps that nobody may have told of.
_MOST_UNTOLD = 10**6
_LOSSES = ("train_loss", "val_loss")


def step_losses(records: Iterable[Told]) -> list[float | None]:
    """From workers' events, for a run that has no history yet: None where none was reported.

    A round of local steps knows the losses of whole batches, of which its steps saw a slice.
    Raises RequestError for numbers of steps that lie too far apart to be a run's.
    """
    found: dict[int, float | None] = {}
    for told in records:
        if isinstance(told, StepTold):
            found[told.step] = told.loss
        elif isinstance(told, RoundTold):
            found |= {told.step + place: loss for place, loss in enumerate(told.losses)}
    last = max(found, default=-1)
    if last > _MOST_UNTOLD + 2 * len(found):
        raise RequestError(
            f"the events of worker 0 tell of step {last}, but of {len(found)} steps in all: they "
            "are damaged, so put back a copy of them"
        )
    return [found.get(step) for step in range(last + 1)]


def epochs(records: Iterable[Told]) -> list[Measured]:
    """From workers' events, for a run that has no history yet: one record an epoch, in order."""
    found = {told.epoch: told.record for told in records if isinstance(told, EpochTold)}
    return epochs_from_1([found[epoch] for epoch in sorted(found)])


def smoothed(losses: Losses, reach: int) -> list[float | None]:
    """Mean over up to `reach` steps to either side; what is no number does not count."""
    sums, counts = [0.0], [0]
    for loss in losses:
        sums.append(sums[-1] + (loss or 0.0))
        counts.append(counts[-1] + (loss is not None))
    smooth: list[float | None] = []
    for place in range(len(losses)):
        low, high = max(0, place - reach), min(len(losses), place + reach + 1)
        count = counts[high] - counts[low]
        smooth.append((sums[high] - sums[low]) / count if count else None)
    return smooth


def thinned(losses: Losses, points: int) -> list[tuple[int, float, float]]:
    """(first step, least, largest) of equal stretches of steps, at most `points` of them."""
    stretch = max(1, -(-len(losses) // points))
    rows = []
    for first in range(0, len(losses), stretch):
        known = [loss for loss in losses[first : first + stretch] if loss is not None]
        if known:
            rows.append((first, min(known), max(known)))
    return rows


def loss_by_step(losses: Losses) -> Json:
    """The figure of a run's step losses, for the page's script."""
    reach = len(losses) // 60
    smooth = smoothed(losses, reach)
    stretch = max(1, -(-len(losses) // POINTS))
    mean = [
        (step, loss) for step in _some(len(losses), stretch) if (loss := smooth[step]) is not None
    ]
    series: list[Json] = [
        {
            "name": f"mean of {2 * reach + 1} steps" if reach else "each step",
            "role": "bold",
            "line": _rounded(mean),
        }
    ]
    if reach:
        each = _rounded(thinned(losses, POINTS))
        series.insert(0, {"name": "each step", "role": "light", "band": each})
    return {"title": "Loss by step", "x": "step", "y": "loss", "series": series}


def by_epoch(records: Sequence[Measured]) -> list[Json]:
    """Figures of losses, accuracy, and each metric of the job's own, those that were measured."""
    names = list(dict.fromkeys(name for record in records for name in record))
    others = [name for name in names if name not in ("epoch", *_LOSSES)]
    short = {"train_loss": "training", "val_loss": "validation"}
    groups = [("Loss by epoch", "loss", _LOSSES), *((_title(n), _spoken(n), (n,)) for n in others)]
    figures: list[Json] = []
    for title, y, members in groups:
        series = [
            {
                "name": short.get(name, y),
                "role": "second" if name == "train_loss" else "bold",
                "dots": True,
                "line": _rounded(
                    (record["epoch"], record[name])
                    for record in records
                    if isinstance(record.get(name), int | float)
                ),
            }
            for name in members
        ]
        measured = [one for one in series if one["line"]]
        if measured:
            figure = {"title": title, "x": "epoch", "y": y, "series": measured}
            figures.append(figure | ({"percent": True} if y == "validation accuracy" else {}))
    return figures


def _some(count: int, stretch: int) -> list[int]:
    """Each `stretch`-th of `count` places, and the last one."""
    return sorted({*range(0, count, stretch), *([count - 1] if count else [])})


def _title(name: str) -> str:
    spoken = _spoken(name)
    return spoken[:1].upper() + spoken[1:]


def _spoken(name: str) -> str:
    return name.replace("val_", "validation ", 1).replace("_", " ")


def _rounded(rows: Iterable[tuple[Any, ...]]) -> list[list[float]]:
    """Six digits are more than a screen can show."""
    return [[n if isinstance(n, int) else float(f"{n:.6g}") for n in row] for row in rows]
