"""The bill: what each invocation took, under a price list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dayfly.catalogue.prices import FunctionPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """One invocation, as metered. Times in seconds; both are billed."""

    function: str
    attempt: int
    memory_mib: int
    init_s: float
    run_s: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a run cost under a price list: dollars, and what they are for."""

    price_list: str
    billed_s: float
    gb_s: float
    requests: int
    compute_usd: float
    requests_usd: float
    invocations: tuple[dict[str, Any], ...]

    @property
    def cost_usd(self) -> float:
        """The sum."""
        return self.compute_usd + self.requests_usd

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {"cost_usd": self.cost_usd, **asdict(self)}


def bill(used: Sequence[Used], prices: FunctionPrices) -> Bill:
    """Bill invocations: billed time x memory, and a price a request."""
    rows = []
    for one in used:
        billed_ms = prices.billed_ms(one.init_s + one.run_s)
        gb_s = billed_ms / 1000 * one.memory_mib / 1024
        usd = gb_s * prices.usd_per_gb_s + prices.usd_per_request
        rows.append({**asdict(one), "billed_ms": billed_ms, "gb_s": gb_s, "cost_usd": usd})
    gb_s = sum(row["gb_s"] for row in rows)
    return Bill(
        price_list=prices.name,
        billed_s=sum(row["billed_ms"] for row in rows) / 1000,
        gb_s=gb_s,
        requests=len(rows),
        compute_usd=gb_s * prices.usd_per_gb_s,
        requests_usd=len(rows) * prices.usd_per_request,
        invocations=tuple(rows),
    )
