"""The problems of `k_reduce` and `stores`, from a profile and the catalogue; other stores.

Workers read samples beside computing, so reading is part of a step's time here: no data are loaded
beforehand, as FasDL's equation 5 and CE-scaling's equation 2 have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.k_reduce_problem import (
    RATE,
    STEP,
    FunctionSize,
    KReduceProblem,
    batches,
)
from dayfly.planning.choose.stores_problem import MemorySize, StoreOption, StoreProblem
from dayfly.planning.configuration import Configuration
from dayfly.planning.data_parallel import TAIL
from dayfly.planning.figures import Affine, Figure, Transfer
from dayfly.planning.flat import ITEM_BYTES, flat
from dayfly.planning.memory import peak_mib
from dayfly.planning.profile import Profile, SizeProfile


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
) -> KReduceProblem:
    """FasDL's problem of a job. platform: whose prices. rate, step: see `batches`. vcpus_at_once:
    of all functions.

    Raises RequestError without prices, without limited memory sizes, and if the model fits nowhere.
    """
    held = {"collective": "k-reduce", "aggregators": 1}
    sizes = tuple(
        FunctionSize(
            memory_mib=memory_mib,
            train=training(profile, size),
            up=size.up,
            down=size.down,
            most_samples=most_samples(profile, memory_mib, workers, most_global_samples, **held),
            usd_per_s=platform.usd_per_s(memory_mib),
            start_s=size.init_s.value,
            most_workers=most_at_once(size, max(workers), vcpus_at_once),
        )
        for memory_mib, size in allowed(profile, vcpus_at_once)
    )
    _check_fits(profile, [(size.memory_mib, size.most_samples) for size in sizes], workers, held)
    least = min(sizes, key=lambda size: size.train.fixed / size.train.each)
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
    )


def store_problem(
    profile: Profile,
    platform: FunctionPlatform,
    stores: Sequence[StoreOption],
    *,
    workers: Sequence[int],
    batch_size: int,
    at_once: int | None = None,
    vcpus_at_once: float = math.inf,
) -> StoreProblem:
    """CE-scaling's problem of a job, with a batch that all functions share.

    platform: whose prices. at_once, vcpus_at_once: its limits. Raises RequestError as
    `k_reduce_problem` does.
    """
    held = {"collective": "all-reduce"}
    # Bytes of data are but a unit here, as none are loaded; so a sample may be one.
    sample_bytes = profile.sample_bytes or 1.0
    made = []
    for memory_mib, size in allowed(profile, vcpus_at_once):
        line = training(profile, size)
        most = most_samples(profile, memory_mib, workers, batch_size, **held)
        made.append(
            MemorySize(
                memory_mib=memory_mib,
                compute_s_per_byte=line.each / sample_bytes,
                loading_bytes_per_s=float("inf"),
                usd_per_s=platform.usd_per_s(memory_mib),
                step_s=line.fixed,
                most_batch_bytes=most * sample_bytes,
                most_workers=most_at_once(size, max(workers), vcpus_at_once),
            )
        )
    holds = [(size.memory_mib, int(size.most_batch_bytes)) for size in made]
    _check_fits(profile, holds, workers, held)
    return StoreProblem(
        size_bytes=summed_bytes(profile),
        data_bytes=profile.samples * sample_bytes,
        batch_bytes=min(batch_size, profile.samples) * sample_bytes,
        shared_batch=True,
        sample_bytes=sample_bytes,
        epochs=profile.epochs,
        sizes=tuple(made),
        stores=tuple(stores),
        workers=tuple(workers),
        at_once=at_once,
        usd_per_invocation=platform.prices.usd_per_request if platform.prices else 0.0,
    )


def over_store(profile: Profile, platform: FunctionPlatform, store: StoreFacts) -> Profile:
    """The same job and functions over another store, by the catalogue's rows of it.

    platform: the profile's; what its functions carry is what its rows say, and the profile where
    they say nothing. Raises RequestError for a profile that was not made from the catalogue, as
    what was measured holds for its own channel alone, and for a store without latency.
    """
    if profile.how != "catalogue":
        raise RequestError(
            f"the profile of {profile.job} is over {profile.channel}, and not made from the "
            f"catalogue: profile the job over {store.name}, too"
        )
    if store.latency_s is None:
        raise RequestError(
            f"the catalogue has no latency_s of {store.name}: profile the job over it, with "
            "--latency, or add the row, with its source, to a catalogue of your own"
        )
    latency, most = Figure.given(store.latency_s), store.bytes_per_s or math.inf
    sizes = []
    for size in profile.sizes:
        memory_mib = size.memory_mib or 0
        rates = (
            platform.up_bytes_per_s(memory_mib) or size.up.peak_bytes_per_s.value,
            platform.down_bytes_per_s(memory_mib) or size.down.peak_bytes_per_s.value,
        )
        up, down = (
            Transfer(latency_s=latency, peak_bytes_per_s=Figure.given(min(rate, most)))
            for rate in rates
        )
        nbytes = size.down.occupied_s(1.0)
        state_bytes = (size.start_s.value - size.down.latency_s.value) / nbytes if nbytes else 0.0
        start_s = Figure.given(down.message_s(max(0.0, state_bytes)))
        data = Affine(0.0, down.occupied_s(profile.sample_bytes))
        sizes.append(replace(size, up=up, down=down, start_s=start_s, data=data))
    return replace(profile, channel=store.name, sizes=tuple(sizes))


def training(profile: Profile, size: SizeProfile) -> Affine:
    """Seconds of a step of so many samples, but for its messages."""
    trained = sum(layer.trained for layer in profile.layers)
    rest = Affine(size.step_s.value + size.apply(trained), 0.0)
    return sum((*size.forward, *size.backward, size.data), rest)


def vcpus(size: SizeProfile) -> float:
    """Of a function; one that nothing limits computes by one thread."""
    return 1.0 if size.cpu_cores is None else size.cpu_cores


def most_at_once(size: SizeProfile, workers: int, vcpus_at_once: float) -> int:
    """Functions of a size, of so many at most, that have so many vCPUs together at most."""
    return int(min(workers, (1 + 1e-9) * vcpus_at_once / vcpus(size)))


def allowed(profile: Profile, vcpus_at_once: float) -> list[tuple[int, SizeProfile]]:
    """Sizes of `limited`, one function of which may be there. Raises RequestError for none."""
    sizes = limited(profile)
    found = [one for one in sizes if most_at_once(one[1], 1, vcpus_at_once)]
    if not found:
        memory_mib, least = min(sizes, key=lambda one: vcpus(one[1]))
        raise RequestError(
            f"a function of {memory_mib} MiB has {vcpus(least):.3g} vCPUs, and the limit is "
            f"{vcpus_at_once:g} at once: allow more, or profile smaller functions"
        )
    return found


def summed_bytes(profile: Profile) -> float:
    """What a step sums: gradients, moves of buffers, and the tail."""
    return ITEM_BYTES * flat(profile.layers, tail=TAIL, listed=profile.listed).length


def most_samples(
    profile: Profile, memory_mib: int, workers: Sequence[int], most: int, **held: Any
) -> int:
    """Samples of a step that a function's memory allows, whatever the number of workers.

    held: of the configuration, what takes most memory.
    """
    found = most
    for count in sorted(set(workers)):
        low, high = 0, found
        while low < high:  # the last of low to high that fits
            samples = high if high == found else (low + high + 1) // 2
            if _peak_mib(profile, memory_mib, count, samples, **held) <= memory_mib:
                low = samples
            else:
                high = samples - 1
        found = low
    return found


def _peak_mib(profile: Profile, memory_mib: int, workers: int, samples: int, **held: Any) -> float:
    configuration = Configuration(
        workers=workers, memory_mib=(memory_mib,), batch_size=samples * workers, **held
    )
    return peak_mib(profile, configuration, 0)


def _check_fits(
    profile: Profile,
    holds: Sequence[tuple[int, int]],
    workers: Sequence[int],
    held: dict[str, Any],
) -> None:
    if any(samples for _, samples in holds):
        return
    memory_mib = max(memory for memory, _ in holds)
    needs = max(_peak_mib(profile, memory_mib, count, 1, **held) for count in workers)
    raise RequestError(
        f"the model of {profile.job} fits nowhere: with a single sample a function needs "
        f"{needs:.0f} MiB, and the largest of the profile has {memory_mib}: profile larger ones, "
        "or cut the model into stages"
    )


def limited(profile: Profile) -> list[tuple[int, SizeProfile]]:
    """Sizes whose memory is limited, by rising memory. Raises RequestError if there is none."""
    found = [(one.memory_mib, one) for one in profile.sizes if one.memory_mib is not None]
    if not found:
        raise RequestError(
            f"the profile of {profile.job} has no functions of limited memory, which alone have a "
            "price by size: profile it with --memory"
        )
    return sorted(found, key=lambda one: one[0])
