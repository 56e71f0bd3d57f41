"""Where a script's loop stands, and how a process that starts again gets there.

    for epoch in model.epochs(9):      epoch 3 begins: generators and registered state are noted
        for x, y in loader:
            loss = model.step(x, y)    steps of this epoch: their losses are noted
        found = model.evaluate(data)   what was measured in it is noted, too

A checkpoint after step 2 of epoch 3 holds what was noted as epoch 3 began, and two losses. The
script that starts again goes into epoch 3 with that state, so its loader gives the same batches;
the first two calls of `step` return the noted losses, and compute nothing; then the model and the
optimizer become those of the checkpoint, and the loop is where it was. Code of the script's between
two steps runs once more, and sees the same losses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dayfly.errors import RequestError
from dayfly.training.state import Tensors, decode, encode

#: How the names of its tensors begin in a checkpoint.
_PREFIX = "loop"


class Position:
    """Where one process's loop stands.

    Args:
        registered: name to an object with `state_dict` and `load_state_dict`, or with `get_state`
            and `set_state`, as a `torch.Generator`.

    Attributes:
        epoch: that `epochs` gave last, from 0; None: the loop has no such epochs.
        losses: of the steps since it began, as far as they are done.
        measured: results of the evaluations since it began.
        evaluations: since the last step; an epoch's begin changes nothing in that.
        shown: what the loop's first batch showed, as JSON; None: there was none.

    Raises:
        RequestError: an object whose state cannot be kept.
    """

    def __init__(self, registered: Mapping[str, Any]) -> None:
        for name, one in registered.items():
            if not (_has(one, "state_dict", "load_state_dict") or _has_raw_state(one)):
                raise RequestError(
                    f"dayfly.parallel(state=...): {name!r} is a {type(one).__name__} without "
                    "state_dict and load_state_dict: register an object that has both"
                )
        self._registered = dict(registered)
        self.epoch: int | None = None
        self.losses: list[float] = []
        self.measured: list[dict[str, float | None]] = []
        self.evaluations = 0
        self.shown: Any = None
        self._given = self._given_measures = self._evaluations_before = 0
        self._tree: Any = None
        self._tensors: Tensors = {}
        self.note()

    @property
    def replaying(self) -> bool:
        """Whether the next step was done before, by the process that this one follows."""
        return self._given < len(self.losses)

    @property
    def first(self) -> bool:
        """Whether no step was done, or given again, since the epoch began."""
        return self._given == 0

    @property
    def measured_before(self) -> bool:
        """Whether the next evaluation was done before, by the process that this one follows."""
        return self._given_measures < len(self.measured)

    def note(self) -> None:
        """What the generators and registered objects are now is what the epoch begins with."""
        tensors: Tensors = {}
        tree = encode(self._states(), f"{_PREFIX}.state", tensors)
        self._tree, self._tensors = tree, {name: one.clone() for name, one in tensors.items()}

    def begin(self, epoch: int) -> None:
        """An epoch begins here."""
        self.epoch, self.losses, self._given = epoch, [], 0
        self.measured, self._given_measures = [], 0
        self._evaluations_before = self.evaluations
        self.note()

    def add(self, loss: float) -> None:
        """A step is done."""
        self.losses.append(loss)
        self._given += 1
        self.evaluations = 0

    def again(self) -> float:
        """Returns the loss of a step that was done before."""
        self._given += 1
        self.evaluations = 0
        return self.losses[self._given - 1]

    def add_measured(self, measured: dict[str, float | None]) -> None:
        """An evaluation is done."""
        self.measured.append(measured)
        self.measured_again()

    def measured_again(self) -> dict[str, float | None]:
        """Returns what an evaluation found that was done before."""
        self._given_measures += 1
        self.evaluations += 1
        return self.measured[self._given_measures - 1]

    def record(self, train_loss: float) -> dict[str, int | float | None]:
        """What the history has of the epoch; of several evaluations the last.

        Args:
            train_loss: mean of its samples.
        """
        measured = dict(self.measured[-1]) if self.measured else {}
        return {
            "epoch": (self.epoch or 0) + 1,
            "train_loss": train_loss,
            "val_loss": measured.pop("loss", None),
            "val_accuracy": measured.pop("accuracy", None),
            **measured,
        }

    def dump(self) -> tuple[Any, Tensors]:
        """For a checkpoint: JSON, and tensors that nobody changes."""
        tree = {
            "epoch": self.epoch,
            "losses": encode(list(self.losses), "losses", {}),
            "measured": encode(list(self.measured), "measured", {}),
            "evaluations": self._evaluations_before,
            "shown": self.shown,
            "state": self._tree,
        }
        return tree, dict(self._tensors)

    def load(self, tree: Any, tensors: Tensors) -> None:
        """Stand where `dump` was called, with the steps of its epoch still to be given again."""
        self.epoch, self.losses, self._given = tree["epoch"], decode(tree["losses"], {}), 0
        self.measured, self._given_measures = decode(tree.get("measured", []), {}), 0
        self.evaluations = self._evaluations_before = tree.get("evaluations", 0)
        self.shown = tree.get("shown")
        own = {name: one for name, one in tensors.items() if name.startswith(f"{_PREFIX}.")}
        self._tree, self._tensors = tree["state"], own

    def restore(self) -> None:
        """Put generators and registered objects back to what the epoch began with."""
        states = decode(self._tree, {name: one.clone() for name, one in self._tensors.items()})
        if (missing := states["registered"].keys() ^ self._registered.keys()) != set():
            raise RequestError(
                f"dayfly.parallel(state=...): {', '.join(sorted(missing))} is not registered as it "
                "was when the checkpoint was written: register the same names"
            )
        torch.set_rng_state(states["torch"])
        kind, keys, *rest = states["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        random.setstate((states["random"][0], tuple(states["random"][1]), states["random"][2]))
        for name, one in self._registered.items():
            load = one.set_state if _has_raw_state(one) else one.load_state_dict
            load(states["registered"][name])

    def _states(self) -> Any:
        kind, keys, *rest = np.random.get_state()
        return {
            "torch": torch.get_rng_state(),
            "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
            "random": list(random.getstate()),
            "registered": {
                name: one.get_state() if _has_raw_state(one) else one.state_dict()
                for name, one in self._registered.items()
            },
        }


def _has(one: Any, *names: str) -> bool:
    return all(callable(getattr(one, name, None)) for name in names)


def _has_raw_state(one: Any) -> bool:
    return not _has(one, "state_dict") and _has(one, "get_state", "set_state")
