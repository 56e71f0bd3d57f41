"""Everything about a request that can be known to be wrong before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import default_collate

from dayfly.data.base import samples_of
from dayfly.data.encoded import Encoded
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.life.checkpoints import State
from dayfly.planning.profile import Profile
from dayfly.runs.callbacks import check_watched, watched
from dayfly.runs.first_weights import initial_weights
from dayfly.runs.log_budget import RoundBytes, measuring
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.profiling.layers import check_profiled
from dayfly.runs.progress import Progress
from dayfly.runs.protocols import protocol
from dayfly.runs.settings import Settings
from dayfly.runs.staging import CUT, staged
from dayfly.runs.unequal import numbers_of, shares_of, slice_sizes
from dayfly.specs.compression import compression
from dayfly.training.arrays import Arrays, check_arrays, validation_samples
from dayfly.training.compression import check_rates
from dayfly.training.evaluation import right_answers
from dayfly.training.forward import Weighting, forward
from dayfly.training.order import Epochs, Rounds
from dayfly.training.probe import array_samples, dataset_samples, probe
from dayfly.training.randomness import DATA, EVALUATE, seeded
from dayfly.training.replica import Replica, model_part, notes_learning_rates
from dayfly.training.schedules import check_scheduler
from dayfly.training.state import load_model_tensors
from dayfly.training.stream_counts import Lengths
from dayfly.training.streaming import check_fragments
from dayfly.training.streams import lengths_of


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be carried out.

    Attributes:
        arrays: the data, if it is arrays.
        training_samples: before any are split off.
        states: before step 0, of each stage, which is one if the model is not cut.
        round_bytes: of the messages of a round, which is a step under bsp.
        pipelining: of a model that is cut.
        weighting: how losses of parts of a batch are combined.
        streams: of data that are iterable, samples of each shard: of training, of validation.
    """

    arrays: Arrays | None
    training_samples: int
    states: Sequence[State]
    round_bytes: RoundBytes
    pipelining: Pipelining | None
    weighting: Weighting
    streams: tuple[Lengths, ...] = ()


@dataclass(frozen=True, slots=True)
class Data:
    """A job's data, and a few samples of it.

    Attributes:
        arrays: if it is arrays.
        samples: of training, before any are split off.
        trained, validation: after that.
        sample_bytes: of one in the store; 0 if a function of the user's makes it.
        streams: as of `Prepared`.
    """

    arrays: Arrays | None
    samples: int
    trained: int
    validation: int
    sample_bytes: int
    tried: list[Any]
    unseen: list[Any]
    streams: tuple[Lengths, ...] = ()

    @classmethod
    def of(cls, job: Job, made: tuple[Any, Any] | None = None) -> Data:
        """Read it. Random generators should be seeded for it. Raises RequestError.

        Args:
            job: whose data it is.
            made: what its data function returned; None: it is called, if it is one.
        """
        if callable(job.data):
            training, validation = _datasets(job, made)
            tried = dataset_samples(training, "training")
            unseen = dataset_samples(validation, "validation")
            streams = tuple(
                lengths_of(one)
                for one in (training, validation)
                if isinstance(one, torch.utils.data.IterableDataset)
            )
            sizes = len(training), len(training), len(validation)
            return cls(None, *sizes, 0, tried, unseen, streams)
        arrays = arrays_of(job)
        samples, own = len(arrays["x_train"]), "x_val" in arrays
        validation = len(arrays["x_val"]) if own else validation_samples(samples)
        tried = array_samples(arrays, "train", "transform", job.transform)
        given = "val" if own else "train"
        unseen = array_samples(arrays, given, "eval_transform", job.eval_transform)
        trained = samples if own else samples - validation
        row_bytes = sum(arrays[part].nbytes for part in ("x_train", "y_train")) // samples
        return cls(arrays, samples, trained, validation, row_bytes, tried, unseen)


def arrays_of(job: Job) -> Arrays:
    """The arrays that a job names. Raises RequestError if they cannot be trained on."""
    arrays = samples_of(job.data).arrays
    check_arrays(arrays, f"data {str(job.data)!r}")
    x = arrays["x_train"]
    if isinstance(x, Encoded) and x.form.kind == "image" and not x.form.shape:
        for name in ("transform", "eval_transform"):
            if getattr(job, name) is None:
                raise RequestError(
                    f"the images of data {str(job.data)!r} have different sizes, and the job has "
                    f"no {name}: give dayfly.data.images(..., size=(H, W)), or transforms that "
                    "make one size of them"
                )
    return arrays


