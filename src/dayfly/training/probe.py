"""One batch, tried before any function starts: finds what would fail on all of them.

The probe builds the model and the optimizer, takes one step on a few samples (those with the
extreme labels among them), and raises RequestError, in one sentence, for what does not fit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate

from dayfly.data.encoded import Encoded
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job, Transform
from dayfly.training.arrays import Arrays
from dayfly.training.combining import weighting_of
from dayfly.training.evaluation import Evaluation
from dayfly.training.flat import sparse
from dayfly.training.forward import Weighting, forward, outputs_of, targets_of
from dayfly.training.metrics import on_cpu
from dayfly.training.precision import autocast
from dayfly.training.randomness import DROPOUT, seeded
from dayfly.training.replica import Replica
from dayfly.training.state import first_bad_row

#: Samples that are tried.
_SAMPLES = 8

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Tried:
    """What one batch showed.

    Attributes:
        weighting: how losses of parts of a batch are combined.
        row_bytes: of a sample's outputs and targets, as metrics need them; 0 without metrics.
    """

    weighting: Weighting
    row_bytes: int


def probe(
    job: Job, replica: Replica, samples: list[Any], validation: list[Any], *, alone: bool = False
) -> Tried:
    """Take one training step and one validation on these samples, changing the replica.

    Raises RequestError.

    Args:
        samples, validation: from `array_samples` or `dataset_samples`.
        alone: whether a worker will have to compute a single sample.
    """
    with seeded(DROPOUT, job.seed, 0), warnings.catch_warnings():
        # torch broadcasts (N, 1) against (N,) with only this warning, and trains on nonsense.
        warnings.filterwarnings("error", message=r"Using a target size .*", category=UserWarning)
        batch = _try("its samples do not form a batch", lambda: default_collate(samples))
        unseen = collated(validation)
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        named = isinstance(batch, Mapping) and targets_of(batch) is not None
        if job.step is None and not (pair or named):
            raise RequestError(
                f"a sample of the data is {type(samples[0]).__name__}, not (x, y), nor a dict with "
                "targets or labels: return one of these, or give the job a step=... that takes "
                "such batches"
            )
        logged = _try_training(job, replica, batch)
        if alone:
            _try_alone(job, replica, default_collate(samples[:1]))
        weighting = weighting_of(job, replica.model, samples, logged)
        row_bytes = try_validation(
            job, replica.model, unseen, len(validation), weighting, replica.precision
        )
        replica.state()
        return Tried(weighting, row_bytes)


def array_samples(
    arrays: Arrays, part: str, name: str, transform: Transform | None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A few samples of arrays, with the least and the greatest label among them.

    Args:
        part: "train" or "val".
        transform: of x, and its name for the message.
    """
    x, y = arrays[f"x_{part}"], cast("NDArray[Any]", arrays[f"y_{part}"])
    chosen = set(np.linspace(0, len(x) - 1, min(_SAMPLES, len(x)), dtype=np.int64).tolist())
    if y.size and np.issubdtype(y.dtype, np.integer):
        chosen |= {int(at) * len(y) // y.size for at in (y.argmin(), y.argmax())}
    rows = sorted(chosen)
    finish = x.form.finish if isinstance(x, Encoded) else _itself
    pairs = [(_sample(x, row), _sample(y, row)) for row in rows]
    if transform is None:
        return [(finish(sample), y) for sample, y in pairs]
    made = _try(
        f"its {name} fails", lambda: [(finish(transform(sample)), y) for sample, y in pairs]
    )
    for sample, _ in made:
        if not isinstance(sample, torch.Tensor):
            raise RequestError(
                f"the job's {name} returned {type(sample).__name__}: return a tensor"
            )
    return made


def dataset_samples(dataset: Any, name: str) -> list[Any]:
    """A few samples of a torch Dataset; its name for the message."""
    size = len(dataset)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        first = _try(
            f"its {name} Dataset fails", lambda: list(islice(dataset, min(_SAMPLES, size)))
        )
        if not first:
            raise RequestError(f"the job's {name} Dataset gives no sample: it needs at least one")
        return first
    chosen = np.linspace(0, size - 1, min(_SAMPLES, size), dtype=np.int64).tolist()
    return _try(f"its {name} Dataset fails", lambda: [dataset[index] for index in chosen])


def _itself(sample: Any) -> Any:
    return sample


def _sample(array: NDArray[Any] | Encoded, row: int) -> Any:
    if isinstance(array, Encoded):
        return array.sample(row)
    return torch.from_numpy(np.array(array[row], dtype=array.dtype.newbyteorder("=")))


def _try_training(job: Job, replica: Replica, batch: Any) -> tuple[str, ...]:
    """Returns the names of what the step logs."""
    replica.model.train()
    if job.step is None:
        x, y = batch if not isinstance(batch, Mapping) else (batch, targets_of(batch))
        outputs = _try(
            f"its model does not take x {_shape(x)}",
            lambda: _applied(replica, batch),
            _advice_on_x(x, next(p for p in replica.model.parameters() if p.requires_grad).dtype),
        )
        passed = _try(
            f"its loss does not take outputs {_shape(outputs)} and targets {_shape(y)}",
            lambda: forward(job, replica.model, batch, precision=replica.precision),
            _advice_on_labels(outputs, y),
        )
    else:
        passed = _try(
            "its step fails",
            lambda: forward(job, replica.model, batch, precision=replica.precision),
        )
    loss: Any = passed.loss
    if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
        raise RequestError(
            f"the job's loss gives {_shape(loss)}, not one number: take the mean over the samples"
        )
    if not math.isfinite(loss.item()):
        where = "check the loss, the first weights and the scale of the data"
        if any(first_bad_row(one.reshape(1, -1).numpy()) is not None for one in _leaves(batch)):
            where = "check the data, which hold NaN or infinity there"
        raise RequestError(f"the job's loss is {loss.item()} on its first samples: {where}")
    if not loss.requires_grad:
        raise RequestError("the job's loss has no gradient: it does not depend on the parameters")
    _try("its backward pass fails", loss.backward)
    if sparse(replica.model.parameters()):
        raise RequestError(
            "the job's model has sparse gradients, which are not supported: "
            "build its embeddings with sparse=False"
        )
    for phase in job.phases:
        _try("its optimizer's step fails", partial(replica.step, phase))
    return tuple(passed.logged)


def _applied(replica: Replica, batch: Any) -> Any:
    with autocast(replica.precision, replica.device):
        return outputs_of(replica.model, batch)


def _leaves(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch, on the CPU and as numpy knows them."""
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            yield leaf.detach().float()


def _try_alone(job: Job, replica: Replica, batch: Any) -> None:
    """BatchNorm, for one, cannot train on one sample."""
    try:
        forward(job, replica.model, batch, precision=replica.precision)
    except Exception as error:
        raise RequestError(
            f"the job fails on one sample, which is all that a worker gets of some batches: "
            f"{in_short(error)}: change batch_size, --workers, --replicas or --micro-batches, so "
            "that the last batch of an epoch leaves every worker more than one"
        ) from error


def collated(samples: list[Any]) -> Any:
    """Returns the batch of samples to validate on. Raises RequestError if they form none."""
    return _try("its validation samples do not form a batch", lambda: default_collate(samples))


def try_validation(
    job: Job,
    model: nn.Module,
    batch: Any,
    samples: int,
    weighting: Weighting,
    precision: str,
) -> int:
    """Validates a batch of so many samples, as a worker does.

    Returns:
        Bytes of a sample's outputs and targets as metrics need them; 0 without metrics.

    Raises:
        RequestError: the model, the loss or a metric fails.
    """
    evaluation = Evaluation(job, samples, weighting)
    model.eval()
    with torch.no_grad():
        passed = _try("validation fails", lambda: forward(job, model, batch, weighting, precision))
    if job.metrics and passed.outputs is None:
        raise RequestError(
            "the job has metrics, and its step returns no outputs: return (loss, outputs)"
        )
    advice = ""
    if passed.targets is None:
        advice = (
            "it is given None as targets, as a batch has none under targets, target, labels, "
            "label or y: let the step return a mapping of loss, outputs and targets"
        )
    rows = evaluation.rows(range(samples))
    outputs, targets = on_cpu((passed.outputs, passed.targets))
    if rows is not None:
        rows.write(range(samples), passed.outputs, passed.targets)
        outputs, targets = rows.tree()
    for name in job.metrics:
        tried = partial(evaluation.try_metric, name, outputs, targets)
        _try(f"its metric {name!r} fails", tried, advice)
    table = evaluation.empty(1)
    _try("validation fails", lambda: evaluation.note(table, 0, passed, samples))
    return 0 if rows is None else rows.sample_bytes


def _advice_on_x(x: Any, needed: torch.dtype) -> str:
    if not isinstance(x, torch.Tensor) or x.dtype is needed:
        return "make them fit"
    name = str(needed).removeprefix("torch.")
    return f"make them fit, such as x of {name}, which the model's parameters are"


def _advice_on_labels(outputs: Any, y: Any) -> str:
    if not (isinstance(outputs, torch.Tensor) and isinstance(y, torch.Tensor)):
        return "make them fit"
    if outputs.ndim >= 2 and y.shape == (outputs.shape[0], *outputs.shape[2:]):
        classes = outputs.shape[1]
        whole = not y.dtype.is_floating_point and y.dtype is not torch.bool
        if whole and y.numel() and not 0 <= y.min() <= y.max() < classes:
            return (
                f"labels of {classes} scores are 0 to {classes - 1}: give the model a score for "
                "each, or number the labels from 0"
            )
        if y.dtype is not torch.int64 and classes > 1:
            return "give labels as int64"
    if outputs.shape != y.shape and outputs.numel() == y.numel():
        return "give both one shape, such as y[:, None], or outputs.squeeze(1)"
    return "make them fit"


def _try(what: str, action: Callable[[], Result], advice: str = "") -> Result:
    try:
        return action()
    except DayflyError:
        raise
    except Exception as error:
        text = f"the job fails on one batch: {what}: {in_short(error)}"
        raise RequestError(f"{text.rstrip('.')}: {advice}" if advice else text) from error


def _shape(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    text = f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if value.numel() and not value.dtype.is_floating_point and value.dtype is not torch.bool:
        text += f" of {value.min().item()} to {value.max().item()}"
    return text
