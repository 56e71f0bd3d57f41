"""What functions cost, from the catalogue's data files: each figure with its source and date."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from importlib import resources

from dayfly.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrices:
    """One platform's price list. A GB of memory is 1024 MiB.

    usd_per_gb_s, usd_per_request: USD. billing_step_ms: billed time is rounded up to it.
    mib_per_vcpu: memory, in MiB, that comes with one vCPU.
    """

    name: str
    usd_per_gb_s: float
    usd_per_request: float
    billing_step_ms: int
    mib_per_vcpu: int

    def billed_ms(self, seconds: float) -> int:
        """Milliseconds billed for an invocation of this length, initialisation included."""
        steps = max(1, math.ceil(round(seconds * 1000, 6) / self.billing_step_ms))
        return steps * self.billing_step_ms


def function_prices(name: str) -> FunctionPrices:
    """The price list of a platform. Raises RequestError if the catalogue has none."""
    catalogue = resources.files(__package__)
    file = catalogue / f"{name}.toml"
    if not name.replace("-", "").isalnum() or not file.is_file():
        known = sorted(
            f.name.removesuffix(".toml") for f in catalogue.iterdir() if ".toml" in f.name
        )
        raise RequestError(
            f"the catalogue has no price list {name!r}: give one of {', '.join(known)}"
        )
    tree = tomllib.loads(file.read_text())
    figures = {key: row["value"] for key, row in tree.items() if isinstance(row, dict)}
    return FunctionPrices(name=tree["name"], **figures)