def check_shares(job: Job, settings: Settings, samples: int | None = None) -> None:
    """Raise RequestError if a batch has fewer samples than share it.

    These are workers (of a stage) or virtual workers, and the micro-batches of each.

    Args:
        samples: of training; None: not known yet.
    """
    members, cut = settings.leaves - numbers_of(settings.shares).count(0), settings.stages > 1
    if job.batch_per_worker is not None and settings.virtual_workers is not None:
        raise RequestError(
            "--virtual-workers: batches that follow the workers (the job's batch_per_worker) have "
            "other bits at each number of them: give batch_size, or leave the flag out"
        )
    if job.batch_per_worker is not None and (shares := shares_of(settings)):
        raise RequestError(
            f"shares of {','.join(map(str, shares))}: the job's batch_per_worker gives all workers "
            "as many samples: give batch_size in its place, or equal --shares"
        )
    size = min(job.batch_sizes)
    most = size if samples is None else min(size, samples)
    of = f"a batch of {most}" if most == size else f"data of {most} samples"
    who, flag = ("replicas", "--replicas") if cut else ("workers", "--workers")
    if settings.virtual_workers is not None:
        who, flag = "virtual workers", "--virtual-workers"
    if most < members:
        more = "raise batch_size" if most == size else "give more data"
        raise RequestError(f"{of} cannot be shared by {members} {who}: {more}, or lower {flag}")
    sizes = slice_sizes(settings, most)
    if not min(sizes):
        raise RequestError(
            f"{of} leaves a worker of shares {','.join(map(str, shares_of(settings)))} without any "
            "sample: raise batch_size, or give --shares that differ less"
        )
    pieces = settings.pieces(job.accumulate)
    if pieces > (each := max(sizes)):
        said = "--micro-batches" if settings.micro_batches else "the job's accumulate"
        share = "" if members == 1 else f", shared by {members} {who},"
        raise RequestError(
            f"{said} {pieces}: {of}{share} leaves each at most {each} samples to cut: give at most "
            f"{each}"
        )


def prepare(
    job: Job,
    settings: Settings,
    profile: Profile | None = None,
    made: tuple[Any, Any] | None = None,
) -> Prepared:
    """Check a request, trying one batch.

    Raises RequestError, in one sentence.

    Args:
        profile: of which the job should be.
        made: what the job's data function returned, if it was called.
    """
    check_shares(job, settings)
    # The generators stay as the caller has them; `open_sources` seeds the data function so, too.
    with seeded(DATA, job.seed):
        return _prepared(job, settings, profile, Data.of(job, made))


def _prepared(job: Job, settings: Settings, profile: Profile | None, data: Data) -> Prepared:
    check_shares(job, settings, data.trained)
    check_phases(job, settings)
    replica = Replica(job, precision=settings.precision)
    check_rates(compression(settings.compress), replica.optimizers.values())
    check_fragments(settings.outer_optimizer, replica.model)
    if profile is not None:
        check_profiled(job, replica.model, profile)
    tree, tensors = replica.state()
    own = kept = {name: tensor.clone() for name, tensor in tensors.items()}
    try:
        if job.init is not None:
            load_model_tensors(replica.model, initial_weights(job, replica))
            replica.begin_average()
            tree, tensors = replica.state()
            kept = {name: tensor.clone() for name, tensor in tensors.items()}
        pieces = settings.pieces(job.accumulate)
        smallest = (
            _smallest_piece(size, data.trained, settings, pieces) for size in set(job.batch_sizes)
        )
        alone = 1 in smallest
        tried = probe(job, replica, data.tried, data.unseen, alone=alone)
        measured = measuring(job, data.validation, tried.row_bytes, tried.weighting)
        if settings.target_accuracy is not None:
            _check_accuracy(job, replica, data.unseen, "--target-accuracy")
        _check_has_validations(job, settings)
        for flag, monitor in watched(job, settings):
            check_watched(flag, monitor, job, tried.weighting.logged)
            if monitor.name == "val_accuracy":
                _check_accuracy(job, replica, data.unseen, f"{flag} {monitor.name}")
        epochs = Epochs.of(data.trained, job)
        for scheduler in replica.schedulers.values():
            check_scheduler(job, scheduler, epochs.first(job.epochs))
        line, states = None, [({"replica": tree, "progress": Progress().dump(), CUT: []}, kept)]
        if settings.cut:
            staging = staged(job, replica.model, (tree, kept), settings, data.tried)
            line, round_bytes = staging.pipelining, staging.round_bytes
            states = staging.split(*states[0])
            _check_rates(job, [state["replica"] for state, _ in states])
        else:
            rounds = Rounds(epochs, settings.round_steps)
            nbytes = protocol(settings.protocol).round_bytes(job, replica, rounds)
            sums = nbytes, settings.workers, len(job.phases), settings.virtual_workers
            round_bytes = RoundBytes.of_sums(*sums, settings.protocol.ahead)
    finally:
        # The model's function may give a module that is the user's own.
        load_model_tensors(replica.model, model_part(own))
        replica.model.zero_grad()
    round_bytes = measured.add_to(round_bytes)
    return Prepared(
        data.arrays, data.samples, states, round_bytes, line, tried.weighting, data.streams
    )


