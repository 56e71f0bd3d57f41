"""Outputs and targets of validation's samples, as metrics of the whole set need them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

from dayfly.dataclass_json import Range, Real, dump, read
from dayfly.errors import RequestError
from dayfly.json_files import parse
from dayfly.training.metrics import on_cpu

_ADVICE = (
    "let the model or the job's step give outputs and targets as tensors with one row a sample, "
    "alone or in dicts, tuples and lists"
)


#: Of rows that are kept (see `_checked`), by the names that they have in JSON.
_DTYPES = {
    str(one).removeprefix("torch."): one
    for one in (
        *(torch.float32, torch.complex32, torch.complex64, torch.complex128, torch.bool),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: What a form is, in errors, and what to do about one that is damaged.
_PLACE = "the form of outputs and targets that another attempt kept"
_REMEDY = "go on with the run by --resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """Rows of a dtype, each of shape `row`; or a value that is no tensor."""

    dtype: str | None = None
    row: tuple[int, ...] = ()
    value: bool | Annotated[int, Range()] | Real | None = None

    def check_read(self) -> None:
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is none of {', '.join(_DTYPES)}")

    def room(self, samples: int) -> Any:
        """What holds these rows of so many samples."""
        if self.dtype is None:
            return self.value
        return torch.empty((samples, *self.row), dtype=_DTYPES[self.dtype])


@dataclass(frozen=True, slots=True)
class _Form:
    """Of a tree of outputs and targets. tree: as torch writes it."""

    tree: str
    leaves: tuple[_Leaf, ...]


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
            _Leaf(dtype=_NAMES[leaf.dtype], row=tuple(leaf.shape[1:]))
            if _is_rows(leaf)
            else _Leaf(value=leaf)
            for leaf in self._leaves
        ]
        return json.dumps(dump(_Form(treespec_dumps(self._spec), tuple(leaves)))).encode()

    def take_form(self, form: bytes) -> None:
        """Makes room for rows of a form.

        Raises:
            RequestError: it is none.
        """
        found = read(_Form, parse(form, _PLACE, _REMEDY), _PLACE, remedy=_REMEDY)
        try:
            self._spec = treespec_loads(found.tree)
        except Exception as error:  # torch says many things of a text that is none
            raise RequestError(f"{_PLACE}: tree is none of torch's: {_REMEDY}") from error
        self._leaves = [one.room(len(self.samples)) for one in found.leaves]

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
        return on_cpu(leaf)
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
