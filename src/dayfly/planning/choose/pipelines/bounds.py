"""What any plan takes at least, and plans that take little more: tables over prefixes.

For the first q layers, whose stages cost c at most and have a forward lag of D at most, and a
suffix of the rest (`labels`), the least of

    FR   sum of f and transfers forward
    KB   largest over its stages k of [ FR below k + b + tail of k + f of k, with transfers;
         all of what is above k, forward and backward ]: what a prefix adds to h + Db
    K    the same with the backward lag of k itself: what it adds to h

    FR(q) = min FR(p) + f                         over stages p to q-1, with transfers
    K(q)  = min max{ K(p) + f + b, FR(p) + f + b + lag + tail }           KB without the lag

so that psi + FR, h + Db + KB and h + K, each with the largest forward lag, are never more than the
step's time. Tail and lag are bounded jointly: apart, bounds are weaker by a tenth and more.

D matters: the less it is, the more stages there are, and the more the rest takes; the more it is,
the longer the lag itself. So plans go in classes by their largest forward lag, D_(v-1) to D_v, each
with tables of its own. A case begins with few classes, and splits those that may still have better
plans until they are narrow. By the tables of a class, `kernels.open_stages` tells which stages its
better plans may have; the parts of that class leave the other stages out, so that their tables are
faster to make and bound more tightly.

Replicas sum their gradients by one of two collectives, the same one in all stages of a plan. One
case covers both: its bounds take the faster collective for each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dayfly.planning.choose.arrays import Array, Bools, Ints
from dayfly.planning.choose.pipelines.compiled import SearchLoops
from dayfly.planning.choose.pipelines.model import Incumbents, StepModel, Units

#: Classes of forward lags that a case begins with, and about how many it has at most.
_COARSE, _MOST = 5, 64
#: Parts that a class is split into at a time, at most.
_PARTS = 4
#: Less than any step takes that takes time.
_NO_TIME_S = 1e-100
#: Prices of labels go up to so many times a case's columns; dearer ones count as the dearest.
DEARER = 4


@dataclass(frozen=True, slots=True)
class Found:
    """A plan of a case.

    Attributes:
        case: its number.
        path: (stages, 2) of last layer and option, from the last stage to the first.
        summed: index of the collective by which its replicas sum, in the case's `models`.
    """

    case: int
    path: Ints
    summed: int


Known = Incumbents[Found]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagClass:
    """Plans whose largest forward lag is more than `low`, and `high` at most.

    Attributes:
        opened: (L, L, K), whether a better plan may have the stage.
        tables: (3, L + 1, columns), FR, KB and K of these.
    """

    low: float
    high: float
    opened: Bools
    tables: Array

    @property
    def least_s(self) -> Array:
        """Least seconds of a step, by price."""
        least: Array = self.tables[2, -1] + self.low
        return least


@dataclass(slots=True, kw_only=True)
class Case:
    """A model, and what is known of its plans so far.

    Attributes:
        number: of the first look.
        model: a lower bound of each plan's step, by the faster collective for each stage.
        models: one for each collective by which replicas may sum, by its index. A plan takes what
            the faster of these models says.
        loops: compiled or not.
        fits: (L, L, K), stages that there may be.
        tails: (models, L, L, K), of each of them.
        units, columns: of tables.
        fewest: (2, L + 1), functions and vCPUs of a prefix at least.
        most: (2,), of a plan.
        classes: that may have better plans, by rising lags.
        looked_at: paths of plans that tables led to.
        crowded: whether a search met labels that use too many functions, vCPUs or stages.
        torn: whether a search met plans for which `model` is less than all of `models`, as their
            stages have different faster collectives.
    """

    number: int
    model: StepModel
    models: dict[int, StepModel]
    loops: SearchLoops
    fits: Bools
    tails: Array
    units: Units
    columns: int
    fewest: Ints
    most: Ints
    classes: list[LagClass] = field(default_factory=list)
    looked_at: set[bytes] = field(default_factory=set)
    crowded: bool = False
    torn: bool = False
    _tau: tuple[Array, tuple[float, ...], Array] | None = None

    @property
    def lags(self) -> Array:
        """(V, 2), of the classes: more than, and at most."""
        return np.array([(one.low, one.high) for one in self.classes]).reshape(-1, 2)

    @property
    def bounds(self) -> Array:
        """(V, 3, L + 1, columns), tables of the classes."""
        return np.array([one.tables for one in self.classes])

    def tau(self, known: Known, within: float = 0.0, *, times: int = 1) -> Array:
        """By whole units, one of each column, or so many times as many; no plan costs less than
        its cheapest stage."""
        last, by = self._tau, (within, self.columns, self.units.usd_per_s)
        if last is None or last[0] is not known.seconds or last[1] != by:
            usd_per_s = np.arange(DEARER * self.columns) * self.units.usd_per_s
            tau = known.tau(np.maximum(usd_per_s, self.model.usd_per_s.min()), within)
            self._tau = last = known.seconds, by, tau
        return last[2][: times * self.columns]

    def gap(self, known: Known) -> float:
        """By what part a plan of this case may still be better than what is known; 0: none."""
        tau = self.tau(known)
        parts = [(tau / np.maximum(one.least_s, _NO_TIME_S)).max() for one in self.classes]
        return max([0.0, *(float(part) - 1 for part in parts)])

    def add(self, known: Known, paths: Iterable[Ints]) -> None:
        """Adds those of these plans that there may be."""
        found = map(self.taken, paths)
        known.add([taken for taken in found if taken[0] < np.inf])

    def taken(self, path: Ints) -> tuple[float, float, Found]:
        """Returns seconds and dollars of a plan's step, inf if there is no such plan, and it."""
        each = self.seconds(path).tolist()
        step_s, summed = min(zip(each, self.models, strict=True))
        usd = step_s * float(self.model.usd_per_s[path[:, 1]].sum())
        return step_s, usd, Found(self.number, path, summed)

    def seconds(self, path: Ints) -> Array:
        """Returns what a plan's step takes by each of the models; inf: there is no such plan."""
        m = self.model
        taken: Array = self.loops.weigh(
            path, m.stages, m.sides, self.fits, self.tails, m.uses, m.deepest, self.most
        )
        return taken

    def close(self, known: Known) -> None:
        """Lets go of classes without better plans."""
        tau = self.tau(known)
        self.classes = [one for one in self.classes if (one.least_s < tau).any()]

    def apart(self) -> list[Case]:
        """Returns a case for each collective alone; bounds of all plans are bounds of its plans."""
        return [
            replace(self, model=model, models={way: model}, tails=model.tail_s[None], torn=False)
            for way, model in self.models.items()
        ]


