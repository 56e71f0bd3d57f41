"""Prices of a platform's functions: the rows that give them, and the price list made of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from dayfly.errors import RequestError

_HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFigures:
    """The rows of a platform's prices; at most one of those that price the same thing.

    Args:
        usd_per_gb_s: of a GB of memory.
        usd_per_gb_hour: of a GB of memory.
        usd_per_vcpu_s: of a vCPU.
        usd_per_vcpu_hour: of a vCPU.
        usd_per_gpu_hour: of a GPU.
        usd_per_machine_hour: of a machine that is rented whole.
        usd_per_spot_hour: of the same as a spot machine, which may be taken away.
        usd_per_request: of an invocation.
        usd_per_cu: of a compute unit, as Alibaba bills.
        cu_per_gb_s: compute units of a GB of memory.
        cu_per_vcpu_s: compute units of a vCPU.
        cu_per_gpu_gb_s: compute units of a GB of a GPU's memory.
        cu_per_request: compute units of an invocation.
        billing_step_ms: billed time is rounded up to it.
        billing_min_ms: least time billed.
    """

    usd_per_gb_s: float | None = None
    usd_per_gb_hour: float | None = None
    usd_per_vcpu_s: float | None = None
    usd_per_vcpu_hour: float | None = None
    usd_per_gpu_hour: float | None = None
    usd_per_machine_hour: float | None = None
    usd_per_spot_hour: float | None = None
    usd_per_request: float | None = None
    usd_per_cu: float | None = None
    cu_per_gb_s: float | None = None
    cu_per_vcpu_s: float | None = None
    cu_per_gpu_gb_s: float | None = None
    cu_per_request: float | None = None
    billing_step_ms: int | None = None
    billing_min_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrices:
    """A price list of functions, in USD.

    Attributes:
        usd_per_gb_s, usd_per_vcpu_s: of each GB of memory, and of each vCPU.
        usd_per_s: of the whole; usd_per_gpu_s: of a function's GPUs, if they are billed apart.
        usd_per_request: of an invocation.
        billing_step_ms: billed time is rounded up to its multiples; at least `billing_min_ms`.
    """

    usd_per_gb_s: float = 0.0
    usd_per_vcpu_s: float = 0.0
    usd_per_s: float = 0.0
    usd_per_gpu_s: float = 0.0
    usd_per_request: float = 0.0
    billing_step_ms: int = 1
    billing_min_ms: int = 0

    def billed_ms(self, seconds: float) -> int:
        """Milliseconds billed for an invocation of this length, initialisation included."""
        # A float is a little off: a billionth of a second must not cost a step.
        used_ms = max(round(seconds * 1000, 6), self.billing_min_ms)
        return max(1, math.ceil(used_ms / self.billing_step_ms)) * self.billing_step_ms

    def usd_for_1_s(self, memory_mib: float, vcpus: float, gpu_share: float = 1.0) -> float:
        """Returns the dollars a second of a function with these resources."""
        memory_usd = self.usd_per_gb_s * memory_mib / 1024
        whole_usd = self.usd_per_s + self.usd_per_gpu_s * gpu_share
        return memory_usd + self.usd_per_vcpu_s * vcpus + whole_usd

    @classmethod
    def of(
        cls, name: str, figures: PriceFigures, gpus: int | None, gpu_memory_mib: int | None
    ) -> Self | None:
        """The price list of a platform; None if no figure prices its time.

        Args:
            gpus, gpu_memory_mib: what each function has.

        Raises:
            RequestError: if two figures price the same thing, or compute units have no price.
        """
        f = figures
        cu_usd = f.usd_per_cu
        units = (f.cu_per_gb_s, f.cu_per_vcpu_s, f.cu_per_gpu_gb_s, f.cu_per_request)
        if cu_usd is None and any(unit is not None for unit in units):
            raise RequestError(f"{name} has prices in compute units, but no usd_per_cu: add it")

        def one(what: str, usd: float | None, hour_usd: float | None, units: float | None) -> float:
            ways = [
                usd,
                None if hour_usd is None else hour_usd / _HOUR_S,
                None if units is None or cu_usd is None else units * cu_usd,
            ]
            given = [way for way in ways if way is not None]
            if len(given) > 1:
                raise RequestError(
                    f"{name} prices {what} in two ways: give one of a second, an hour, and "
                    "compute units"
                )
            return given[0] if given else 0.0

        machine = one("a machine", None, f.usd_per_machine_hour, None)
        gpu_gb = (gpu_memory_mib or 0) / 1024
        gpu_units = None if f.cu_per_gpu_gb_s is None else f.cu_per_gpu_gb_s * gpu_gb
        gpu = one("a GPU", None, f.usd_per_gpu_hour, gpu_units)
        prices = cls(
            usd_per_gb_s=one("memory", f.usd_per_gb_s, f.usd_per_gb_hour, f.cu_per_gb_s),
            usd_per_vcpu_s=one("vCPUs", f.usd_per_vcpu_s, f.usd_per_vcpu_hour, f.cu_per_vcpu_s),
            usd_per_s=machine,
            usd_per_gpu_s=gpu * (gpus or 0),
            usd_per_request=one("requests", f.usd_per_request, None, f.cu_per_request),
            billing_step_ms=f.billing_step_ms or 1,
            billing_min_ms=f.billing_min_ms or 0,
        )
        by_size = prices.usd_per_gb_s or prices.usd_per_vcpu_s
        return prices if by_size or prices.usd_per_s or prices.usd_per_gpu_s else None
