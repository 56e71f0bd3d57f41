"""The money and the time that a run may take, over all its lives: `--max-cost` and `--max-time`.

start of a function   asks for a grant: time that is paid for; its lifetime ends with it
each look             functions that ended: their bills in place of their grants
                      the run stops once the rest pays for a stop in order, and no more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Self

from dayfly.catalogue.metering import MeteredInvocation
from dayfly.errors import RequestError
from dayfly.life.allowance import LATE_S, SHORTEST_S, Allowance
from dayfly.life.generation import STOP_GRACE_S
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.result import MAX_COST, MAX_TIME
from dayfly.runs.setup import Setup
from dayfly.runs.tariffs import billed
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan

if TYPE_CHECKING:
    from dayfly.runs.record import RunRecord

#: Share of a budget that is kept for a stop in order, at most; and steps that it may take.
_MOST_SHARE, _STEPS = 0.25, 4


class Caps:
    """What a run may take, and what it has taken.

    Args:
        setup: of the run when it begins.
        before_s: total time of the lives before.
        used: invocations of the lives before.
        concludes: whether a cap that lets nothing more begin ends the run, with what it has, in
            place of being refused: its last coordinator was killed before it could.

    Attributes:
        used: invocations of all lives, in order of their ends; may be replaced by a list that
            begins alike and grows.
        reached: why the run is to stop: a cap that is reached; None: it goes on.

    Raises:
        RequestError: a cap that lets nothing begin.
    """

    def __init__(
        self,
        setup: Setup,
        before_s: float,
        used: Sequence[MeteredInvocation],
        *,
        concludes: bool = False,
    ) -> None:
        settings = setup.settings
        self.reached: str | None = None
        self.used, self._settled = used, 0
        self._before_s = before_s
        self._max_time_s = settings.max_time_s
        if self._max_time_s is not None and before_s >= self._max_time_s:
            if not concludes:
                raise RequestError(
                    f"--max-time {self._max_time_s:g} s: the run has taken {before_s:.1f} s "
                    "already: give a higher one"
                )
            self.reached = MAX_TIME
        self._allowance: Allowance | None = None
        if settings.max_cost_usd is not None:
            self._allowance = Allowance(settings.max_cost_usd)
            self._settle(setup)
            if (refusal := self._refusal(setup, settings.max_cost_usd)) is not None:
                if not concludes:
                    raise RequestError(refusal)
                self.reached = MAX_COST
            self._first_s = self._allowance.lasts_s(0.0, _usd_per_s(setup))
        self._concluded = self.reached is not None

    @classmethod
    def of(
        cls,
        setup: Setup,
        record: RunRecord,
        before: RunRecord | None,
        used: Sequence[MeteredInvocation],
    ) -> Self:
        """Returns those of a run that begins, or goes on after a life.

        Args:
            setup: as it is now.
            record: as it is now.
            before: of that life; None: the run begins.
            used: invocations of all lives before.

        Raises:
            RequestError: a cap that lets nothing begin.
        """
        killed = before is not None and before.status == "running"
        same = before is not None and _given(before) == _given(record)
        return cls(setup, record.wall_s, used, concludes=killed and same)

    def look(self, setup: Setup, total_s: float, step_s: float, now: float) -> str | None:
        """Returns why the run is to stop, if it is.

        Args:
            setup: of the generation.
            total_s: total time of this life so far.
            step_s: median time of a step; 0: none was taken.
            now: seconds of a monotonic clock.
        """
        if self._max_time_s is not None and self._before_s + total_s >= self._max_time_s:
            self.reached = self.reached or MAX_TIME
        if self._allowance is not None:
            self._settle(setup)
            # For workers to hear of the stop, to end their step, and to write a checkpoint.
            kept_s = min(_MOST_SHARE * self._first_s, STOP_GRACE_S)
            kept_s += setup.pace.look_s + _STEPS * step_s + LATE_S
            if self._allowance.lasts_s(now, _usd_per_s(setup)) < kept_s:
                self.reached = self.reached or MAX_COST
        return self.reached

    @property
    def limit_cost(self) -> bool:
        """Whether there is a budget: each function's life is paid for before it starts."""
        return self._allowance is not None

    def granted(
        self, setup: Setup, plan: GenerationPlan, rank: int, now: float
    ) -> FunctionSpec | None:
        """Returns what a worker's function gets, with a lifetime that is paid for.

        None: what is left pays for none that is worth a start, and the run is to stop.

        Args:
            setup: of the generation.
            plan: of the generation.
            rank: of the worker.
            now: seconds of a monotonic clock.
        """
        spec = plan.layout[rank].spec
        if self._concluded:
            return None
        if self._allowance is None:
            return spec
        self._settle(setup)
        usd_per_s, beside_usd = _price(setup, spec)
        grant = self._allowance.ask(
            plan.function(rank),
            usd_per_s=usd_per_s,
            beside_usd=beside_usd,
            all_usd_per_s=_usd_per_s(setup),
            longest_s=inf if spec.lifetime_s is None else spec.lifetime_s,
            now=now,
        )
        if grant is None:
            self.reached = self.reached or MAX_COST
            return None
        return replace(spec, lifetime_s=grant.lifetime_s)

    def _settle(self, setup: Setup) -> None:
        """Take the bills of what ended since."""
        assert self._allowance is not None
        for one in self.used[self._settled :]:
            self._allowance.settle(one.function, billed([one], setup.settings).cost_usd)
        self._settled = len(self.used)

    def _refusal(self, setup: Setup, budget_usd: float) -> str | None:
        """Why the budget pays for no start of all functions; None: it does."""
        assert self._allowance is not None
        usd_per_s, spent_usd = _usd_per_s(setup), self._allowance.spent_usd
        beside_s = max(beside / usd for usd, beside in (_price(setup, one) for one in setup.specs))
        least_usd = (SHORTEST_S + LATE_S + beside_s) / (1 - _MOST_SHARE) * usd_per_s
        if self._allowance.free_usd >= least_usd:
            return None
        spent = f", and it has spent ${spent_usd:.6f}" if spent_usd else ""
        return (
            f"--max-cost {budget_usd:g}: {setup.settings.workers} functions cost "
            f"${usd_per_s:.3g} a second under the prices of {setup.priced_as.name}{spent}: "
            f"give at least {spent_usd + least_usd:.6f}"
        )


def _given(record: RunRecord) -> tuple[float | None, float | None]:
    return record.settings.max_cost_usd, record.settings.max_time_s


def _price(setup: Setup, spec: FunctionSpec) -> tuple[float, float]:
    """Dollars a second of a function, and of its start: request, cold start, rounding."""
    priced_as, vcpus = setup.priced_as, vcpus_sold(setup.settings)
    usd_per_s = priced_as.usd_per_s(spec.memory_mib, spec.gpu_share, vcpus)
    prices = priced_as.prices
    assert prices is not None, "usd_per_s has refused it"
    rounding_s = (prices.billed_ms(0.0) + prices.billing_step_ms) / 1000
    return usd_per_s, (spec.cold_start_s + rounding_s) * usd_per_s + prices.usd_per_request


def _usd_per_s(setup: Setup) -> float:
    """Of all functions of a generation."""
    return sum(_price(setup, spec)[0] for spec in setup.specs)
