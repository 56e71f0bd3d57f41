"""A profile made from rows of the catalogue and FLOPs, of platforms that nobody can reach.

    forward     FLOPs of a layer and so many samples / (vCPUs of the memory x FLOPs a vCPU-second)
    backward    twice as long: gradients of the input and of the parameters are as much work each
    transfers   the platform's bytes a second for the memory, at most those of the whole store, and
                the store's latency
    start       what a worker reads, model and optimizer's state, over its downlink
    on a GPU    passes and the optimizer's step by the type's published figures (`planning.gpus`)

Adding contributions up and the optimizer's step take no time, as in the papers (FuncPipe section
3.4.2: negligible), and computing is as fast beside transfers as alone (beta = 1) unless said
otherwise. The FLOPs of a vCPU-second are one number for all layers: convolutions and matrices may
well reach more, and layers that are bound by memory much less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from dayfly.catalogue.gpu import gpu_shares
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.efficiency import Convergence
from dayfly.planning.gpus import CUDA_HOST_MIB, Roofline, derived_gpu
from dayfly.planning.profile import (
    NOTHING,
    Affine,
    Figure,
    Fit,
    LayerBytes,
    Profile,
    SizeProfile,
    Transfer,
)
from dayfly.wire.streams import HostLink

#: Of the time of a forward pass.
BACKWARD = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a profile has of the job itself; the names are `Profile`'s.

    Attributes:
        flops: of each layer's forward pass, for so many samples.
        convergence: of another profile of the job: what is learnt does not depend on the place.
    """

    job: str
    listed: bool
    samples: int
    validation_samples: int
    sample_bytes: float
    state_per_trained_byte: float
    layers: tuple[LayerBytes, ...]
    flops: tuple[Affine, ...]
    measures: int = 4
    batch_size: int | None = None
    epochs: int = 1
    accumulate: int = 1
    validate_every: int = 1
    clips: bool = False
    convergence: Convergence | None = None

    def __post_init__(self) -> None:
        if len(self.flops) != len(self.layers):
            raise ValueError(f"FLOPs of {len(self.flops)} layers, and {len(self.layers)} layers")

    @property
    def state_bytes(self) -> float:
        """Of parameters, buffers and the optimizer's state."""
        each = [one.parameters + one.buffers for one in self.layers]
        trained = sum(one.trained for one in self.layers)
        return sum(each) + self.state_per_trained_byte * trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is said in place of the catalogue's rows, where it has none or others are meant.

    Raises RequestError for what cannot be.

    Attributes:
        vcpu_flops_per_s, vcpus, latency_s, up_bytes_per_s, down_bytes_per_s, cold_start_s: of every
            memory size; None: the catalogue's.
        threads: the most vCPUs that a worker computes with; None: all that it has.
        base_mib: memory of a worker without a model, which no row can give.
        beta: FuncPipe's.
    """

    base_mib: float
    vcpu_flops_per_s: float | None = None
    vcpus: float | None = None
    threads: int | None = None
    latency_s: float | None = None
    up_bytes_per_s: float | None = None
    down_bytes_per_s: float | None = None
    cold_start_s: float | None = None
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("vcpu_flops_per_s", "vcpus", "threads", "up_bytes_per_s", "down_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise RequestError(f"{name} is {value:g}: give more than 0")
        for name in ("base_mib", "latency_s", "cold_start_s"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise RequestError(f"{name} is {value:g}: give 0 at least")
        if self.beta < 1:
            raise RequestError(f"beta is {self.beta:g}: give 1 at least, as transfers do not help")


def facts_of(profile: Profile) -> JobFacts:
    """Returns what a profile has of the job itself. Raises RequestError without FLOPs."""
    if not profile.flops:
        raise RequestError(
            f"the profile of {profile.job} has no FLOPs of its layers, so it says nothing of "
            "another platform: profile the job anew, or give the job (JOB.py) in its place"
        )
    return JobFacts(**{one.name: getattr(profile, one.name) for one in fields(JobFacts)})


def profile_of(
    facts: JobFacts,
    platform: FunctionPlatform,
    store: StoreFacts,
    memory_mib: Sequence[int],
    assumed: Assumed,
    *,
    every_kind: bool = False,
    gpu_share: float | None = None,
) -> Profile:
    """A profile for functions of these memory sizes, on the platform's GPU if it has one.

    Its start-up time has the cold start, so a configuration should not add another. Raises
    RequestError for sizes that the platform has not, and for what neither catalogue nor `assumed`
    knows.

    Args:
        every_kind: where vCPUs are sold apart from memory, with each number that it can be had
            with, and with each share of a GPU that goes with the size; else with the fewest, and a
            whole one.
        gpu_share: that one alone.
    """
    if not memory_mib:
        raise RequestError(f"no memory size of {platform.name} to make a profile for: give one")
    sizes = sorted(set(memory_mib))
    shares: tuple[float | None, ...] = (None,)
    gpu = None
    if platform.gpu is not None:
        gpu = derived_gpu(platform.name, platform.gpu, platform.gpu_facts, platform.gpu_memory_mib)
        shares = gpu_shares(platform) if every_kind and gpu_share is None else (gpu_share or 1.0,)
    elif gpu_share is not None:
        platform.check(gpu_share=gpu_share)
    for size in sizes:
        platform.check(memory_mib=size, gpu_share=shares[-1])
    if shares[-1] is not None:
        platform.check(gpu_share=shares[-1], vcpus=assumed.vcpus)
    of_the_job = {one.name: getattr(facts, one.name) for one in fields(facts)}
    return Profile(
        **of_the_job,
        # Whoever starts functions by this profile starts local ones that imitate the platform.
        platform="local",
        imitate=platform.name,
        channel=store.name,
        sizes=tuple(
            _size(facts, platform, store, size, given, share)
            for size in sizes
            for given in (_each_vcpus(platform, size, assumed) if every_kind else [assumed])
            for share in shares
            if size <= platform.most_mib_beside_gpu(share)
        ),
        fit=_fit(facts, platform, sizes, assumed) if gpu is None else None,
        gpu=gpu,
        how="catalogue",
        store_bytes_per_s=store.bytes_per_s,
        host=host_of(platform),
    )


def host_of(platform: FunctionPlatform) -> HostLink | None:
    """Returns what functions on one host of a platform share; None: no row says it."""
    functions, rate = platform.host_functions, platform.host_bytes_per_s
    if functions is None or rate is None:
        return None
    return HostLink(functions=functions, bytes_per_s=rate)


def _each_vcpus(platform: FunctionPlatform, memory_mib: int, assumed: Assumed) -> list[Assumed]:
    if assumed.vcpus is not None:
        return [assumed]
    choices = platform.vcpu_choices(memory_mib)
    return [replace(assumed, vcpus=vcpus) for vcpus in choices] or [assumed]


def _size(
    facts: JobFacts,
    platform: FunctionPlatform,
    store: StoreFacts,
    memory_mib: int,
    assumed: Assumed,
    gpu_share: float | None,
) -> SizeProfile:
    vcpus = _vcpus(platform, memory_mib, assumed)
    base_mib, apply, to_gpu_s = assumed.base_mib, NOTHING, 0.0
    if gpu_share is None or platform.gpu_facts is None:
        flops_per_s = _computing(vcpus, assumed) * _vcpu_flops_per_s(platform, assumed)
        forward = _scaled(facts.flops, 1 / flops_per_s)
    else:
        gpu = Roofline(platform.gpu_facts, gpu_share)
        forward = gpu.forward(facts.layers, facts.flops, facts.sample_bytes)
        apply = gpu.apply(facts.state_per_trained_byte)
        to_gpu_s = facts.sample_bytes * gpu.host_s_per_byte
        base_mib += CUDA_HOST_MIB
    row = platform.up_bytes_per_s(memory_mib)
    up_bytes_per_s = _known(
        assumed.up_bytes_per_s, row, platform.name, "uplink_bytes_per_s", "--uplink"
    )
    row = platform.down_bytes_per_s(memory_mib)
    down_bytes_per_s = _known(
        assumed.down_bytes_per_s, row, platform.name, "downlink_bytes_per_s", "--downlink"
    )
    up, down = (
        _transfer(one, platform, store, assumed) for one in (up_bytes_per_s, down_bytes_per_s)
    )
    cold_start_s = _known(
        assumed.cold_start_s, platform.cold_start_s, platform.name, "cold_start_s", "--cold-start"
    )
    return SizeProfile(
        memory_mib=memory_mib,
        cpu_cores=vcpus,
        gpu_share=gpu_share,
        forward=forward,
        backward=_scaled(forward, BACKWARD),
        data=Affine(0.0, down.occupied_s(facts.sample_bytes) + to_gpu_s),
        apply=apply,
        step_s=Figure.given(0.0),
        reduce_s_per_byte=0.0,
        up=up,
        down=down,
        beta=Figure.given(assumed.beta),
        init_s=Figure.given(cold_start_s),
        start_s=Figure.given(down.message_s(facts.state_bytes)),
        end_s=Figure.given(0.0),
        base_mib=Figure.given(base_mib),
    )


@lru_cache(maxsize=512)
def _scaled(lines: tuple[Affine, ...], factor: float) -> tuple[Affine, ...]:
    """Kept, as the functions of a platform are the same over each of many stores."""
    return tuple(one.times(factor) for one in lines)


def _most_bytes_per_s(platform: FunctionPlatform, store: StoreFacts) -> float:
    """Of one function alone: what its host, and the store, carry for several together."""
    return min(store.bytes_per_s or math.inf, platform.host_bytes_per_s or math.inf)


def _transfer(
    bytes_per_s: float, platform: FunctionPlatform, store: StoreFacts, assumed: Assumed
) -> Transfer:
    rate = min(bytes_per_s, _most_bytes_per_s(platform, store))
    latency_s = _known(assumed.latency_s, store.latency_s, store.name, "latency_s", "--latency")
    return Transfer(latency_s=Figure.given(latency_s), peak_bytes_per_s=Figure.given(rate))


def _vcpus(platform: FunctionPlatform, memory_mib: int, assumed: Assumed) -> float:
    return _known(assumed.vcpus, platform.vcpus(memory_mib), platform.name, "mib_per_vcpu", "--cpu")


def _computing(vcpus: float, assumed: Assumed) -> float:
    return vcpus if assumed.threads is None else min(vcpus, assumed.threads)


def _vcpu_flops_per_s(platform: FunctionPlatform, assumed: Assumed) -> float:
    return _known(
        assumed.vcpu_flops_per_s,
        platform.vcpu_flops_per_s,
        platform.name,
        "vcpu_flops_per_s",
        "--flops-per-vcpu",
    )


def _known(said: float | None, row: float | None, name: str, what: str, flag: str) -> float:
    """What somebody says, or else the catalogue. Raises RequestError if neither does."""
    if said is not None:
        return said
    if row is None:
        raise RequestError(
            f"the catalogue has no {what} of {name}: give {flag}, or add the row, with its source, "
            "to a catalogue of your own"
        )
    return row


def _fit(
    facts: JobFacts, platform: FunctionPlatform, sizes: Sequence[int], assumed: Assumed
) -> Fit | None:
    """FasDL's coefficients where a step's time falls as memory rises, and m is 0; else None."""
    each = [_computing(_vcpus(platform, size, assumed), assumed) / size for size in sizes]
    flops = sum(facts.flops, NOTHING)
    if flops.each == 0 or max(each) > min(each) * (1 + 1e-9):
        return None
    a = (1 + BACKWARD) * flops.each / (each[0] * _vcpu_flops_per_s(platform, assumed))
    return Fit(a=a, b=flops.fixed / flops.each, m=0.0, error=0.0)


def over_store(profile: Profile, platform: FunctionPlatform, store: StoreFacts) -> Profile:
    """The same job and functions over another store, by the catalogue's rows of it.

    Args:
        platform: the profile's; what its functions carry is what its rows say, and the profile
            where they say nothing.

    Raises:
        RequestError: for a profile that was not made from the catalogue, as what was measured holds
            for its own channel alone, and for a store without latency.
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
    latency, most = Figure.given(store.latency_s), _most_bytes_per_s(platform, store)
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
        # What is not the store's is the way to a GPU.
        rest_s = size.data.each - size.down.occupied_s(profile.sample_bytes)
        data = Affine(0.0, down.occupied_s(profile.sample_bytes) + max(0.0, rest_s))
        sizes.append(replace(size, up=up, down=down, start_s=start_s, data=data))
    return replace(
        profile,
        channel=store.name,
        sizes=tuple(sizes),
        store_bytes_per_s=store.bytes_per_s,
        host=host_of(platform),
    )
