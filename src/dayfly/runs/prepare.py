"""Everything about a request that can be known to be wrong before anything is started."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch

from dayfly.errors import DayflyError, RequestError, WireError, in_short
from dayfly.job import Job
from dayfly.runs.progress import Progress
from dayfly.runs.protocols import PROTOCOLS
from dayfly.runs.settings import Settings
from dayfly.train.arrays import Arrays, check_arrays, load_arrays, validation_samples
from dayfly.train.builtin import BUILTIN
from dayfly.train.flat import BUCKET_BYTES
from dayfly.train.order import Epochs, Rounds
from dayfly.train.probe import array_samples, dataset_samples, probe
from dayfly.train.randomness import DATA, seeded
from dayfly.train.replica import Replica
from dayfly.train.state import Tensors, load_model_tensors, model_tensors
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import Plan
from dayfly.wire.message import HEADER_BYTES
from dayfly.wire.schedule import MOST_CHUNKS
from dayfly.wire.segments.layout import ALIGN_BYTES

_MIB = 2**20
#: The log's bound unless another is asked for: this, or a quarter of the free space if less.
_LOG_BUDGET_BYTES = 1024 * _MIB
#: Beside a round's messages, room for reports and the like is kept ready for a worker.
_AHEAD_BYTES = 256 * 1024
#: Bytes of a validation's and of reports' messages, at most, that are not worth counting exactly.
_SMALL_MESSAGES_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be carried out.

    arrays: the data, if it is arrays. training_samples: before any are split off. tree, tensors:
    the state before step 0. round_bytes: size of what is summed over the workers in a
    round, which is a step under bsp.
    """

    arrays: Arrays | None
    training_samples: int
    tree: Any
    tensors: Tensors
    round_bytes: int


def check_shares(job: Job, workers: int) -> None:
    """Raise RequestError if there are more workers than samples in a batch."""
    if job.batch_size < workers:
        raise RequestError(
            f"a batch of {job.batch_size} cannot be shared by {workers} workers: "
            "raise batch_size, or lower --workers"
        )


def prepare(job: Job, settings: Settings) -> Prepared:
    """Check a request, trying one batch. Raises RequestError, in one sentence."""
    check_shares(job, settings.workers)
    # The generators stay as the caller has them; `open_sources` seeds the data function so, too.
    with seeded(DATA, job.seed):
        return _prepared(job, settings)


def _prepared(job: Job, settings: Settings) -> Prepared:
    if callable(job.data):
        arrays, datasets = None, _datasets(job)
        samples = trained = len(datasets[0])
        tried = dataset_samples(datasets[0], "training")
        unseen = dataset_samples(datasets[1], "validation")
    else:
        name = str(job.data)
        arrays = BUILTIN[name]() if name in BUILTIN else load_arrays(Path(name).expanduser())
        check_arrays(arrays, f"data {name!r}")
        samples = trained = len(arrays["x_train"])
        if "x_val" not in arrays:
            trained -= validation_samples(samples)
        tried = array_samples(arrays, "train", "transform", job.transform)
        given = "val" if "x_val" in arrays else "train"
        unseen = array_samples(arrays, given, "eval_transform", job.eval_transform)
    replica = Replica(job)
    own = {name: tensor.clone() for name, tensor in model_tensors(replica.model).items()}
    try:
        if job.init is not None:
            load_model_tensors(replica.model, _initial(job, replica))
        tree, tensors = replica.state()
        kept = {name: tensor.clone() for name, tensor in tensors.items()}
        alone = _smallest_piece(job, trained, settings.workers) == 1
        probe(job, replica, tried, unseen, alone=alone)
        epochs = Epochs(trained, job.batch_size, job.seed)
        rounds = Rounds(epochs, settings.round_steps)
        round_bytes = PROTOCOLS[settings.sync].round_bytes(job, replica, rounds)
    finally:
        # The model's function may give a module that is the user's own.
        load_model_tensors(replica.model, own)
        replica.model.zero_grad()
    return Prepared(
        arrays, samples, {"replica": tree, "progress": Progress().dump()}, kept, round_bytes
    )


