"""What `run.predict` makes of a job: outputs in place of a loss, gathered and stored at one worker.

outputs.safetensors    a tensor a leaf; metadata: the tree, and leaves that are no tensors
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn
from torch.utils._pytree import (
    tree_flatten,
    tree_leaves,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

from dayfly.errors import RequestError, RunFailed
from dayfly.job import Infer, Step
from dayfly.training.forward import of_step, targets_of
from dayfly.wire.stores.base import Store

OUTPUTS = "outputs.safetensors"
#: The name of the metric that is the outputs.
NAME = "outputs"


def no_loss(outputs: Any, targets: Any) -> torch.Tensor:
    """A loss of outputs whatever they are, for a model that learns nothing any more."""
    leaves = [one for one in tree_leaves(outputs) if isinstance(one, torch.Tensor)]
    return torch.stack([one.sum() * 0.0 for one in leaves if one.is_floating_point()]).sum()


class Inferring:
    """A job's step: outputs by the job's own `infer` or `step`.

    Args:
        infer: the job's; None: `step` gives the outputs.
        step: the job's.
        labelled: whether a batch has targets; else it is (x, what stands in their place).
    """

    def __init__(self, infer: Infer | None, step: Step | None, *, labelled: bool) -> None:
        self._infer = infer
        self._step = step
        self._labelled = labelled

    def __call__(self, model: nn.Module, batch: Any) -> Mapping[str, Any]:
        """Returns a mapping as a step does."""
        if self._infer is not None:
            outputs = self._infer(model, batch if self._labelled else batch[0])
        else:
            assert self._step is not None, "one of them is the job's"
            outputs = of_step(self._step(model, batch), targets_of(batch), None).outputs
        if outputs is None:
            raise RequestError(
                "the job's step returns no outputs: return (loss, outputs), or give the job "
                "infer=..., a function infer(model, batch) that returns them"
            )
        return {"loss": torch.zeros(()), "outputs": outputs, "targets": None}


class Outputs:
    """A metric of the whole set that stores its outputs, at the worker that has them all."""

    store: Store | None = None

    def __call__(self, outputs: Any, targets: Any) -> float:
        """Stores outputs; returns a number, as a metric does."""
        if self.store is not None:
            leaves, spec = tree_flatten(outputs)
            named = {str(number): leaf for number, leaf in enumerate(leaves)}
            tensors = {
                name: leaf.contiguous()
                for name, leaf in named.items()
                if isinstance(leaf, torch.Tensor)
            }
            values = {name: leaf for name, leaf in named.items() if name not in tensors}
            metadata = {"tree": treespec_dumps(spec), "values": json.dumps(values)}
            self.store.put(OUTPUTS, safetensors.torch.save(tensors, metadata))
        return 0.0


def read_outputs(store: Store) -> Any:
    """Returns the outputs that a worker stored, nested as the model gave them.

    Raises:
        RunFailed: they are damaged.
    """
    data = store.get(OUTPUTS)
    try:
        tensors = safetensors.torch.load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
        leaves = tensors | json.loads(metadata["values"])
        spec = treespec_loads(metadata["tree"])
        return tree_unflatten([leaves[str(number)] for number in range(len(leaves))], spec)
    except (safetensors.SafetensorError, ValueError, LookupError) as error:
        raise RunFailed(f"{OUTPUTS} in {store} is damaged: {error}: predict again") from error