def check_phases(job: Job, settings: Settings) -> None:
    """Raise RequestError for what a job with several optimizers cannot have.

    Args:
        job: that is trained.
        settings: of its run.
    """
    if len(job.phases) == 1:
        return
    described = settings.protocol
    wrong = {
        f"--sync {settings.sync}": described.averages or described.staleness > 0,
        f"--compress {settings.compress}": settings.compress not in ("none", "bf16"),
        "--cut": bool(settings.cut),
    }
    for flag, given in wrong.items():
        if given:
            raise RequestError(
                f"a job with several optimizers cannot have {flag}: each of its phases sums "
                "gradients of the whole model's functions: leave it out"
            )


def _check_has_validations(job: Job, settings: Settings) -> None:
    """Raise RequestError if a target or a monitor needs validations, and the job has none."""
    if job.validate_every:
        return
    targets = {
        "--target-accuracy": settings.target_accuracy is not None,
        "--target-loss": settings.target_loss is not None,
    }
    watching = [flag for flag, one in watched(job, settings) if not one.of_training]
    for flag in (*(one for one, given in targets.items() if given), *watching):
        raise RequestError(
            f"{flag} goes by validations, and the job's validate_every is 0: give a number from "
            "1, or leave it out"
        )


def _check_accuracy(job: Job, replica: Replica, samples: list[Any], flag: str) -> None:
    """Raise RequestError if validation measures no accuracy, which a run could then not reach."""
    batch = default_collate(samples)
    replica.model.eval()
    with torch.no_grad(), seeded(EVALUATE, job.seed):
        passed = forward(job, replica.model, batch)
    if right_answers(passed.outputs, passed.targets) is None:
        raise RequestError(
            f"{flag} is for targets that are whole numbers and outputs with one score a "
            "class: this job's validation measures no accuracy, so leave it out"
        )


def _check_rates(job: Job, replicas: list[Any]) -> None:
    """Raise RequestError for a stage that has no learning rate to note."""
    for stage, tree in enumerate(replicas):
        if notes_learning_rates(job) and not tree["optimizer"]["group_of"]:
            raise RequestError(
                f"LearningRateMonitor: stage {stage} has no parameters to train, so no learning "
                "rate: give another --cut, or leave the monitor out"
            )


def _smallest_piece(batch_size: int, samples: int, settings: Settings, pieces: int) -> int:
    """The fewest samples, above none, that are computed at once in any step."""
    batches = {min(batch_size, samples), samples % batch_size} - {0}
    shares = {size for batch in batches for size in slice_sizes(settings, batch)}
    return min(size for share in shares for size in _sizes(share, pieces))


def _sizes(total: int, parts: int) -> set[int]:
    """Returns the sizes of the parts into which samples are shared out evenly; none is 0."""
    return {total // parts, -(-total // parts)} - {0}


def _datasets(job: Job, made: tuple[Any, Any] | None) -> tuple[Any, Any]:
    try:
        pair = cast("Any", job.data)() if made is None else made
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's data function fails: {in_short(error)}") from error
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise RequestError("the job's data function must return (train, validation) Datasets")
    for name, dataset in zip(("training", "validation"), pair, strict=True):
        streams = isinstance(dataset, torch.utils.data.IterableDataset)
        if streams and not hasattr(dataset, "__len__"):
            raise RequestError(
                f"the job's {name} Dataset is iterable and has no length: give it a __len__, the "
                "samples of an epoch, which says what an epoch is"
            )
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
        if empty:
            raise RequestError(f"the job's {name} Dataset is empty: it needs at least one sample")
        if streams and name == "training" and job.num_workers > 1:
            raise RequestError(
                f"num_workers={job.num_workers}: the job's training Dataset is a stream, which one "
                "process reads: give 1, or 0"
            )
    return pair[0], pair[1]
