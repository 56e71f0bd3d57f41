"""FasDL's workloads: rows of its tables II, III and IV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dayfly.planning.choose.formulas import global_batch
from dayfly.planning.profile import Fit

MIB, GB = 2**20, 2**30


BASE_MIB = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A configuration: workers, MiB of each, aggregators, and samples of either kind.

    memory_mib and others may be arrays: many configurations at once.
    """

    workers: int
    memory_mib: Any
    aggregators: int
    own: int
    others: Any

    @property
    def samples(self) -> Any:
        """B^g."""
        return global_batch(self.workers, self.aggregators, self.own, self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A row of tables II, III and IV.

    title: as the paper writes it. size_mib: S_m. fit: a, b, m. samples, data_bytes: D and S_d.
    limit_s, most_samples: T_con and B^g_max. theirs, server, scatter, to_one: its configurations
    of K-REDUCE, of lambda-DNN, of ScatterReduce and of AllReduce (None: no fit). usd, best_usd:
    predicted cost of its two searches.
    """

    title: str
    size_mib: float
    fit: Fit
    samples: int
    data_bytes: float
    limit_s: float
    most_samples: int
    theirs: Setup
    server: Setup
    scatter: Setup
    to_one: Setup | None
    usd: float
    best_usd: float

    @property
    def sample_mib(self) -> float:
        """Memory of a sample; see the module."""
        each: list[float] = [
            (one.memory_mib - BASE_MIB - 4 * self.size_mib) / max(one.own, one.others)
            for one in (self.theirs, self.server)
        ]
        return min(each)

    @property
    def size_bytes(self) -> float:
        """S_m."""
        return self.size_mib * MIB


def _fit(a: float, b: float, m: float) -> Fit:
    return Fit(a=a, b=b, m=m, error=0.0)


def make_setup(workers: int, memory: int, own: int, aggregators: int, others: int) -> Setup:
    return Setup(
        workers=workers, memory_mib=memory, aggregators=aggregators, own=own, others=others
    )


#: CIFAR-10 has 50,000 images of 3072 bytes; CoLA 8551 sentences, of 128 tokens at most.
_CIFAR, _COLA = (50_000, 50_000 * 3072.0), (8_551, 8_551 * 128.0)


WORKLOADS = (
    Workload(
        title="BERT-Base",
        size_mib=417.17,
        fit=_fit(2344.97, 2.37, 1145.66),
        samples=_COLA[0],
        data_bytes=_COLA[1],
        limit_s=2500,
        most_samples=640,
        theirs=make_setup(10, 10240, 32, 4, 84),
        server=make_setup(10, 10240, 32, 10, 32),
        scatter=make_setup(15, 10240, 32, 15, 32),
        to_one=None,
        usd=3.42,
        best_usd=3.02,
    ),
    Workload(
        title="ResNet50",
        size_mib=97.49,
        fit=_fit(37.19, 12.48, -111.46),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=8000,
        most_samples=1024,
        theirs=make_setup(7, 1536, 128, 4, 170),
        server=make_setup(2, 3328, 512, 2, 512),
        scatter=make_setup(8, 1664, 128, 8, 128),
        to_one=None,
        usd=1.49,
        best_usd=1.30,
    ),
    Workload(
        title="MobileNet",
        size_mib=13.37,
        fit=_fit(13.50, 9.57, -92.88),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=4000,
        most_samples=512,
        theirs=make_setup(3, 1920, 128, 1, 192),
        server=make_setup(2, 2304, 256, 2, 256),
        scatter=make_setup(4, 2048, 128, 4, 128),
        to_one=make_setup(4, 1920, 128, 1, 128),
        usd=0.38,
        best_usd=0.37,
    ),
    Workload(
        title="SqueezeNet",
        size_mib=4.71,
        fit=_fit(2.16, 22.60, -93.22),
        samples=_CIFAR[0],
        data_bytes=_CIFAR[1],
        limit_s=3000,
        most_samples=384,
        theirs=make_setup(2, 768, 128, 1, 201),
        server=make_setup(2, 768, 192, 2, 192),
        scatter=make_setup(2, 1792, 128, 2, 128),
        to_one=make_setup(3, 640, 128, 1, 128),
        usd=0.104,
        best_usd=0.098,
    ),
)
