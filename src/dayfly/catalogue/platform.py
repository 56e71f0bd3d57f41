"""A platform on which functions run, as the catalogue knows it: its limits, speeds and prices.

What no source gives is None: it is then neither checked nor known. Memory is MiB, as the platforms
count it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dayfly.catalogue.gpu import GpuFacts
from dayfly.catalogue.prices import FunctionPrices
from dayfly.catalogue.rows import Pairs, between, ceil_to, up_to
from dayfly.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlatform:
    """Limits, speeds and prices of one platform's functions. A machine is a function of one size.

    Args:
        name: of its data file.
        overridden: the rows that are the user's own.
        prices: None if no source gives any.
        memory_min_mib: smallest memory of a function.
        memory_max_mib: largest memory of a function.
        memory_step_mib: step between sizes.
        memory_steps_mib: pairs (up to this size, in steps of so many MiB) where the step is not
            always the same.
        lifetime_max_s: after which a function is ended.
        payload_sync_bytes: largest payload of an invocation that waits for its result.
        payload_async_bytes: largest payload of an asynchronous invocation.
        mib_per_vcpu: memory that comes with one vCPU.
        vcpus_by_memory: pairs (up to this size, the fewest vCPUs that it can be had with).
        memory_min_by_vcpus: pairs (vCPUs, least MiB that they can be had with), where vCPUs are
            sold apart from memory.
        memory_max_by_vcpus: pairs (vCPUs, most MiB).
        memory_step_by_vcpus: pairs (up to so many vCPUs, memory in steps of so many MiB).
        vcpus_min: fewest vCPUs of a function.
        vcpus_max: most vCPUs of a function.
        machine_vcpus: vCPUs of a machine.
        spot_interruptions_per_month: how often a spot machine is taken away; others never are.
        latency_s: of a function's request to a machine that is its store, to the first byte.
        vcpu_flops_per_s: floating-point operations a second that training gets out of one vCPU, on
            average over its layers.
        uplink_bytes_per_s: of a function of any size.
        downlink_bytes_per_s: of a function of any size.
        uplink_by_memory: pairs (memory, bytes a second) in its place.
        downlink_by_memory: pairs (memory, bytes a second) in its place.
        host_functions: functions of a run that are on one host, and share its link.
        host_bytes_per_s: what that link carries each way; None: each has all of its own.
        cold_start_s: from the request to the handler, if nothing is warm.
        gpu: type of its GPUs.
        gpus: number of GPUs of a function.
        gpu_memory_mib: memory of one GPU.
        gpu_memory_step_mib: steps in which a part of a GPU can be had.
        memory_max_per_gpu_mib: most MiB of a function for each MiB of its part of a GPU.
        vcpus_max_per_gpu_gb: most vCPUs of a function for each GB of its part of a GPU.
        gpu_facts: what is published of that type; None: the catalogue does not know it.
    """

    name: str
    overridden: tuple[str, ...] = ()
    prices: FunctionPrices | None
    memory_min_mib: int | None = None
    memory_max_mib: int | None = None
    memory_step_mib: int | None = None
    memory_steps_mib: Pairs | None = None
    lifetime_max_s: float | None = None
    payload_sync_bytes: int | None = None
    payload_async_bytes: int | None = None
    mib_per_vcpu: float | None = None
    vcpus_by_memory: Pairs | None = None
    memory_min_by_vcpus: Pairs | None = None
    memory_max_by_vcpus: Pairs | None = None
    memory_step_by_vcpus: Pairs | None = None
    vcpus_min: float | None = None
    vcpus_max: float | None = None
    machine_vcpus: float | None = None
    spot_interruptions_per_month: float | None = None
    latency_s: float | None = None
    vcpu_flops_per_s: float | None = None
    uplink_bytes_per_s: float | None = None
    downlink_bytes_per_s: float | None = None
    uplink_by_memory: Pairs | None = None
    downlink_by_memory: Pairs | None = None
    host_functions: int | None = None
    host_bytes_per_s: float | None = None
    cold_start_s: float | None = None
    gpu: str | None = None
    gpus: int | None = None
    gpu_memory_mib: int | None = None
    gpu_memory_step_mib: int | None = None
    memory_max_per_gpu_mib: float | None = None
    vcpus_max_per_gpu_gb: float | None = None
    gpu_facts: GpuFacts | None = None

    def __post_init__(self) -> None:
        both = self.host_functions, self.host_bytes_per_s
        if any(one is not None for one in both) and not all(both):
            raise RequestError(
                f"{self.name}: host_functions and host_bytes_per_s say together what functions on "
                "one host share: give both rows, above 0, or neither"
            )

    def vcpus(self, memory_mib: float) -> float | None:
        """vCPUs that come with this memory; where the user may choose, the fewest."""
        if self.machine_vcpus is not None:
            return self.machine_vcpus
        if self.vcpus_by_memory is not None:
            return up_to(self.vcpus_by_memory, memory_mib)
        if self.mib_per_vcpu is None:
            return None
        most = math.inf if self.vcpus_max is None else self.vcpus_max
        return min(max(memory_mib / self.mib_per_vcpu, self.vcpus_min or 0.0), most)

    def vcpu_choices(self, memory_mib: float) -> tuple[float, ...]:
        """Returns the numbers of vCPUs that this memory can be had with, rising.

        There are several where vCPUs are sold apart from memory; else those that come with it.
        """
        found = []
        if self.memory_min_by_vcpus is not None and self.memory_max_by_vcpus is not None:
            most = dict(self.memory_max_by_vcpus)
            for vcpus, least_mib in self.memory_min_by_vcpus:
                steps = self.memory_step_by_vcpus
                step_mib = 1.0 if steps is None else up_to(steps, vcpus)
                if least_mib <= memory_mib <= most[vcpus] and memory_mib % step_mib == 0:
                    found.append(vcpus)
        fewest = self.vcpus(memory_mib)
        return tuple(found) or (() if fewest is None else (fewest,))

    def up_bytes_per_s(self, memory_mib: float) -> float | None:
        """Bytes a second that a function of this size can send."""
        if self.uplink_by_memory is not None:
            return between(self.uplink_by_memory, memory_mib)
        return self.uplink_bytes_per_s

    def down_bytes_per_s(self, memory_mib: float) -> float | None:
        """Bytes a second that a function of this size can receive."""
        if self.downlink_by_memory is not None:
            return between(self.downlink_by_memory, memory_mib)
        return self.downlink_bytes_per_s

    def billed_size(
        self, memory_mib: float | None, vcpus: float | None = None
    ) -> tuple[int, float]:
        """MiB and vCPUs that a function is billed for.

        Args:
            memory_mib: its limit; None: it has none, and is billed for what comes with one vCPU.
            vcpus: its own; None: what comes with the memory.
        """
        if memory_mib is None:
            size_mib = self.next_size_mib(self.one_vcpu_mib or 1)
            return size_mib, vcpus or self.machine_vcpus or max(1.0, self.vcpus_min or 0.0)
        size_mib = self.next_size_mib(memory_mib)
        return size_mib, self.machine_vcpus or vcpus or self.vcpus(size_mib) or 1.0

    def usd_per_s(
        self,
        memory_mib: float | None,
        gpu_share: float | None = None,
        vcpus: float | None = None,
    ) -> float:
        """Dollars a second of a function of this size, as it is billed.

        Args:
            memory_mib: as of `billed_size`.
            gpu_share: of a GPU; None: a whole one, where functions have one.
            vcpus: as of `billed_size`.

        Raises:
            RequestError: the catalogue has no prices.
        """
        if self.prices is None:
            raise RequestError(f"the catalogue has no prices of {self.name}: name another list")
        return self.prices.usd_for_1_s(
            *self.billed_size(memory_mib, vcpus), self.next_gpu_share(gpu_share)
        )

    @property
    def one_vcpu_mib(self) -> int | None:
        """The most memory that comes with one vCPU; the least where more come with it; all of a
        machine's."""
        if self.machine_vcpus is not None:
            return self.memory_max_mib
        if self.vcpus_by_memory is not None:
            sizes = [size for size, vcpus in self.vcpus_by_memory if vcpus <= 1]
            return int(sizes[-1]) if sizes else self.memory_min_mib
        return None if self.mib_per_vcpu is None else int(self.mib_per_vcpu)

    def next_size_mib(self, memory_mib: float) -> int:
        """The smallest size that can be had and has this memory; above the largest, just as much.

        A machine has one size.
        """
        if self.machine_vcpus is not None and self.memory_max_mib is not None:
            return max(self.memory_max_mib, math.ceil(memory_mib))
        least = max(memory_mib, self.memory_min_mib or 1)
        step = self._step_mib(least)
        size = math.ceil(least / step) * step
        most = self.memory_max_mib
        return math.ceil(memory_mib) if most is not None and size > most >= least else size

    def next_gpu_share(self, share: float | None) -> float:
        """The smallest part of a GPU that can be had and has this share; None: a whole one."""
        step = self._gpu_step
        return 1.0 if share is None or step is None else min(1.0, ceil_to(share, step))

    def most_mib_beside_gpu(self, share: float | None) -> float:
        """Returns the most MiB of a function with this share of a GPU; infinite: any size."""
        if share is None or self.memory_max_per_gpu_mib is None:
            return math.inf
        return self._part_mib(share) * self.memory_max_per_gpu_mib

    def check(
        self,
        *,
        memory_mib: int | None = None,
        vcpus: float | None = None,
        lifetime_s: float | None = None,
        payload_bytes: int | None = None,
        gpu_share: float | None = None,
        asynchronous: bool = False,
    ) -> None:
        """Checks that functions of the platform can have this.

        What is None, or has no limit in the catalogue, is not checked.

        Args:
            memory_mib: of a function.
            vcpus: of a function.
            lifetime_s: of a function.
            payload_bytes: of one invocation.
            gpu_share: of one GPU.
            asynchronous: whether the invocation does not wait for its result.

        Raises:
            RequestError: they cannot; with the limit.
        """
        if gpu_share is not None:
            self._check_gpu(gpu_share)
            self._check_beside_gpu(gpu_share, memory_mib, vcpus)
        if memory_mib is not None and not self._has_size(memory_mib):
            raise RequestError(
                f"{self.name} has no functions of {memory_mib} MiB: give {self._sizes()}"
            )
        least, most = self.vcpus_min, self.machine_vcpus or self.vcpus_max
        if vcpus is not None and not (least or 0) <= vcpus <= (most or math.inf):
            bounds = f"at most {most or math.inf:g}" if least is None else f"{least:g} to {most:g}"
            raise RequestError(f"{self.name} has no functions of {vcpus:g} vCPUs: give {bounds}")
        longest = self.lifetime_max_s
        if lifetime_s is not None and longest is not None and lifetime_s > longest:
            raise RequestError(
                f"{self.name} ends functions after {longest:g} s, so none lives {lifetime_s:g} s: "
                f"give a lifetime of at most {longest:g} s"
            )
        largest = self.payload_async_bytes if asynchronous else self.payload_sync_bytes
        if payload_bytes is not None and largest is not None and payload_bytes > largest:
            way = "an asynchronous" if asynchronous else "a synchronous"
            raise RequestError(
                f"{self.name} takes at most {largest} bytes with {way} invocation, not "
                f"{payload_bytes}: send the rest through a store"
            )

    @property
    def _gpu_step(self) -> float | None:
        """Parts of a GPU that can be had are multiples of this one; None: only whole ones can."""
        if self.gpu_memory_step_mib is None or self.gpu_memory_mib is None:
            return None
        return self.gpu_memory_step_mib / self.gpu_memory_mib

    def _check_gpu(self, share: float) -> None:
        if self.gpu is None:
            raise RequestError(f"{self.name} has no functions with a GPU: name a platform that has")
        if (self.gpus or 1) > 1:
            raise RequestError(
                f"{self.name} has {self.gpus} GPUs in each function, and none with one or a part, "
                f"and a worker computes on one: name a platform with one {self.gpu} each"
            )
        step = self._gpu_step
        if step is None and share < 1:
            raise RequestError(
                f"{self.name} has no functions with {share:g} of a GPU: give a share of 1"
            )
        if step is not None and not math.isclose(ceil_to(share, step), share):
            raise RequestError(
                f"{self.name} has no functions with {share:g} of a GPU: give a multiple of {step:g}"
            )

    def _check_beside_gpu(
        self, share: float, memory_mib: float | None, vcpus: float | None
    ) -> None:
        """With a part of a GPU there is no more memory, and no more vCPUs, than belong to it."""
        for asked, most, unit in (
            (memory_mib, self.most_mib_beside_gpu(share), "MiB"),
            (
                vcpus,
                self._part_mib(share) / 1024 * (self.vcpus_max_per_gpu_gb or math.inf),
                "vCPUs",
            ),
        ):
            if asked is not None and asked > most * (1 + 1e-9):
                raise RequestError(
                    f"{self.name} has no functions of {asked:g} {unit} with {share:g} of a GPU: "
                    f"give at most {most:g} {unit}, or a larger share"
                )

    def _part_mib(self, share: float) -> float:
        return share * (self.gpu_memory_mib or math.inf)

    def _step_mib(self, memory_mib: float) -> int:
        if self.memory_steps_mib is not None:
            return int(up_to(self.memory_steps_mib, memory_mib))
        return self.memory_step_mib or 1

    def _has_size(self, memory_mib: int) -> bool:
        if memory_mib > (self.memory_max_mib or math.inf):
            return False
        if self.machine_vcpus is not None:
            return True  # a part of the machine's memory
        if memory_mib < (self.memory_min_mib or 1):
            return False
        return memory_mib % self._step_mib(memory_mib) == 0

    def _sizes(self) -> str:
        least, most = self.memory_min_mib, self.memory_max_mib
        if self.machine_vcpus is not None or least is None:
            bounds = f"at most {most} MiB" if most is not None else "another size"
        else:
            bounds = f"{least} to {most} MiB" if most is not None else f"at least {least} MiB"
        if self.memory_steps_mib is not None:
            steps = [f"{step:g} up to {size:g}" for size, step in self.memory_steps_mib]
            return f"{bounds} in steps of {', of '.join(steps)}"
        return (
            bounds
            if self.memory_step_mib is None
            else (f"{bounds} in steps of {self.memory_step_mib}")
        )
