"""A job's metrics: functions of outputs and targets, and objects by torchmetrics' convention.

    function    metric(outputs, targets)     once, of the whole validation set
    object      update, compute, reset       its states travel, one a block, if they can be merged:

    block 0    reset | update | state --.
    block 1    reset | update | state --+-> merged in the order of blocks -> compute
    block 2    reset | update | state --'

States can be merged if all are tensors of a fixed size that are summed, or of which the largest or
the smallest counts. That is so of torchmetrics' accuracy, F1, confusion matrix, mean squared error
and so on. Of all other objects (curves of exact scores, correlations, wrappers, classes of one's
own) outputs and targets are gathered, as for functions, and `update` is called once with all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch.utils._pytree import tree_map

from dayfly.errors import RequestError
from dayfly.job import Metric, is_metric_object

#: Most numbers of a metric's state a block. Outputs and targets are gathered in place of a larger.
MOST_NUMBERS = 4096
#: By the name of torchmetrics' reduction: merges states of all blocks, (blocks, numbers).
_MERGES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dim_zero_sum": lambda states: states.sum(0),
    "dim_zero_max": lambda states: states.amax(0),
    "dim_zero_min": lambda states: states.amin(0),
}


class State:
    """A metric of torchmetrics whose states travel as float64.

    Args:
        name: in the job.
        metric: copied, so that the job's own stays as it is.
    """

    def __init__(self, name: str, metric: Any) -> None:
        self._name = name
        self._metric = copy.deepcopy(metric)
        self._states: Mapping[str, torch.Tensor] = metric._defaults
        self.numbers = _numbers(metric)

    @classmethod
    def of(cls, name: str, metric: Any) -> Self | None:
        """Returns None if its states cannot be merged, or are too large."""
        states = getattr(metric, "_defaults", None)
        reductions = getattr(metric, "_reductions", None)
        if not isinstance(metric, torch.nn.Module) or not states or not reductions:
            return None
        fixed = all(isinstance(state, torch.Tensor) for state in states.values())
        known = all(getattr(how, "__name__", "") in _MERGES for how in reductions.values())
        # A wrapper has states in the metrics below it.
        alone = not any(hasattr(one, "_defaults") for one in metric.children())
        if not (fixed and known and alone) or _numbers(metric) > MOST_NUMBERS:
            return None
        return cls(name, metric)

    def measure(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Returns the states after one block, (numbers,), float64.

        Raises:
            RequestError: a state has not the shape that it began with.
        """
        metric = self._metric
        metric.reset()
        metric.update(on_cpu(outputs), on_cpu(targets))
        found = {name: getattr(metric, name) for name in self._states}
        for name, state in found.items():
            if state.shape != self._states[name].shape:
                raise RequestError(
                    f"the job's metric {self._name!r} changes the shape of its state {name}, so "
                    "blocks cannot be merged: give a function metric(outputs, targets)"
                )
        return torch.cat([state.reshape(-1).double() for state in found.values()])

    def value(self, rows: torch.Tensor) -> float:
        """Returns the metric of all blocks.

        Args:
            rows: their states, (blocks, numbers).
        """
        metric = self._metric
        metric.reset()
        first = 0
        for name, default in self._states.items():
            merge = _MERGES[metric._reductions[name].__name__]
            merged = merge(rows[:, first : first + default.numel()])
            setattr(metric, name, merged.reshape(default.shape).to(default.dtype))
            first += default.numel()
        metric._update_count = len(rows)  # else torchmetrics warns that it saw nothing
        return one_number(self._name, metric.compute())


def value_of(name: str, metric: Metric, outputs: Any, targets: Any) -> float:
    """Returns a metric of the whole set.

    Args:
        name: of the metric.
        metric: a function, or an object, which stays as it is.
        outputs: of all samples.
        targets: of all samples.

    Raises:
        RequestError: it gives something else than one number.
    """
    if not is_metric_object(metric):
        return one_number(name, metric(outputs, targets))
    fresh: Any = copy.deepcopy(metric)
    fresh.reset()
    fresh.update(outputs, targets)
    return one_number(name, fresh.compute())


def one_number(name: str, value: Any) -> float:
    """Returns what a metric gave as a float. Raises RequestError if it is not one number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        shape = f"of shape {list(value.shape)}" if hasattr(value, "shape") else "that is no number"
        raise RequestError(
            f"the job's metric {name!r} gives a {type(value).__name__} {shape}: let it give one "
            'number, such as by average="macro", or one of its numbers'
        ) from None


def on_cpu(tree: Any) -> Any:
    """Outputs or targets as metrics get them: on the CPU, without gradients, floats as float32."""
    return tree_map(lambda leaf: _kept(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _kept(leaf: torch.Tensor) -> torch.Tensor:
    kept = leaf.detach().cpu()
    return kept.float() if kept.dtype.is_floating_point else kept


def _numbers(metric: Any) -> int:
    return sum(state.numel() for state in metric._defaults.values())
