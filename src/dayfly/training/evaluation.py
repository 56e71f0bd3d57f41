"""Validation: blocks of a fixed size, measured anywhere, combined in their order.

    blocks                |0 |1 |2 |3 |4 |5 |6 |      see `batches.validation_blocks`
    two workers           |0 |1 |2 |3 |               each measures its own
                                      |4 |5 |6 |
    sums (B, 4 + states)  |a row each               | all-reduced: a row is zero but at one worker
    outputs and targets   |rows of samples          | at one worker, if a metric needs them all

So what validation measures does not depend on the number of workers, to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

from dayfly.batches import BLOCK_NUMBERS, validation_blocks
from dayfly.dataclass_json import Range, Real, dump, read
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.json_files import parse
from dayfly.training.devices import device_of, to_device
from dayfly.training.forward import SAMPLES, Passed, Weighting, forward
from dayfly.training.logged import NUMBERS, VAL, added, by_name, means, numbers_of
from dayfly.training.metrics import State, on_cpu, value_of
from dayfly.training.precisions import FP32
from dayfly.training.randomness import EVALUATE, seed_generators
from dayfly.training.sources import Source

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


#: Epoch number that validation's transforms are seeded with: the same in every epoch.
_EPOCH = -1


def validation_batch(source: Source, positions: range) -> Any:
    """Validation's samples at these positions, as the model gets them."""
    indices = np.arange(positions.start, positions.stop, dtype=np.int64)
    return source.batch(source.fetch(indices), indices, range(len(indices)), _EPOCH)


class Evaluation:
    """Measures of a job.

    Args:
        job: whose loss and metrics are measured.
        samples: of the validation set.
        weighting: how losses of blocks are combined.
        precision: see `training.precision`.

    Attributes:
        gathered: names of the metrics that need outputs and targets of all samples at one worker.
        block_numbers: numbers that are summed for each block.
        blocks: of the validation set.
    """

    def __init__(
        self, job: Job, samples: int, weighting: Weighting = SAMPLES, precision: str = FP32
    ) -> None:
        self._job = job
        self._precision = precision
        self._weighting = weighting
        found = {name: State.of(name, metric) for name, metric in job.metrics.items()}
        self._states = {name: state for name, state in found.items() if state is not None}
        self.gathered = tuple(name for name, state in found.items() if state is None)
        states = sum(state.numbers for state in self._states.values())
        self.block_numbers = BLOCK_NUMBERS + NUMBERS * len(weighting.logged) + states
        self.blocks = validation_blocks(samples, job.batch_size)

    @property
    def numbers(self) -> int:
        """Numbers that a validation sums over the workers."""
        return self.block_numbers * len(self.blocks) + len(self.gathered)

    def empty(self, blocks: int) -> torch.Tensor:
        """Sums of so many blocks before any is measured, (block_numbers * blocks,), float64."""
        return torch.zeros(self.block_numbers * blocks, dtype=torch.float64)

    def no_values(self) -> torch.Tensor:
        """The gathered metrics before they are computed, (metrics,), float64."""
        return torch.zeros(len(self.gathered), dtype=torch.float64)

    def rows(self, samples: range) -> Rows | None:
        """Room for outputs and targets of some samples; None if no metric needs them."""
        return Rows(samples) if self.gathered else None

    def measure(
        self,
        model: torch.nn.Module,
        source: Source,
        blocks: Sequence[range],
        rows: Rows | None = None,
    ) -> torch.Tensor:
        """Evaluates the model on some blocks.

        Args:
            model: put into evaluation mode.
            source: of validation's samples.
            blocks: of `self.blocks`.
            rows: gets their outputs and targets.

        Returns:
            The sums of all blocks, (block_numbers * all blocks,), zero but in these.
        """
        table = self.empty(len(self.blocks))
        device = device_of(model)
        model.eval()
        with torch.no_grad():
            for block in blocks:
                batch = to_device(validation_batch(source, block), device)
                # A custom step may draw numbers; a worker that starts again draws the same.
                seed_generators(EVALUATE, self._job.seed, block.start)
                passed = forward(self._job, model, batch, self._weighting, self._precision)
                self.note(table, block.start // len(self.blocks[0]), passed, len(block))
                if rows is not None:
                    rows.write(block, passed.outputs, passed.targets)
        return table

    def note(self, table: torch.Tensor, number: int, passed: Passed, samples: int) -> None:
        """Writes the sums of a block of so many samples into its row of a table of sums."""
        denominator = self._weighting.denominator(passed.weight, samples)
        loss = float(passed.loss) * denominator if denominator else 0.0
        correct = right_answers(passed.outputs, passed.targets)
        answers = 0 if correct is None else passed.targets.numel()
        row = torch.tensor([loss, denominator, correct or 0, answers], dtype=torch.float64)
        logged = numbers_of(self._weighting.logged, passed.logged, samples)
        states = [one.measure(passed.outputs, passed.targets) for one in self._states.values()]
        table[self.block_numbers * number : self.block_numbers * (number + 1)] = torch.cat(
            [row, torch.tensor(logged, dtype=torch.float64), *states]
        )

    def values(self, rows: Rows) -> torch.Tensor:
        """Returns the gathered metrics of all samples, (metrics,), float64."""
        outputs, targets = rows.tree()
        metrics = self._job.metrics
        values = [value_of(name, metrics[name], outputs, targets) for name in self.gathered]
        return torch.tensor(values, dtype=torch.float64)

    def try_metric(self, name: str, outputs: Any, targets: Any) -> float:
        """Returns a metric of a single block."""
        if name in self._states:
            state = self._states[name]
            return state.value(state.measure(outputs, targets)[None])
        return value_of(name, self._job.metrics[name], outputs, targets)

    def record(self, table: torch.Tensor, values: torch.Tensor) -> dict[str, float | None]:
        """What an epoch's record gets.

        Args:
            table: the sums of all blocks, (block_numbers * blocks,), summed over the workers.
            values: of the gathered metrics, (metrics,).

        Returns:
            `val_loss`, `val_accuracy` (None if not measured), what the job's step logs with `val_`
            before its name, and each metric by its name.
        """
        loss = weight = correct = answers = 0.0
        rows = table.view(-1, self.block_numbers)
        for row in rows[:, :BLOCK_NUMBERS].tolist():  # in the order of the blocks
            loss, weight = loss + row[0], weight + row[1]
            correct, answers = correct + row[2], answers + row[3]
        measured = dict(zip(self.gathered, values.tolist(), strict=True))
        names = self._weighting.logged
        first = BLOCK_NUMBERS + NUMBERS * len(names)
        logged = by_name(names, added(rows[:, BLOCK_NUMBERS:first].tolist(), names))
        for name, state in self._states.items():
            measured[name] = state.value(rows[:, first : first + state.numbers])
            first += state.numbers
        return {
            "val_loss": loss / weight if weight else float("nan"),
            "val_accuracy": correct / answers if answers else None,
            **means(logged, VAL),
            **{name: measured[name] for name in self._job.metrics},
        }


def right_answers(outputs: Any, targets: Any) -> int | None:
    """How many of the targets have the highest score; None unless these are scores of classes.

    Args:
        outputs: (N, C, ...) scores, targets: (N, ...) whole numbers.
    """
    if not (isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)):
        return None
    whole = not targets.dtype.is_floating_point and targets.dtype is not torch.bool
    scores = outputs.ndim >= 2 and outputs.shape[1] > 1 and outputs.dtype.is_floating_point
    if not whole or not scores or targets.shape != (outputs.shape[0], *outputs.shape[2:]):
        return None
    return int((outputs.argmax(dim=1) == targets).sum())