def first_look(
    number: int, models: Sequence[StepModel], loops: SearchLoops, known: Known, most: Ints
) -> Case | None:
    """Makes a case, with bounds that hold at any price of a second.

    Tables with a column for each price follow in `by_price`.

    Args:
        number: of the case.
        models: what a step takes, by each collective by which replicas may sum.
        loops: compiled or not.
        known: gets a few plans.
        most: (2,), functions, and thousandths of vCPUs, that a plan may have.

    Returns:
        The case; None if nothing fits, or only with more than `most`.
    """
    model, tails = models[0], np.array([one.tail_s for one in models])
    if len(models) > 1:
        stages = model.stages.copy()
        stages[4] = tails.min(axis=0)
        model = replace(model, stages=stages)
    fewest = fewest_used(model)
    if (fewest[:, -1] > most).any():
        return None
    case = Case(
        number=number,
        model=model,
        models=dict(enumerate(models)),
        loops=loops,
        fits=np.isfinite(model.lag_f_s),
        tails=tails,
        units=Units.of(model.usd_per_s),
        columns=1,
        fewest=fewest,
        most=most,
    )
    of_fewest = [_of_fewest(model, model.uses[i], fewest[i]) for i in range(2)]
    case.add(known, of_fewest)
    case.classes = [
        _look(case, known, low, high, case.fits) for low, high in _coarse(model).tolist()
    ]
    return case