def channel_plan(settings: Settings, url: str, round_bytes: int) -> Plan:
    """What the channel at a URL is to be made for."""
    if settings.log_budget_mib is not None:
        budget_bytes = settings.log_budget_mib * _MIB
    else:
        free = _free_bytes(channel_kind(url).directory(url))
        budget_bytes = min(_LOG_BUDGET_BYTES, free // 4 if free is not None else _LOG_BUDGET_BYTES)
    return Plan(
        senders=settings.workers, budget_bytes=budget_bytes, ahead_bytes=round_bytes + _AHEAD_BYTES
    )


def replays(settings: Settings, url: str) -> bool:
    """Whether a worker that starts again catches up alone; else all go back to the run checkpoint.

    The channel has to keep messages, and the collective to leave its sums in it. A single worker
    has nobody to catch up with.
    """
    keeps = settings.reducing.sums(settings.workers, 1, 1)
    return settings.workers == 1 or (channel_kind(url).abilities.replays and bool(keeps))


def log_rounds(settings: Settings, url: str, plan: Plan, round_bytes: int) -> int | None:
    """How many rounds' messages the log may hold; None: there is no log, as nothing is replayed.

    Nor has a single worker one. The budget bounds the messages of the round under way, then. A
    round's sums are `round_bytes`; while it runs, the contributions take that once for each of
    the other workers. Raises RequestError if not even one round fits.
    """
    workers = settings.workers
    if workers == 1:
        return None
    # With compression, what is no gradient is a bucket of its own.
    buckets = 2 + (settings.compress != "none") + round_bytes // BUCKET_BYTES
    kind = channel_kind(url)
    pieces = min(round_bytes, BUCKET_BYTES) // (workers * kind.abilities.chunk_bytes)
    messages = buckets * workers * (workers + 1) * max(1, min(MOST_CHUNKS, pieces))
    whole = round_bytes + messages * (HEADER_BYTES + ALIGN_BYTES) + _SMALL_MESSAGES_BYTES
    try:
        room = kind.room(plan)
        rounds = room.nbytes // whole - (workers - 1)
    except WireError:
        rounds = 0
    if rounds < 1:
        free = _free_bytes(kind.directory(url))
        place = f"at {url}" if free is None else f"at {url} ({free / _MIB:.0f} MiB free)"
        raise RequestError(
            f"the message log may take {plan.budget_bytes / _MIB:.0f} MiB, but a round of this "
            f"model on {workers} workers takes {workers * whole / _MIB:.0f} MiB {place}: "
            "raise --log-budget, or use fewer workers"
        )
    if not replays(settings, url):
        return None
    if room.messages is None:
        return rounds
    # A worker's own sums, those of validations, and what it has in flight, all have to be listed.
    chunk = kind.abilities.chunk_bytes
    sums = settings.reducing.sums(workers, min(round_bytes, BUCKET_BYTES), chunk)
    most = max(1, *(sum(name.source == rank for name in sums) for rank in range(workers)))
    return min(rounds, room.messages // (most * buckets))


def _smallest_piece(job: Job, samples: int, workers: int) -> int:
    """The fewest samples, above none, that a worker computes at once in any step."""
    batches = {min(job.batch_size, samples), samples % job.batch_size} - {0}
    shares = {size for batch in batches for size in _sizes(batch, workers)}
    return min(size for share in shares for size in _sizes(share, job.accumulate))


def _sizes(total: int, parts: int) -> set[int]:
    return {total // parts, -(-total // parts)} - {0}


def _initial(job: Job, replica: Replica) -> Tensors:
    """The weights to start from, under the model's own names."""
    init = job.init
    if isinstance(init, (str, Path)) or hasattr(init, "__fspath__"):
        path = Path(cast("str", init)).expanduser()
        try:
            given = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise RequestError(f"init {str(path)!r} cannot be read: {error}") from error
    else:
        given = dict(cast("Tensors", init))
    own = model_tensors(replica.model)
    try:
        unexpected = replica.model.load_state_dict(given, strict=False).unexpected_keys
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise RequestError(f"the weights of init are another model's: {text}") from error
    missing = own.keys() - given.keys() - _not_saved(replica, given)
    if unexpected or missing:
        differing = ", ".join(sorted([*unexpected, *missing])[:3])
        raise RequestError(f"the weights of init are another model's: {differing} differ")
    return own


def _not_saved(replica: Replica, given: Tensors) -> set[str]:
    """Names that weights need not have: buffers that are not saved, other names of shared ones."""
    saved = replica.model.state_dict(keep_vars=True)
    known = {id(saved[name]) for name in given if name in saved}
    own = dict((*replica.model.named_parameters(), *replica.model.named_buffers()))
    return {name for name, tensor in own.items() if name not in saved or id(tensor) in known}


def _datasets(job: Job) -> tuple[Any, Any]:
    try:
        pair = cast("Any", job.data)()
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's data function fails: {in_short(error)}") from error
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise RequestError("the job's data function must return (train, validation) Datasets")
    for name, dataset in zip(("training", "validation"), pair, strict=True):
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise RequestError(
                f"the job's {name} Dataset is a {type(dataset).__name__} without length and index: "
                "return a Dataset with __len__ and __getitem__, so that workers can read slices"
            )
        try:
            empty = len(dataset) == 0
        except Exception as error:
            raise RequestError(
                f"the job's {name} Dataset has no length: {in_short(error)}"
            ) from error
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise RequestError(
                f"the job's {name} Dataset is iterable only: return a Dataset with __len__ and "
                "__getitem__, so that workers can read slices"
            )
        if empty:
            raise RequestError(f"the job's {name} Dataset is empty: it needs at least one sample")
    return pair[0], pair[1]


def _free_bytes(directory: Path | None) -> int | None:
    """Free space where messages are kept; None if that is not on this machine."""
    if directory is None:
        return None
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free
