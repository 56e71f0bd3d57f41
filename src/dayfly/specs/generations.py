"""The plan of a generation: how many workers, where, with what, and which part each of them has.

    run   generation 0   4 workers, file://, from step 0
          generation 1   4 workers, file://, from the checkpoint before step 120

          generation 2   8 workers, redis://, from the checkpoint before step 200: a change

A run is a sequence of generations, if only of one. Size, platform and channel belong to a
generation, not to the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dayfly.specs.functions import FunctionSpec

#: Names of functions by turn: those of the next generation start while those of this one train.
_NAMES = ("worker", "successor")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank of a generation.

    Args:
        spec: what its function gets.
        stage: of the model, from 0.
        replica: of that stage, from 0.
        share: of each batch, in relation to the shares of the other ranks; 0: it trains nothing.
        lags: whether it takes each step's sum a step later than the ranks that sum.
    """

    spec: FunctionSpec
    stage: int = 0
    replica: int = 0
    share: int = 1
    lags: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Why the plan of a generation differs from that of the one before.

    Args:
        request: number of the request that asked for it; None: a callback did.
        words: what changes, such as `--workers 8 in place of 4`.
    """

    request: int | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """How functions of a generation are billed.

    Args:
        price_list: platform of the catalogue whose prices count.
        vcpus: for which each function is billed; None: those that come with its memory.
    """

    price_list: str
    vcpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """What a generation of workers is, from the step that it begins with.

    Args:
        number: of the generation, from 0; every message of its workers has it in its address.
        platform: where the functions run, by its name in the registry.
        channel: URL.
        store: URL.
        protocol: by its name in the registry; None: what a script does by itself.
        collective: by its name; None: the script's.
        first_step: of this generation.
        checkpoint: digest of the checkpoint that it starts from; None: of none that dayfly knows.
        layout: each rank's, in order.
        change: that this plan carries out; None: it is that of the generation before.
        tariff: by which its functions are billed; None: nobody bills them.
        turn: 0 or 1: which names its functions and its messages have. A generation that warms up
            while another one trains has the other names.

    Raises:
        ValueError: a plan that no workers can follow.
    """

    number: int
    platform: str
    channel: str = field(repr=False)
    store: str = field(repr=False)
    protocol: str | None = None
    collective: str | None = None
    first_step: int = 0
    checkpoint: str | None = None
    layout: Sequence[RankPlan]
    change: Change | None = None
    tariff: Tariff | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        if self.number < 0 or self.first_step < 0:
            raise ValueError(f"generation {self.number} from step {self.first_step}: both from 0")
        if not self.layout:
            raise ValueError(f"generation {self.number} has no worker")
        places = {(one.stage, one.replica) for one in self.layout}
        if len(places) < self.world_size:
            raise ValueError(f"generation {self.number}: two ranks have one replica of a stage")
        if (least := min(one.share for one in self.layout)) < 0:
            raise ValueError(f"generation {self.number}: a rank has a share of {least}: all from 0")
        if not any(one.share for one in self.layout):
            raise ValueError(f"generation {self.number}: no rank has a share of the batches")

    @property
    def world_size(self) -> int:
        """Number of its workers."""
        return len(self.layout)

    @property
    def shares(self) -> tuple[int, ...]:
        """Each rank's share of the batches; empty: they are equal."""
        each = tuple(one.share for one in self.layout)
        return each if len(set(each)) > 1 else ()

    def function(self, rank: int) -> str:
        """Returns the name of a rank's function, such as `worker-3`."""
        return f"{_NAMES[self.turn]}-{rank}"
