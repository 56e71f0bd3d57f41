"""Money that a run may spend: a function is granted time that is paid for before it starts. Pure.

    budget   | ended functions: their bills | running: all of their grants | free |
    a grant  seconds that a function may live, at its price a second, and the price of its start
    its end  the grant goes, the bill comes, which is less: a function is killed at its grant's end

So whatever happens, bills never add up to more than the budget. All functions get grants that end
at the same time, when the budget would be spent if they all ran on; long before, each ends in order
by itself, as at the end of any lifetime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Seconds by which the end of a function may be noticed late; they are paid for with its grant.
LATE_S = 1.0
#: The shortest life that is worth a start, in seconds.
SHORTEST_S = 2.0


@dataclass(frozen=True, slots=True)
class Grant:
    """Time that is paid for.

    Args:
        lifetime_s: how long the function may live.
        usd: what that costs at most, with its start.
        usd_per_s: of the function.
        began_s: when it was given, by the clock of whoever asked.
    """

    lifetime_s: float
    usd: float
    usd_per_s: float
    began_s: float


@dataclass(slots=True)
class Allowance:
    """What one run may spend.

    Args:
        budget_usd: dollars, of all functions of the run.
        spent_usd: bills of functions that ended.
    """

    budget_usd: float
    spent_usd: float = 0.0
    _grants: dict[str, Grant] = field(default_factory=dict)

    @property
    def free_usd(self) -> float:
        """What is neither spent nor granted."""
        return self.budget_usd - self.spent_usd - sum(one.usd for one in self._grants.values())

    def lasts_s(self, now: float, usd_per_s: float) -> float:
        """How long the rest of the budget pays for all functions, in seconds.

        Args:
            now: seconds of a monotonic clock.
            usd_per_s: of all functions of the run together.
        """
        running_usd = sum(
            one.usd_per_s * max(0.0, now - one.began_s) for one in self._grants.values()
        )
        return max(0.0, self.budget_usd - self.spent_usd - running_usd) / usd_per_s

    def ask(
        self,
        function: str,
        *,
        usd_per_s: float,
        beside_usd: float,
        all_usd_per_s: float,
        longest_s: float,
        now: float,
    ) -> Grant | None:
        """Grants a function its life.

        Args:
            function: its name; it does not run.
            usd_per_s: its price.
            beside_usd: of its start: the request, and a cold start.
            all_usd_per_s: of all functions of the run together.
            longest_s: how long it lives at most anyway.
            now: seconds of a monotonic clock.

        Returns:
            The grant; None: what is left pays for no life that is worth a start.
        """
        paid_s = (self.free_usd - beside_usd) / usd_per_s
        # No longer than the others, or it would live on alone.
        lasts_s = self.lasts_s(now, all_usd_per_s) - beside_usd / usd_per_s
        lifetime_s = min(paid_s, lasts_s) - LATE_S
        if lifetime_s < SHORTEST_S:
            return None
        lifetime_s = min(lifetime_s, longest_s)
        usd = (lifetime_s + LATE_S) * usd_per_s + beside_usd
        grant = Grant(lifetime_s, usd, usd_per_s, now)
        self._grants[function] = grant
        return grant

    def settle(self, function: str, usd: float) -> None:
        """A function ended, and its bill is known.

        Args:
            function: its name.
            usd: of its bill.
        """
        self._grants.pop(function, None)
        self.spent_usd += usd
