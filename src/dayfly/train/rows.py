"""Outputs and targets of samples, one row a sample: what metrics are computed from.

outputs {"scores": (N, 10)}, targets (N,)     a tree of tensors, each with a row for each sample
on the CPU, detached, floats as float32       as bytes, they are gathered at one worker
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

from dayfly.errors import RequestError

_ADVICE = (
    "let the model or the job's step give outputs and targets as tensors with one row a sample, "
    "alone or in dicts, tuples and lists"
)


class Rows:
    """Outputs and targets of some of validation's samples, written block by block.

    Args:
        samples: their positions, in a row.
    """

    def __init__(self, samples: range) -> None:
        self.samples = samples
        self._spec: TreeSpec | None = None
        #: Of each leaf of the tree: a tensor with all rows, or a value that is no tensor.
        self._leaves: list[Any] = []

    @property
    def formed(self) -> bool:
        """Whether it is known of what form the rows are."""
        return self._spec is not None

    def form(self) -> bytes:
        """Of what form the rows are, for `take_form` of another attempt; JSON."""
        assert self._spec is not None, "nothing was written"
        leaves = [
            {"dtype": str(leaf.dtype).removeprefix("torch."), "row": list(leaf.shape[1:])}
            if _is_rows(leaf)
            else {"value": leaf}
            for leaf in self._leaves
        ]
        return json.dumps({"tree": treespec_dumps(self._spec), "leaves": leaves}).encode()

    def take_form(self, form: bytes) -> None:
        """Makes room for rows of a form."""
        read = json.loads(form)
        self._spec = treespec_loads(read["tree"])
        self._leaves = [
            torch.empty((len(self.samples), *one["row"]), dtype=getattr(torch, one["dtype"]))
            if "dtype" in one
            else one["value"]
            for one in read["leaves"]
        ]

    def write(self, block: range, outputs: Any, targets: Any) -> None:
        """Keeps a block's rows.

        Raises:
            RequestError: these are no rows, or rows of another form than the blocks' before.
        """
        leaves, spec = tree_flatten((outputs, targets))
        leaves = [_checked(leaf, len(block)) for leaf in leaves]
        if self._spec is None:
            self._spec = spec
            self._leaves = [
                leaf.new_empty((len(self.samples), *leaf.shape[1:])) if _is_rows(leaf) else leaf
                for leaf in leaves
            ]
        first = block.start - self.samples.start
        if spec != self._spec or not all(map(_fits, leaves, self._leaves)):
            raise RequestError(
                f"outputs or targets of validation's samples {block.start} to {block.stop - 1} "
                "have another form than those before, so metrics cannot be computed of all: pad "
                "them to one size"
            )
        for leaf, whole in zip(leaves, self._leaves, strict=True):
            if _is_rows(leaf):
                whole[first : first + len(block)] = leaf

    def bytes_of(self, samples: range) -> list[torch.Tensor]:
        """Of each tensor of the tree, the rows of some samples as bytes (uint8), not copied."""
        first = samples.start - self.samples.start
        return [
            leaf[first : first + len(samples)].reshape(-1).view(torch.uint8)
            for leaf in self._leaves
            if _is_rows(leaf)
        ]

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample's rows."""
        return sum(leaf[:1].nbytes for leaf in self._leaves if _is_rows(leaf))

    def tree(self) -> tuple[Any, Any]:
        """Outputs and targets of all the samples."""
        assert self._spec is not None, "nothing was written"
        outputs, targets = tree_unflatten(self._leaves, self._spec)
        return outputs, targets


def _is_rows(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _checked(leaf: Any, samples: int) -> Any:
    """A leaf as it is kept. Raises RequestError if it has no row for each sample."""
    if isinstance(leaf, torch.Tensor):
        if leaf.ndim == 0 or len(leaf) != samples or leaf.layout is not torch.strided:
            raise RequestError(
                f"of {samples} samples the outputs or targets have a tensor of shape "
                f"{list(leaf.shape)}, so metrics cannot be computed of all: {_ADVICE}"
            )
        kept = leaf.detach().cpu()
        return kept.float() if kept.dtype.is_floating_point else kept
    if leaf is None or isinstance(leaf, (bool, int, float)):
        return leaf
    raise RequestError(
        f"the outputs or targets have a {type(leaf).__name__}, so metrics cannot be computed of "
        f"all samples: {_ADVICE}"
    )


def _fits(leaf: Any, whole: Any) -> bool:
    if not _is_rows(leaf) or not _is_rows(whole):
        return bool(type(leaf) is type(whole) and leaf == whole)
    return bool(leaf.dtype is whole.dtype and leaf.shape[1:] == whole.shape[1:])
