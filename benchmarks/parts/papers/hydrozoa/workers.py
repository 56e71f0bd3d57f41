"""Hydrozoa's kinds of workers, and how fast they are data parallel.

Messages between containers and machines go directly, those of functions through S3. Prices and
vCPUs are the catalogue's. What the paper does not print, and is assumed here:

    vCPU        FLOPs a second as of a Lambda function, in the catalogue
    K80         so many FLOPs a second that one of them trains ResNet-34 1.8 times as fast as 16
                containers without: the paper's own ratio; every other ratio then follows.
                Beside it stands the catalogue's K80, by its published peaks (`papers.gpus`)
    links       1 Gb/s each way between containers, and between machines; 1 ms
    Lambda      sums at one aggregator (all-reduce), as its text has communication grow with workers
    batch       256 samples a worker, as its table 4 has for ResNet-34
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from benchmarks.parts.papers.gpus import Gpu, derived
from benchmarks.parts.papers.models import BACKWARD, Layer, layers_of, together
from benchmarks.parts.papers.rows import given, platform, prices, store
from benchmarks.parts.papers.sums import sum_s

MIB = 2**20


_BASE_MIB = 300


LINK_BYTES_PER_S, LINK_LATENCY_S = 125e6, 0.001


BATCH = 256


WORKERS = (1, 2, 4, 8, 16)


#: Section 5.2: one K80 over 16 containers, ResNet-34.
_K80_OVER_16 = 1.8


_LAMBDA_MIB, _CONTAINER_VCPUS = 10240, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A kind of worker. usd_per_hour: of one. stored: its messages go through S3. gpu: on which it
    computes, as long as that says; None: flops_per_s says it."""

    name: str
    flops_per_s: float
    usd_per_hour: float
    stored: bool = False
    collective: str = "ring"
    gpu: Gpu | None = None

    def compute_s(self, name: str, samples: float) -> float:
        """Seconds of a forward and a backward pass of so many samples."""
        if self.gpu is not None:
            return self.gpu.step_s(name, samples)
        return samples * (1 + BACKWARD) * model(name).flops / self.flops_per_s


def model(name: str) -> Layer:
    """All of a model."""
    return together(layers_of(name))


def _vcpu_flops() -> float:
    return given(platform("aws-lambda").vcpu_flops_per_s, "FLOPs of aws-lambda")


def functions(collective: str = "all-reduce") -> Way:
    """Hydrozoa-Lambda: functions of 10 GB, through S3."""
    row = platform("aws-lambda")
    vcpus = given(row.vcpus(_LAMBDA_MIB), "vCPUs of aws-lambda")
    return Way(
        name="H-L",
        flops_per_s=vcpus * _vcpu_flops(),
        usd_per_hour=3600 * prices("aws-lambda").usd_for_1_s(_LAMBDA_MIB, vcpus),
        stored=True,
        collective=collective,
    )


def containers(name: str, batch: int = BATCH) -> Way:
    """Hydrozoa-CPU: containers of 4 vCPUs, with as many GB as the model needs."""
    needed = needed_mib(model(name), batch)
    size = platform("azure-containers").next_size_mib(needed)
    usd = 3600 * prices("azure-containers").usd_for_1_s(size, _CONTAINER_VCPUS)
    return Way(name="H-C", flops_per_s=_CONTAINER_VCPUS * _vcpu_flops(), usd_per_hour=usd)


@cache
def k80() -> Way:
    """Hydrozoa-GPU: containers of a K80, 4 vCPUs and 6 GB."""
    name, workers = "resnet34", WORKERS[-1]
    rate = _K80_OVER_16 * samples_per_s(containers(name), name, workers)
    return Way(
        name="H-G",
        flops_per_s=rate * (1 + BACKWARD) * model(name).flops,
        usd_per_hour=3600 * prices("azure-containers-k80").usd_for_1_s(6 * 1024, 4),
    )


@cache
def derived_k80() -> Way:
    """The same, as fast as the catalogue's K80 is by its published peaks."""
    return replace(k80(), name="H-G, derived", gpu=derived("K80"))


@cache
def vcpu_part() -> float:
    """Share of their FLOPs a second with which vCPUs give figure 4's ratio to the derived K80."""
    name, workers = "resnet34", WORKERS[-1]
    rate = samples_per_s(derived_k80(), name, 1) / _K80_OVER_16
    way = containers(name)
    computing_s = way.compute_s(name, BATCH)
    sum_s = workers * BATCH / samples_per_s(way, name, workers) - computing_s
    return computing_s / (workers * BATCH / rate - sum_s)


def slower(way: Way) -> Way:
    """The same on vCPUs that compute with this share."""
    return replace(way, flops_per_s=vcpu_part() * way.flops_per_s)


def machines(name: str, row: str) -> Way:
    """The same GPU in a machine."""
    return replace(k80(), name=name, usd_per_hour=3600 * prices(row).usd_for_1_s(0, 0))


def samples_per_s(
    way: Way,
    name: str,
    workers: int,
    *,
    batch: int = BATCH,
    link_bytes_per_s: float = LINK_BYTES_PER_S,
) -> float:
    """Data parallel: compute, then sum; nothing overlaps.

    batch: samples of a worker. link_bytes_per_s: of containers and machines.
    """
    whole = model(name)
    compute_s = way.compute_s(name, batch)
    if way.stored:
        rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
        latency_s = given(store("s3").latency_s, "latency of s3")
    else:
        rate, latency_s = link_bytes_per_s, LINK_LATENCY_S
    summed_s = sum_s(
        way.collective,
        workers,
        whole.parameter_bytes,
        rate,
        latency_s,
        direct=not way.stored,
    )
    return workers * batch / (compute_s + summed_s)


def needed_mib(whole: Layer, samples: float) -> float:
    return _BASE_MIB + (samples * whole.kept_bytes + 2 * whole.parameter_bytes) / MIB
