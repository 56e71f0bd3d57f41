"""Where FuncPipe trains what: functions, store, prices, and its four models (sections 5.1, 5.7).

Rates, latency and prices are the catalogue's. What the paper does not print, and is assumed here:

    computing   by FLOPs and vCPUs, at Lambda's FLOPs a vCPU-second in the catalogue, which come of
                section 1: 8 samples of AmoebaNet-D36 take 6 s on 10 GB
    BASE_MIB    memory of a worker before it has a model (s0)
    beta = 1    computing is not slowed down by transfers
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.parts.papers.models import Layer, layers_of, merged, together
from benchmarks.parts.papers.rows import given, platform, store
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.planning.decline import left_of_bandwidth

MIB = 2**20
BASE_MIB = 300
MICRO_BATCH = 4
BATCHES = (16, 64, 256)
#: Section 5.1.
MEMORY_MIB = (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240)
#: At Alibaba's functions there is as much as 32 GB; which sizes were tried is not said.
ALIBABA_MEMORY_MIB = (1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768)
#: Layers that are left after merging, which the paper does not print.
GROUPS = 8

#: Table 1: MiB of activations a sample.
MODELS = {"resnet101": 198, "amoebanet_d18": 432, "amoebanet_d36": 697, "bert_large": 263}
#: As the paper writes them.
TITLES = {
    "resnet101": "ResNet101",
    "amoebanet_d18": "AmoebaNet-D18",
    "amoebanet_d36": "AmoebaNet-D36",
    "bert_large": "BERT-Large",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Functions, and their way to store and server.

    platform: of the catalogue. memory_mib: sizes to choose from. bytes_per_s: of a function, each
    way. store_bytes_per_s: of all together; infinite: not limited. server: a machine of the
    catalogue, for HybridPS; None: unpriced. server_bytes_per_s: its link, each way. decline: part
    of a function's bandwidth that is left, by the number of functions, as a `Scenario` has it.
    scaling: exponent with which computing speed grows with a function's vCPUs; 1: in proportion.
    The largest function keeps its speed.
    """

    platform: FunctionPlatform
    memory_mib: tuple[int, ...]
    bytes_per_s: float
    latency_s: float
    store_bytes_per_s: float = math.inf
    server: FunctionPlatform | None
    server_bytes_per_s: float
    decline: tuple[tuple[float, float], ...] = ()
    scaling: float = 1.0

    def rate(self, functions: int) -> float:
        """Bytes a second that each has, each way, when all of so many use the store."""
        own = self.bytes_per_s * left_of_bandwidth(self.decline, functions)
        return min(own, self.store_bytes_per_s / functions)

    def vcpus(self, memory_mib: float) -> float:
        """Of a function."""
        return self.platform.vcpus(memory_mib) or 1.0

    def flops(self, memory_mib: float) -> float:
        """A second, of a function."""
        per_vcpu = given(platform("aws-lambda").vcpu_flops_per_s, "FLOPs of aws-lambda")
        vcpus, most = self.vcpus(memory_mib), self.vcpus(max(self.memory_mib))
        return per_vcpu * vcpus * (vcpus / most) ** (self.scaling - 1)

    def usd_for_1_s(self, memory_mib: float) -> float:
        """Of a function."""
        prices = self.platform.prices
        assert prices is not None, "the papers' platforms have prices"
        return prices.usd_for_1_s(memory_mib, self.vcpus(memory_mib))

    @property
    def server_usd_for_1_s(self) -> float:
        """Of the parameter server."""
        if self.server is None or self.server.prices is None:
            return 0.0
        return self.server.prices.usd_for_1_s(0.0, 0.0)

    def faster(self, factor: float) -> Setting:
        """The same with so many times the bandwidth."""
        return replace(self, bytes_per_s=factor * self.bytes_per_s)


@cache
def at_lambda() -> Setting:
    """AWS Lambda and S3; the server is a c5.9xlarge."""
    functions, server = platform("aws-lambda"), platform("vm-c5-9xlarge")
    return Setting(
        platform=functions,
        memory_mib=MEMORY_MIB,
        bytes_per_s=given(functions.uplink_bytes_per_s, "rate of aws-lambda"),
        latency_s=given(store("s3").latency_s, "latency of s3"),
        server=server,
        server_bytes_per_s=given(server.uplink_bytes_per_s, "rate of vm-c5-9xlarge"),
    )


@cache
def at_alibaba() -> Setting:
    """Function Compute and OSS, whose 10 Gb/s all share; the server has as much.

    The catalogue has no r7.2xlarge, so the server costs nothing here, which flatters HybridPS; and
    no latency of OSS, so that of S3 is taken.
    """
    functions = platform("alibaba-fc")
    total = given(store("alibaba-oss").bytes_per_s, "rate of alibaba-oss")
    return Setting(
        platform=functions,
        memory_mib=ALIBABA_MEMORY_MIB,
        bytes_per_s=given(functions.uplink_bytes_per_s, "rate of alibaba-fc"),
        latency_s=at_lambda().latency_s,
        store_bytes_per_s=total,
        server=None,
        server_bytes_per_s=total,
    )


@cache
def layers(name: str) -> tuple[Layer, ...]:
    """A model as FuncPipe's table 1 counts it: BERT-Large's encoder alone; its activations."""
    ends = 1 if name == "bert_large" else 0
    ours = layers_of(name, first=ends, last=ends)
    scale = MODELS[name] * MIB / sum(one.activation_bytes for one in ours)
    scaled = [replace(one, activation_bytes=scale * one.activation_bytes) for one in ours]
    return merged(scaled, GROUPS)


def whole(name: str) -> Layer:
    """All of a model."""
    return together(layers(name))
