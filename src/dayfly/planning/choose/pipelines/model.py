"""A step-time model as arrays: what a stage, and its side of a boundary, add to a step.

    k          option of a stage: its memory, and its replicas where these differ
    q, r       its first and last layer
    f, b       seconds of its passes of a micro-batch
    lag        (mu - 1) times what it takes a micro-batch: bottlenecks of a pipeline
    tail       seconds in which its replicas sum up

    t = sum f + sum of transfers forward + largest forward lag
      + max over stages k of [ sum b + transfers backward of k and what is above
                               + largest backward lag of k and what is above + tail of k ]

A boundary's transfer has a side in each of its stages, which depends on that stage's option alone:
up from the stage below, down to the stage above, and back. So a stage has all that its option
decides: itself and its side of the boundary above (`forward_s`, ...), and its side of the one below
(`below_...`), which lags it only from the next stage on. Layers that do not fit have lag inf.

`over_store` is FuncPipe's model (equations 7 to 11). Another has to fill the arrays.

Prices are in whole units (`Units`), so that tables can have a column for each. Most platforms'
prices are multiples of one price, such as that of the memory step; then units are exact. If not, or
if there would be too many columns, stages count fewer units than they cost: bounds get weaker, not
wrong. Labels have exact prices in either case.

The best plans known so far (`Incumbents`) say what still may improve on them:

    t_i, u_i   seconds and dollars of a step of a plan that is known
    C          dollars a second of a plan's functions: it costs C t
    tau(C)     least over i of max(t_i, u_i / C)

A plan of price C improves on them if it takes less than tau(C): otherwise some i is no slower, and
no dearer. tau falls as C rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.choose.arrays import Array, Ints, undominated
from dayfly.planning.choose.formulas import gamma_and_delta
from dayfly.planning.choose.pipelines.extra_memory import extra_bytes
from dayfly.planning.choose.pipelines.problem import StagesOverStore
from dayfly.wire.pipelines.orders import FILL_DRAIN, most_of_wave

#: The least price is so many units at most, when one unit is sought that divides all prices.
_MOST_OF_LEAST = 64
#: The least price in units where there is no such unit.
_OF_LEAST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Prices of options as whole numbers of units.

    Attributes:
        usd_per_s: of one unit.
        cost: units of each option, rounded down.
        price: units of each option, not rounded.
    """

    usd_per_s: float
    cost: Ints
    price: Array

    @classmethod
    def of(cls, usd_per_s: Array) -> Self:
        """Of options' prices, all above 0."""
        least = float(usd_per_s.min())
        for parts in range(1, _MOST_OF_LEAST + 1):
            price = usd_per_s / (least / parts)
            whole = np.rint(price)
            if np.all(np.abs(price - whole) <= 1e-9 * whole):
                return cls(usd_per_s=least / parts, cost=whole.astype(np.int64), price=whole)
        return cls._rounded(usd_per_s, least / _OF_LEAST)

    def coarser(self, times: int) -> Self:
        """So many units as one."""
        return self._rounded(self.price * self.usd_per_s, self.usd_per_s * times)

    @classmethod
    def _rounded(cls, usd_per_s: Array, unit: float) -> Self:
        price = usd_per_s / unit
        return cls(usd_per_s=unit, cost=np.floor(price).astype(np.int64), price=price)


P = TypeVar("P")

#: Stages of which a model never has more.
ANY_DEPTH = 10**9
#: More than any step takes; finite, so that differences are numbers.
_ENDLESS_S = 1e100
#: Improvements below this part of themselves are rounding.
ROUNDING = 1e-11


