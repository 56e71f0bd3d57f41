"""Ways to train with several workers: dayfly's protocols, and DDP over gloo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Of an outer optimizer with few rounds: less momentum than DiLoCo's.
_NESTEROV = {"outer": "nesterov", "outer_lr": 0.7, "outer_momentum": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a model is trained.

    Args:
        name: for people.
        settings: of `dayfly.train`; None: DDP over gloo.
        swept: whether it is also trained with other numbers of workers than the first.
    """

    name: str
    settings: Mapping[str, Any] | None = field(hash=False)
    swept: bool = False

    @property
    def k(self) -> int | str:
        """Steps of a round, or `epoch`."""
        k: int | str = (self.settings or {}).get("k", 1)
        return k


def _local(name: str, k: int | str, *, swept: bool = False, **more: Any) -> Way:
    return Way(name=name, settings={"sync": "local-sgd", "k": k, **more}, swept=swept)


DDP = Way(name="DDP over gloo", settings=None, swept=True)
#: The target is of its accuracies.
BSP = Way(name="bsp", settings={"sync": "bsp"})
#: KubeML's k, from every step to once an epoch.
AVERAGES = (
    _local("average k 1", 1),
    _local("average k 4", 4),
    _local("average k 16", 16, swept=True),
    _local("average k epoch", "epoch", swept=True),
)
_OUTER = (
    _local("nesterov k 16", 16, **_NESTEROV),
    _local("nesterov k 16 int8", 16, **_NESTEROV, compress="int8"),
)
WAYS = (DDP, BSP, *AVERAGES, *_OUTER)
#: To choose a learning rate by, and to see that all of it works.
FEW = (DDP, BSP, AVERAGES[-1], _OUTER[0])


def ways_on(workers: int, numbers: tuple[int, ...]) -> tuple[Way, ...]:
    """Returns the ways that are trained on so many workers: on the first of the numbers all."""
    return WAYS if workers == numbers[0] else tuple(one for one in WAYS if one.swept)
