"""Lambda's functions on a machine of few cores: slower by one factor, but otherwise alike.

    of a function     at Lambda                 here
    memory            m MiB                     m MiB
    CPU               m / 1769 vCPUs            f m / 1769 cores
    each way          70 MB/s                   f 70 MB/s
    latency           40 ms                     40 / f ms

So all that takes time takes 1 / f of what it would take there, computing, sending and waiting
alike, and 1 / f of the dollars: which form of training is faster or cheaper, and by how much, is as
there. f is the greatest with which all functions at once have no more than so many cores, 1 at
most. A core counts as a vCPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.wire.virtual import Link

PLATFORM, STORE = "aws-lambda", "s3"
#: What FuncPipe's baselines have as a parameter server, and a machine of about the size that is
#: needed here.
SERVERS = ("vm-c5-9xlarge", "vm-m5-large")
#: Of all functions that run at once, so that the coordinator and a server have a core left.
MOST_CORES = 1.5
_STEPS = 1000  # a factor is a multiple of 1 / _STEPS: short, and the same wherever it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Lambda's caps times a factor. vcpu_mib: memory that comes with a vCPU there."""

    factor: float
    vcpu_mib: float
    bytes_per_s: float
    latency_s: float

    @property
    def mb_per_s(self) -> float:
        """Each way, here."""
        return self.factor * self.bytes_per_s / 1e6

    @property
    def latency_ms(self) -> float:
        """Of a request, here."""
        return 1e3 * self.latency_s / self.factor

    def cores(self, memory_mib: int) -> float:
        """Of a function, here."""
        return self.factor * memory_mib / self.vcpu_mib

    def link(self, in_flight: int) -> Link:
        """A function's way to the store in virtual time, here."""
        rate = self.factor * self.bytes_per_s
        return Link(
            up_bytes_per_s=rate,
            down_bytes_per_s=rate,
            latency_s=self.latency_s / self.factor,
            in_flight=in_flight,
        )

    def write_catalogue(self, directory: Path) -> None:
        """A catalogue with these caps in place of Lambda's, for `catalogue=`; the prices stay."""
        rows = {
            "mib_per_vcpu": self.vcpu_mib / self.factor,
            "uplink_bytes_per_s": self.factor * self.bytes_per_s,
            "downlink_bytes_per_s": self.factor * self.bytes_per_s,
        }
        source = f'source = "the built-in row, {self.factor:g} times as fast"\nas_of = "2026-11"'
        file = directory / "platforms" / f"{PLATFORM}.toml"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(f"[{k}]\nvalue = {v}\n{source}\n" for k, v in rows.items()))

    def settings(self, catalogue: Path) -> dict[str, Any]:
        """What `dayfly.train` needs, to impose them. catalogue: see `write_catalogue`."""
        return {
            "imitate": PLATFORM,
            "catalogue": str(catalogue),
            "latency_ms": self.latency_ms,
        }


def scale_for(memory_mib: int) -> Scale:
    """For functions that together have at most so much memory.

    Raises RequestError if the catalogue lacks what is needed.
    """
    known = Catalogue()
    platform, store = known.platform(PLATFORM), known.store(STORE)
    rate = platform.uplink_bytes_per_s
    vcpu_mib, latency_s = platform.mib_per_vcpu, store.latency_s
    if vcpu_mib is None or rate is None or latency_s is None:
        raise RequestError(f"the catalogue lacks CPU, rate or latency of {PLATFORM} and {STORE}")
    factor = int(_STEPS * MOST_CORES * vcpu_mib / memory_mib) / _STEPS
    return Scale(factor=min(1.0, factor), vcpu_mib=vcpu_mib, bytes_per_s=rate, latency_s=latency_s)


def function_usd_for_1_s(memory_mib: int) -> float:
    """Dollars a second of one of Lambda's functions."""
    prices = Catalogue().platform(PLATFORM).prices
    assert prices is not None, "Lambda has prices"
    return prices.usd_for_1_s(memory_mib, 0.0)


def server_usd_for_1_s(name: str) -> float:
    """Dollars a second of a machine."""
    machine = Catalogue().platform(name)
    assert machine.prices is not None, f"{name} has prices"
    return machine.prices.usd_for_1_s(machine.memory_max_mib or 0, machine.machine_vcpus or 0.0)


def requests_usd(puts: int, gets: int) -> float:
    """Dollars of requests to the store."""
    store = Catalogue().store(STORE)
    store.check_priced()
    return store.puts_usd(puts, 0) + store.gets_usd(gets, 0)
