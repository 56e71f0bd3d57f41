"""What settings of a model in stages have to be: numbers of workers, sizes, what goes together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dayfly.errors import RequestError

#: Of each stage, or one number for all.
Replicas = int | tuple[int, ...]
#: The faster one where transfers take time; the other takes less memory (see `wire.pipelines`).
DEFAULT_SCHEDULE = "fill-drain"


def workforce(cut: Sequence[int], workers: int, replicas: Replicas | None) -> tuple[int, Replicas]:
    """Returns the workers of a model in stages, and the replicas of each stage.

    Args:
        cut: first layer of each stage but the first.
        workers: all of them; 1: not given.
        replicas: of each stage, or one number for all, which a list of equal ones becomes; None:
            not given.

    Raises:
        RequestError: a cut that no model can have, or numbers that do not fit.
    """
    if any(left >= right for left, right in pairwise((0, *cut))):
        raise RequestError(
            f"--cut {_listed(cut)}: give ascending numbers of layers from 1, such as 4,9"
        )
    stages = len(cut) + 1
    if isinstance(replicas, Sequence):
        text = f"--replicas {_listed(replicas)}"
        if len(replicas) != stages:
            raise RequestError(
                f"{text}: --cut makes {stages} stages, so give {stages} numbers, or one for all"
            )
        if len(set(replicas)) > 1:
            return _each(text, workers, tuple(replicas))
        replicas = replicas[0]
    if replicas is not None and replicas < 1:
        raise RequestError(f"--replicas {replicas}: give a number from 1")
    if workers == 1:
        workers = stages * (replicas or 1)
    each, left = divmod(workers, stages)
    if left or not each or (replicas or each) != each:
        of = "any number of" if replicas is None else str(replicas)
        raise RequestError(
            f"--workers {workers} are not {stages} stages times {of} replicas: leave it out, and "
            "give --replicas"
        )
    return workers, each


def _each(text: str, workers: int, replicas: tuple[int, ...]) -> tuple[int, Replicas]:
    if min(replicas) < 1:
        raise RequestError(f"{text}: give numbers from 1")
    if workers not in (1, sum(replicas)):
        raise RequestError(f"--workers {workers}: {text} are {sum(replicas)}: leave --workers out")
    return sum(replicas), replicas


def check_stage_memory(sizes: Sequence[int], stages: int, memory_mib: int | None) -> None:
    """Raise RequestError unless there is a size for each stage, or none."""
    if not sizes:
        return
    if len(sizes) != stages:
        raise RequestError(
            f"--stage-memory {_listed(sizes)}: --cut makes {stages} stages, so give {stages} sizes "
            "in MiB"
        )
    if min(sizes) < 1:
        raise RequestError(f"--stage-memory {_listed(sizes)}: give sizes above 0, in MiB")
    if memory_mib is not None:
        raise RequestError("--memory and --stage-memory: give one of them")


def check_uncut(replicas: Replicas | None, schedule: str, sizes: Sequence[int]) -> None:
    """Raise RequestError for what only a model in stages has."""
    given = {
        "--replicas": replicas is not None,
        "--schedule": schedule != DEFAULT_SCHEDULE,
        "--stage-memory": bool(sizes),
    }
    for flag, wrong in given.items():
        if wrong:
            raise RequestError(f"{flag} is for a model in stages: give --cut, too")


def check_staged(compress: str, *, sums: bool) -> None:
    """Raise RequestError for what a model in stages cannot have. sums: whether the channel does."""
    if compress != "none":
        raise RequestError(
            f"--compress {compress} is for models that are not cut: leave it or --cut out"
        )
    if sums:
        raise RequestError(
            "--cut needs a channel that keeps messages between two workers, and ps:// only sums: "
            "give a store, or tcp://"
        )


def _listed(numbers: Sequence[int]) -> str:
    """As they are typed: `4,9`."""
    return ",".join(map(str, numbers))
