"""How far a run has come, as its checkpoint says, and how a worker gets level with its peers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch

from dayfly.life.reports import Reporter
from dayfly.specs.events import epochs_from_1
from dayfly.training.logged import TRAIN, Sums, means
from dayfly.training.state import decode, encode
from dayfly.wire.engine import Engine
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Name

#: One epoch: epoch (from 1), train_loss, val_loss, val_accuracy (None: not measured), metrics.
EpochRecord = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """Losses of the epoch so far, and the epochs before it.

    Attributes:
        not_finite: the first step whose loss, or whose validation's, was not finite, and that loss.
        logged: sums of what the job's step logs, weighted by samples as `loss_sum` is.
    """

    loss_sum: float = 0.0
    samples: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    not_finite: tuple[int, float] | None = None
    logged: Sums = field(default_factory=dict)

    def add(self, step: int, loss: float, samples: int, logged: Sums | None = None) -> None:
        """Note a step.

        Args:
            step: its number.
            loss: its batch's mean.
            samples: of its batch.
            logged: sums of what it logs, in shares of these samples.
        """
        if self.not_finite is None and not math.isfinite(loss):
            self.not_finite = step, loss
        self.loss_sum += loss * samples
        self.samples += samples
        for name, sums in (logged or {}).items():
            total, weight = self.logged.get(name, (0.0, 0.0))
            self.logged[name] = total + sums[0] * samples, weight + sums[1] * samples

    def become(self, other: Progress) -> None:
        """Be as far as another one."""
        self.loss_sum, self.samples, self.history = other.loss_sum, other.samples, other.history
        self.not_finite, self.logged = other.not_finite, other.logged

    def end_epoch(self, measured: Mapping[str, float | None]) -> EpochRecord:
        """Close the epoch with what validation measured (nothing, if there was none)."""
        record = {
            "epoch": len(self.history) + 1,
            "train_loss": self.loss_sum / self.samples,
            "val_loss": None,
            "val_accuracy": None,
            **means(self.logged, TRAIN),
            **measured,
        }
        self.history.append(record)
        self.loss_sum, self.samples, self.logged = 0.0, 0, {}
        return record

    def dump(self) -> Any:
        """For JSON; losses that are no number included."""
        return encode({one.name: getattr(self, one.name) for one in fields(self)}, "progress", {})

    @classmethod
    def load(cls, tree: Any) -> Self:
        """From what `dump` gave, by way of JSON."""
        progress = cls(**decode(tree, {}))
        progress.history = [dict(one) for one in epochs_from_1(progress.history)]
        return progress


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSum:
    """An all-reduce whose result may be in the log.

    Attributes:
        like_P: a buffer of the size that is summed.
        packing: how it travels, maybe with a tail; None: as it is.
    """

    engine: Engine
    operation: str
    like_P: torch.Tensor
    packing: Packing | None = None

    def reads_buffer(self, stored: frozenset[Name] | None) -> bool:
        """Whether the own contribution is needed, given what is stored."""
        return self.engine.schedule(self.like_P, stored).reads_buffer

    def take(self, step: int, stored: frozenset[Name] | None) -> None:
        """Sum the buffer over the ranks, in place; see `Engine.all_reduce`."""
        self.engine.all_reduce(self.like_P, step, self.operation, stored, self.packing)


class CatchUp:
    """Whether an attempt is behind its peers.

    Args:
        step: the step at which it starts.
        behind: whether it may be; not if there is no log, as all workers start together then.
        ahead: steps by which its predecessor may have been ahead of the first step that is not
            whole in the log.
    """

    def __init__(self, reporter: Reporter, step: int, *, behind: bool, ahead: int = 0) -> None:
        self._reporter = reporter
        self._ahead = ahead
        self._missing = False  # whether a step that is not whole was seen
        self.behind = behind
        if not behind:
            self._tell(step)

    def stored(self, step: int, sums: Sequence[LoggedSum]) -> list[frozenset[Name] | None]:
        """Of all-reduces that are under way together, the sums in the log; None once it is level.

        The step in which any of them is not whole in the log is the one in which the predecessor
        died, or one of the `ahead` steps before it.
        """
        if not self.behind:
            return [None] * len(sums)
        stored = [one.engine.stored_sums(one.like_P, step, one.operation) for one in sums]
        whole = [len(one.engine.sums(one.like_P)) for one in sums]
        if self._missing or [len(some) for some in stored] != whole:
            self._missing = True
            self._ahead -= 1
            if self._ahead < 0:
                self.behind = False
                self._tell(step)
        return list(stored)

    def _tell(self, step: int) -> None:
        self._reporter.add("caught up", urgent=True, step=step)
