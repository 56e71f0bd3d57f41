"""Workers that differ: the memory of each one's function, and its share of every batch.

    --memory 1769,884,884     under Lambda's rule 1, 0.5 and 0.5 of a core
    batches of 32             16 + 8 + 8 samples, unless --shares says otherwise
    --shares 0,1,1            0 + 16 + 16 samples: worker 0 only sums, as a standalone aggregator

Gradients are weighted by samples, so the sum of a step is the same for any shares, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from dayfly.batches import share
from dayfly.errors import RequestError
from dayfly.runs.function_resources import resources_of
from dayfly.runs.keywords import AUTO
from dayfly.specs.protocols import refuses_idle

if TYPE_CHECKING:
    from dayfly.runs.settings import Settings

#: Parts of a core in which shares by speed are counted, as the catalogue's rules have fractions.
_PARTS = 1000
#: Settings that have an entry for each worker, and their flags.
_LISTS = {"each_memory_mib": "--memory", "shares": "--shares"}


def workers_of(workers: int, lists: Mapping[str, Sequence[int]]) -> int:
    """Returns the number of workers that lists with an entry for each of them are for.

    Args:
        workers: 1: not given.
        lists: by their flags; empty: not given.

    Raises:
        RequestError: a list of another length, or with an entry that cannot be.
    """
    for flag, given in lists.items():
        if not given:
            continue
        text = f"{flag} {','.join(map(str, given))}"
        least = 0 if flag == "--shares" else 1
        if min(given) < least:
            raise RequestError(f"{text}: give whole numbers from {least}, one for each worker")
        if workers == 1:
            workers = len(given)
        if len(given) != workers:
            raise RequestError(
                f"{text}: these are {len(given)}, and there are {workers} workers: give one number "
                "for each worker"
            )
    return workers


def check_alone(given: Mapping[str, Any]) -> None:
    """Raise RequestError for one worker, asked for in words, and lists of several.

    Args:
        given: settings by name, those that are asked for alone.
    """
    for name, flag in _LISTS.items():
        each = given.get(name) or ()
        if given.get("workers") == 1 and len(each) > 1 and each != AUTO:
            raise RequestError(
                f"--workers 1: {flag} {','.join(map(str, each))} is of {len(each)} workers: leave "
                "out one of them"
            )


def numbers_of(shares: Sequence[int] | str) -> tuple[int, ...]:
    """Returns shares that are numbers.

    Raises:
        RequestError: they are to follow from a profile that is not there.
    """
    if isinstance(shares, str):
        raise RequestError(
            f"--shares {AUTO} needs a profile of the job: write one with dayfly profile, and give "
            "dayfly train --profile FILE, or carry out a plan of dayfly predict --shares auto"
        )
    return tuple(shares)


def check_kept(settings: Settings, changed: Mapping[str, Any]) -> None:
    """Raise RequestError for another number of workers, or stages, than lists that stay are for.

    Args:
        settings: so far.
        changed: settings that change, by name.
    """
    for name, flag in _LISTS.items():
        kept: tuple[int, ...] = getattr(settings, name)
        if name not in changed and kept and changed.get("workers", len(kept)) != len(kept):
            raise RequestError(
                f"--workers {changed['workers']}: {flag} {','.join(map(str, kept))} is of "
                f"{len(kept)} workers: give {flag} anew, too"
            )
    each, cut = settings.replicas, changed.get("cut")
    if not cut or not isinstance(each, tuple) or changed.keys() & {"workers", "replicas"}:
        return
    if len(each) != (stages := len(cut) + 1):
        raise RequestError(
            f"--cut {','.join(map(str, cut))} makes {stages} stages, and --replicas "
            f"{','.join(map(str, each))} so far is of {len(each)}: give --replicas anew, too"
        )


def check_unequal(settings: Settings) -> None:
    """Raise RequestError for unequal workers where all have to be alike.

    Args:
        settings: with lists of the right lengths.
    """
    flag = next((flag for name, flag in _LISTS.items() if getattr(settings, name)), None)
    if flag is None:
        return
    if settings.each_memory_mib and settings.memory_mib is not None:
        raise RequestError("memory_mib and each_memory_mib: give one of them")
    if settings.cut:
        raise RequestError(
            f"{flag} of each worker is for a model that is not cut: leave it or --cut out, and say "
            "the memory of stages by --stage-memory"
        )
    if settings.virtual_workers is not None:
        raise RequestError(
            f"{flag} of each worker cannot be with --virtual-workers, whose leaves are of one "
            "size: leave out one of them"
        )
    differ = any(len(set(getattr(settings, name))) > 1 for name in _LISTS)
    if differ and not settings.protocol.weighs:
        raise RequestError(
            f"{flag} of each worker cannot be with --sync {settings.sync}, whose workers have "
            f"equal shares of each batch: give bsp or hap, or {flag} that are equal"
        )
    refused = refuses_idle(numbers_of(settings.shares), settings.aggregators)
    if refused is not None:
        raise RequestError(refused)


def shares_of(settings: Settings) -> tuple[int, ...]:
    """Returns each worker's share of a batch, in relation to the others; empty: all are equal.

    They are as asked for, else by the CPU that each worker's function has.

    Raises:
        RequestError: functions that cannot be.
    """
    shares = numbers_of(settings.shares)
    if not shares and settings.each_memory_mib:
        cores = [resources_of(kind).spec.cpu_cores for kind in settings.kinds]
        shares = tuple(1 if one is None else max(1, round(_PARTS * one)) for one in cores)
    if len(set(shares)) < 2:
        return ()
    common = gcd(*shares)
    return tuple(one // common for one in shares)


def slice_sizes(settings: Settings, batch_size: int) -> set[int]:
    """Returns the sizes of the slices, or leaves, into which a batch is cut.

    Those of workers that have no share of any batch are left out.

    Raises:
        RequestError: functions that cannot be.
    """
    parts, weights = settings.leaves, shares_of(settings)
    return {
        len(share(batch_size, part, parts, weights))
        for part in range(parts)
        if not weights or weights[part]
    }