def by_price(case: Case, known: Known) -> None:
    """Makes the tables of a case that was looked at first with a column for each price.

    Args:
        case: gets them.
        known: gets plans that they lead to.
    """
    case.close(known)
    cost, dearest = case.units.cost, 1
    for one in case.classes:  # of what takes least, at any price
        (path,) = _led_to(case, one, np.array([0]))
        dearest = max(dearest, int(cost[path[:, 1]].sum()))
    most = case.loops.columns - 2
    if dearest > most:
        case.units = case.units.coarser(-(-dearest // most))
        dearest = most
    case.columns = dearest + 2
    classes = case.classes
    case.classes = [_look(case, known, one.low, one.high, one.opened) for one in classes]
    case.close(known)
    case.classes = [_narrowed(case, known, one) for one in case.classes]


def refine(case: Case, known: Known, is_late: Callable[[], bool]) -> None:
    """Takes classes apart that are wide beside the steps of their plans, for tighter bounds.

    Args:
        case: gets narrower ones.
        known: gets plans that they lead to.
        is_late: whether there is no time for more.
    """
    waiting = case.classes[::-1]
    done: list[LagClass] = []
    while waiting:
        one = waiting.pop()
        tau = case.tau(known)
        longest = tau[one.least_s < tau]
        if not len(longest):
            continue
        wide = (one.high - one.low) / (case.loops.wide * longest.min())
        if wide <= 1 or len(waiting) + len(done) >= _MOST or is_late():
            done.append(one)
            continue
        ends = np.linspace(one.low, one.high, min(_PARTS, int(np.ceil(wide))) + 1)
        for low, high in list(pairwise(ends.tolist()))[::-1]:
            part = _look(case, known, low, high, one.opened)
            if (part.least_s < case.tau(known)).any():
                waiting.append(_narrowed(case, known, part))
    case.classes = sorted(done, key=lambda one: one.low)
    case.close(known)


def _look(case: Case, known: Known, low: float, high: float, opened: Bools) -> LagClass:
    """Makes the tables of a class, and adds plans that they lead to."""
    m, loops = case.model, case.loops
    tables = loops.tables(m.stages, m.sides, opened, case.units.cost, high, case.columns)
    one = LagClass(low=low, high=high, opened=opened, tables=tables)
    k_ = tables[2, -1]
    falls = np.ones(len(k_), dtype=bool)
    falls[1:] = k_[1:] < k_[:-1]
    columns = np.flatnonzero(falls & (one.least_s < case.tau(known)))
    if len(columns) > loops.descents:
        columns = columns[np.linspace(0, len(columns) - 1, loops.descents).astype(int)]
    # Neighbouring columns and classes mostly lead to the same plans.
    new = {path.tobytes(): path for path in _led_to(case, one, columns) if len(path)}
    case.add(known, [path for key, path in new.items() if key not in case.looked_at])
    case.looked_at.update(new)
    return one


def _led_to(case: Case, one: LagClass, columns: Ints) -> list[Ints]:
    """Plans that the tables of a class lead to from some columns; empty ones where nothing fits."""
    m, cost = case.model, case.units.cost
    paths = case.loops.descend(one.tables, m.stages, m.sides, one.opened, cost, one.high, columns)
    return [path[: np.count_nonzero(path[:, 0] >= 0)] for path in paths]


def _narrowed(case: Case, known: Known, one: LagClass) -> LagClass:
    """Closes stages of a class that no better plan has, by its tables."""
    m, loops, tau = case.model, case.loops, case.tau(known, times=2)
    limits = loops.reach(np.array([[one.low, one.high]]), one.tables[None], tau)[:, :, 0]
    cost = case.units.cost
    opened = loops.open_stages(m.stages, m.sides, one.opened, cost, one.high, limits)
    return replace(one, opened=opened)


def fewest_used(model: StepModel) -> Ints:
    """(2, L + 1): functions and vCPUs of the first layers, at least; more than 10^17 where they fit
    nowhere."""
    fewest = np.full((2, model.layers + 1), 10**18, dtype=np.int64)
    fewest[:, 0] = 0
    for r in range(model.layers):
        for row, used in zip(fewest, model.uses[:2], strict=True):
            stages = np.where(np.isfinite(model.lag_f_s[r]), used, 10**17)
            row[r + 1] = (row[: r + 1, None] + stages[: r + 1]).min()
    return fewest


def _of_fewest(model: StepModel, used: Ints, fewest: Ints) -> Ints:
    """A plan that uses as little as can be; of such stages the cheapest. used: of each option.
    fewest: of the first layers."""
    end, path = model.layers, []
    while end:
        stages = np.where(np.isfinite(model.lag_f_s[end - 1]), used, 10**17)[:end]
        first, k = np.nonzero(fewest[:end, None] + stages == fewest[end])
        best = int(np.argmin(model.usd_per_s[k]))
        path.append((end - 1, int(k[best])))
        end = int(first[best])
    return np.array(path, dtype=np.int64)


def _coarse(model: StepModel) -> Array:
    """From the least forward lag that a plan can have to the most."""
    low = _least_lag(model)
    fit = model.lag_f_s[np.isfinite(model.lag_f_s)]
    high = max(low, float(fit.max()), float(model.below_lag_f_s.max()))
    if low == high:
        return np.array([[low, high]])
    parts = np.arange(_COARSE + 1) / _COARSE
    ends = low * (high / low) ** parts if low > 0 else high * parts
    ends[-1] = high
    return np.stack([ends[:-1], ends[1:]], axis=1)


def _least_lag(model: StepModel) -> float:
    """The least forward lag that a plan can have."""
    least = np.full(model.layers + 1, np.inf)
    least[0] = 0.0
    for r in range(model.layers):
        stages = np.maximum(model.lag_f_s[r], model.below_lag_f_s)[: r + 1]
        least[r + 1] = np.maximum(least[: r + 1, None], stages).min()
    return float(least[-1])
