"""What KubeML's text says of figures 4.2 to 4.7 (sections 4.2 and 4.3), and what came out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.parts.accuracy.ways import AVERAGES, BSP
from benchmarks.parts.papers.figure import Fact, times

Json = Mapping[str, Any]
#: How many times sooner than TensorFlow it is at the target: at a local batch of 16 (LeNet) and 32
#: (ResNet34); of VGG16 the thesis says that TensorFlow is sooner.
_SOONER: Mapping[str, float | None] = {"lenet": 2.75, "resnet": 3.98, "vgg": None}
#: Whether the thesis finds accuracy no worse once an epoch than at more frequent averages.
_ONCE_IS_AS_GOOD = {"lenet": True, "resnet": True, "vgg": False}
#: Shares of accuracy that are nearer to each other are taken for equal.
_EQUAL = 0.005


def accuracy_facts(parts: Mapping[str, Sequence[Json]]) -> tuple[Fact, ...]:
    """Returns what the thesis says of accuracy by k, beside the medians of the seeds.

    Args:
        parts: rows of `reached.rows`, by model.
    """
    made = []
    for model, once in _ONCE_IS_AS_GOOD.items():
        if model not in parts:
            continue
        best = {row["way"]: row["best"] for row in _first(parts[model])}
        if not all(one.name in best for one in AVERAGES):
            continue
        *often, epoch = (best[one.name] for one in AVERAGES)
        as_good = epoch >= max(often) - _EQUAL
        said = ", ".join(f"{100 * best[one.name]:.1f}" for one in (BSP, *AVERAGES))
        made.append(
            Fact(
                what=f"{model}: best accuracy with k = epoch beside that with smaller k",
                theirs="as good or better" if once else "worse",
                ours=f"{'as good' if as_good else 'worse'}: {said} %",
                agrees=as_good == once,
                why="of bsp and k = 1, 4, 16, epoch; momentum is averaged here, the thesis resets "
                "it, and the images are easier",
            )
        )
    return tuple(made)


def time_facts(parts: Mapping[str, Sequence[Json]]) -> tuple[Fact, ...]:
    """Returns what the thesis says of time to accuracy, beside the best way here.

    Args:
        parts: rows of `reached.rows`, by model, with seconds.
    """
    made = []
    for model, sooner in _SOONER.items():
        timed = [row for row in _first(parts.get(model, ())) if "faster" in row]
        ours = [row for row in timed if "functions_usd" in row and row["reached"] == row["seeds"]]
        if not ours:
            continue
        averages = [row for row in ours if row["way"] in {one.name for one in AVERAGES}]
        best, other = (
            max(rows, key=lambda row: float(row["faster"])) for rows in (averages or ours, ours)
        )
        made.append(
            Fact(
                what=f"{model}: the peer's seconds to the target over the best average's",
                theirs="below 1" if sooner is None else times(sooner),
                ours=f"{times(best['faster'])}, {best['way']}; of all ways "
                f"{times(other['faster'])}, {other['way']}",
                agrees=(best["faster"] > 1) == (sooner is not None),
                why="its two GPUs have NCCL and PCIe between them, where both sides here have the "
                "same slow lines",
            )
        )
    return tuple(made)


def _first(rows: Sequence[Json]) -> list[Json]:
    """Those on the first number of workers."""
    return [row for row in rows if row["workers"] == rows[0]["workers"]]
