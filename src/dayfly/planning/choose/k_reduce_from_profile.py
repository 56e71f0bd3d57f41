"""FasDL's problem from a profile and the catalogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import allowed, most_at_once, of_kind, summed_bytes
from dayfly.planning.choose.k_reduce_problem import (
    RATE,
    STEP,
    FunctionSize,
    KReduceProblem,
    batches,
)
from dayfly.planning.configuration import Configuration
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.memory import excess_mib, peak_mib
from dayfly.planning.profile import Affine, Profile, SizeProfile


def k_reduce_problem(
    profile: Profile,
    platform: FunctionPlatform,
    store: StoreFacts | None = None,
    *,
    workers: Sequence[int],
    most_global_samples: int,
    rate: float = RATE,
    step: int = STEP,
    vcpus_at_once: float = math.inf,
    kind: FunctionKind = BY_MEMORY,
) -> KReduceProblem:
    """FasDL's problem of a job.

    Args:
        platform: whose prices.
        rate, step: see `batches`.
        vcpus_at_once: of all functions.
        kind: one of `kinds_of_sizes`.

    Raises:
        RequestError: without prices, without limited memory sizes, and if the model fits nowhere.
    """
    held = {"collective": "k-reduce", "aggregators": 1}
    profile = of_kind(profile, kind)
    sizes = tuple(
        FunctionSize(
            memory_mib=memory_mib,
            train=training(profile, size),
            up=size.up,
            down=size.down,
            most_samples=most_samples(profile, memory_mib, workers, most_global_samples, **held),
            usd_per_s=platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus),
            start_s=size.init_s.value,
            most_workers=most_at_once(size, max(workers), vcpus_at_once),
        )
        for memory_mib, size in allowed(profile, vcpus_at_once)
    )
    check_fits(profile, [(size.memory_mib, size.most_samples) for size in sizes], workers, held)
    least = min((one.train for one in sizes), key=lambda one: one.fixed / one.each)
    return KReduceProblem(
        size_bytes=summed_bytes(profile),
        data_bytes=0.0,
        samples=profile.samples,
        epochs=profile.epochs,
        sizes=sizes,
        workers=tuple(workers),
        aggregators_samples=batches(least, most_global_samples, rate=rate, step=step),
        most_global_samples=most_global_samples,
        store=store,
        usd_per_invocation=platform.prices.usd_per_request if platform.prices else 0.0,
        store_bytes_per_s=profile.store_bytes_per_s or math.inf,
        decline=profile.decline,
        host=profile.host,
    )


def training(profile: Profile, size: SizeProfile) -> Affine:
    """Seconds of a step of so many samples, but for its messages."""
    apply_s = size.apply(sum(layer.trained for layer in profile.layers))
    rest = Affine(size.step_s.value + apply_s, 0.0)
    return sum((*size.forward, *size.backward, size.data), rest)


def most_samples(
    profile: Profile, memory_mib: int, workers: Sequence[int], most: int, **held: Any
) -> int:
    """Samples of a step that a function's memory allows, whatever the number of workers.

    Args:
        held: of the configuration, what takes most memory.
    """
    found = most
    for count in sorted(set(workers)):
        low, high = 0, found
        while low < high:  # the last of low to high that fits
            samples = high if high == found else (low + high + 1) // 2
            if excess_mib(profile, _held(profile, memory_mib, count, samples, **held), 0) <= 0:
                low = samples
            else:
                high = samples - 1
        found = low
    return found


def _held(
    profile: Profile, memory_mib: int, workers: int, samples: int, **held: Any
) -> Configuration:
    """A configuration of the profile's one kind of functions."""
    return Configuration(
        workers=workers,
        memory_mib=(memory_mib,),
        gpu_share=profile.size(memory_mib).gpu_share,
        batch_size=samples * workers,
        **held,
    )


def check_fits(
    profile: Profile,
    holds: Sequence[tuple[int, int]],
    workers: Sequence[int],
    held: dict[str, Any],
) -> None:
    """Checks that functions of some size hold a sample.

    Args:
        profile: of the job.
        holds: memory sizes in MiB, each with the samples of a step that it holds.
        workers: all numbers of workers to consider.
        held: settings of the configuration that holds most memory.

    Raises:
        RequestError: none holds one; with the memory that a function needs.
    """
    if any(samples for _, samples in holds):
        return
    memory_mib = max(memory for memory, _ in holds)
    asked = [_held(profile, memory_mib, count, 1, **held) for count in workers]
    if profile.gpu is not None:
        over = max(excess_mib(profile, one, 0) for one in asked)
        raise RequestError(
            f"the model of {profile.job} fits nowhere: with a single sample a function lacks "
            f"{over:.0f} MiB, of {memory_mib} MiB or of its share of a {profile.gpu.type}: take "
            "larger ones, or cut the model into stages"
        )
    needs = max(peak_mib(profile, one, 0) for one in asked)
    raise RequestError(
        f"the model of {profile.job} fits nowhere: with a single sample a function needs "
        f"{needs:.0f} MiB, and the largest of the profile has {memory_mib}: profile larger ones, "
        "or cut the model into stages"
    )