@dataclass(slots=True)
class Incumbents(Generic[P]):
    """The front of all that was added.

    Attributes:
        seconds: of each step, rising.
        usd: of each step, falling.
        plans: each plan; None: a rival, a plan from elsewhere that is compared with, but is no
            result of this search.
    """

    seconds: Array = field(default_factory=lambda: np.empty(0))
    usd: Array = field(default_factory=lambda: np.empty(0))
    plans: list[P | None] = field(default_factory=list)

    @classmethod
    def of(cls, rivals: Sequence[tuple[float, float]]) -> Self:
        """Returns rivals alone, by seconds and dollars of a step."""
        known = cls()
        known.add([(step_s, usd, None) for step_s, usd in rivals])
        return known

    @property
    def found(self) -> list[P]:
        """The plans that are no rivals."""
        return [plan for plan in self.plans if plan is not None]

    @property
    def takes(self) -> list[tuple[float, float]]:
        """Seconds and dollars of a step, of each known plan."""
        return list(zip(self.seconds.tolist(), self.usd.tolist(), strict=True))

    def add(self, found: Sequence[tuple[float, float, P | None]]) -> None:
        """Plans, by seconds and dollars; nothing changes if what is known is no worse than all."""
        found = [(t, u, plan) for t, u, plan in found if not self.has_no_worse(t, u)]
        if not found:
            return
        seconds = np.concatenate([self.seconds, [t for t, _, _ in found]])
        usd = np.concatenate([self.usd, [u for _, u, _ in found]])
        plans = [*self.plans, *(plan for _, _, plan in found)]
        keep = undominated(seconds, usd)
        self.seconds, self.usd = seconds[keep], usd[keep]
        self.plans = [plans[at] for at in keep.tolist()]

    def has_no_worse(self, seconds: float, usd: float) -> bool:
        """Returns whether some plan takes no longer, and costs no more."""
        at = int(self.seconds.searchsorted(seconds, side="right"))
        return at > 0 and bool(self.usd[at - 1] <= usd)

    def tau(self, usd_per_s: Array, within: float = 0.0) -> Array:
        """Of prices above 0; finite.

        Args:
            within: only what is better by this part counts.
        """
        if not len(self.seconds):
            return np.full(len(usd_per_s), _ENDLESS_S)
        at_price = self.usd[:, None] / usd_per_s
        least: Array = np.maximum(self.seconds[:, None], at_price).min(axis=0)
        return least * ((1 - ROUNDING) / (1 + within))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Arrays by last layer, first layer and option. Rows lie one after another in memory, which
    compiled loops ask for.

    Attributes:
        stages: (5, L, L, K): seconds forward, with the side of the boundary above; the same and
            backward; forward lag, inf where the layers do not fit; backward lag; tail.
        sides: (4, L, K), by first layer and option, of the boundary below: seconds forward; both
            ways; forward and backward lag.
        backward_s: (L, K), of one layer, without boundaries.
        usd_per_s: (K,), of a stage's functions together.
        uses: (3, K), how many these are, thousandths of their vCPUs, and whether a stage counts
            against `deepest`, 1 or 0.
        deepest: (L, L, K), stages from this one to the last, both included, with which it fits at
            most; 0: it never does.
    """

    stages: Array
    sides: Array
    backward_s: Array
    usd_per_s: Array
    uses: Ints
    deepest: Ints

    @property
    def layers(self) -> int:
        """L."""
        return len(self.backward_s)

    @property
    def lag_f_s(self) -> Array:
        """(L, L, K), forward lags; inf where the layers do not fit."""
        lags: Array = self.stages[2]
        return lags

    @property
    def below_lag_f_s(self) -> Array:
        """(L, K), forward lags of sides below."""
        lags: Array = self.sides[2]
        return lags

    @property
    def tail_s(self) -> Array:
        """(L, L, K), in which replicas sum up."""
        tails: Array = self.stages[4]
        return tails


def over_store(
    problem: StagesOverStore,
    choices: Sequence[tuple[int, int]],
    *,
    pipelined: bool,
    functions: int | None = None,
    most: int | None = None,
) -> StepModel:
    """FuncPipe's model.

    Args:
        problem: of the cuts.
        choices: memory option and replicas of each k.
        pipelined: how replicas sum up.
        functions: of which the bandwidth is, as of `StagesOverStore.bytes_per_s`.
        most: replicas that a stage has at most, by which others hold more micro-batches of a wave;
            None: all stages have as many.
    """
    p, count = problem, len(problem.layers)
    s, a, o, g = (
        np.array([getattr(layer, f"{name}_bytes") for layer in p.layers])
        for name in ("parameter", "activation", "output", "gradient")
    )
    options = [p.options[j] for j, _ in choices]
    chosen, replicas = np.array(choices, dtype=np.int64).T
    rate = np.array([p.bytes_per_s(p.options[j], d, functions) for j, d in choices])
    f = p.beta * np.array([option.forward_s for option in options]).T  # (L, K)
    b = p.beta * np.array([option.backward_s for option in options]).T
    mu = p.micro_batches // replicas
    sizes = _sums(s[:, None])
    copies = np.where(replicas > 1, p.copies[1], p.copies[0])
    base = np.array([option.base_bytes for option in options])
    room = np.array([option.memory_bytes for option in options])
    waves = np.array([most_of_wave(most or d, d) for _, d in choices])
    last, first = np.ogrid[:count, :count]
    sent, more = extra_bytes(p.extra, last[..., None], first[..., None], chosen, mu, replicas)
    each, beside = _sums(a[:, None]) + sent, copies * sizes + base + more
    deepest = deepest_of(p.schedule, mu, each, beside, room, waves)
    deepest[~np.tri(count, dtype=bool)] = 0  # q <= r
    fits = deepest > stages_after(deepest)[:, None, None]
    turns = [
        gamma_and_delta(int(d), pipelined=pipelined) if d > 1 else (0.0, 0.0) for d in replicas
    ]
    gamma, delta = np.array(turns).T
    # Sides of the boundary behind each layer; none behind the last, or before the first.
    inner = (np.arange(count) < count - 1)[:, None]
    up = np.where(inner, o[:, None] / rate + p.latency_s, 0.0)
    back = np.where(inner, np.append(g[1:], 0.0)[:, None] / rate + p.latency_s, 0.0)
    down = np.concatenate([np.zeros_like(rate)[None], o[:-1, None] / rate + p.latency_s])
    back_up = np.concatenate([np.zeros_like(rate)[None], g[1:, None] / rate + p.latency_s])
    forward, backward, more = _sums(f), _sums(b), (mu - 1).astype(float)
    return StepModel(
        stages=np.stack(
            [
                forward + up[:, None],
                forward + backward + (up + back)[:, None],
                np.where(fits, more * np.maximum(forward, up[:, None]), np.inf),
                more * np.maximum(backward, back[:, None]),
                gamma * sizes / rate + delta * p.latency_s,
            ]
        ),
        sides=np.stack([down, down + back_up, more * down, more * back_up]),
        backward_s=b,
        usd_per_s=replicas * np.array([option.usd_per_s for option in options]),
        uses=np.stack(
            [
                replicas,
                replicas * thousandths([one.vcpus for one in options]),
                np.full_like(replicas, p.schedule != FILL_DRAIN),
            ]
        ),
        deepest=np.ascontiguousarray(deepest),
    )


def deepest_of(
    schedule: str, mu: Ints, each: Array, beside: Array, room: Array, waves: Ints | int = 1
) -> Ints:
    """Returns how many stages there may be from one to the last, for it to fit; 0: it never does.

    Args:
        schedule: of `wire.pipelines.orders`.
        mu: micro-batches of a step and a replica.
        each: bytes of a micro-batch's activations.
        beside: bytes that are held besides.
        room: bytes that there are.
        waves: micro-batches of a wave that a function has at most.
    """
    whole = np.where(mu * each + beside <= room, ANY_DEPTH, 0)
    if schedule == FILL_DRAIN:
        return whole
    many = np.floor(np.divide(room - beside, each, out=np.zeros(whole.shape), where=each > 0))
    many = np.clip(many, 0, mu)
    # The quotient may be off by one of what the sum says.
    many += (many < mu) & ((many + 1) * each + beside <= room)
    many -= (many > 0) & (many * each + beside > room)
    deepest: Ints = np.where(whole > 0, whole, many.astype(np.int64) // waves)
    return deepest


def stages_after(deepest: Ints) -> Ints:
    """Returns (L,), the stages that the layers behind each layer make at least.

    Args:
        deepest: (L, L, K), as of `StepModel`.
    """
    count = len(deepest)
    most = deepest.max(axis=2)  # by last and first layer
    least = np.zeros(count + 1, dtype=np.int64)  # from each layer on
    for q in reversed(range(count)):
        behind = least[q + 1 :]
        least[q] = 1 + behind[most[q:, q] > behind].min(initial=ANY_DEPTH)
    return least[1:]


def thousandths(vcpus: Sequence[float]) -> Ints:
    """To the nearest: sums of numbers as 0.1 are what they should be."""
    rounded: Ints = np.rint(1000 * np.asarray(vcpus)).astype(np.int64)
    return rounded


def _sums(values: Array) -> Array:
    """(L, K) of layers -> (L, L, K): of layers q to r, by r and q; 0 where q > r."""
    before = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    sums: NDArray[np.float64] = np.maximum(before[1:, None] - before[None, :-1], 0.0)
    return sums
