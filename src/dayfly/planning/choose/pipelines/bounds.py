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
with tables of its own; few classes at first, then more of those that may still have better plans.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.pipelines.compiled import SearchLoops
from dayfly.planning.choose.pipelines.model import Incumbents, StepModel, Units

#: Classes of the first look.
_COARSE = 5
#: Less than any step takes that takes time.
_NO_TIME_S = 1e-100


@dataclass(frozen=True, slots=True)
class Found:
    """A plan of a model: (stages, 2) of last layer and option, from the last stage to the first."""

    case: int
    path: Ints


Known = Incumbents[Found]


@dataclass(slots=True)
class Case:
    """A model, and what is known of its plans so far.

    Attributes:
        classes: (V, 2), forward lags more than, and at most.
        bounds: (V, 3, L + 1, columns), the tables FR, KB, K of each.
        fewest: (2, L + 1), functions and vCPUs of a prefix at least.
        most: (2,), of a plan.
        looked_at: paths of plans that tables led to.
        crowded: whether a search met labels that use too many functions, vCPUs or stages.
    """

    number: int
    model: StepModel
    units: Units
    columns: int
    classes: Array
    bounds: Array
    fewest: Ints
    most: Ints
    looked_at: set[bytes] = field(default_factory=set)
    crowded: bool = False

    @property
    def below(self) -> tuple[Array, ...]:
        """Arrays of stages that tables take."""
        m = self.model
        return (
            m.own_s,
            m.lag_f_s,
            m.lag_b_s,
            m.tail_s,
            m.below_forward_s,
            m.below_s,
            m.below_lag_f_s,
        )

    def tau(self, known: Known, within: float = 0.0, *, times: int = 1) -> Array:
        """By whole units, one of each column, or so many times as many; no plan costs less than
        its cheapest stage."""
        usd_per_s = np.arange(times * self.columns) * self.units.usd_per_s
        return known.tau(np.maximum(usd_per_s, self.model.usd_per_s.min()), within)

    def gap(self, known: Known) -> float:
        """By what part a plan of this case may still be better than what is known; 0: none."""
        if not len(self.classes):
            return 0.0
        least = self.bounds[:, 2, -1] + self.classes[:, :1]
        part = self.tau(known) / np.maximum(least, _NO_TIME_S)
        return max(0.0, float(part.max()) - 1)

    def add(self, known: Known, paths: Iterable[Ints]) -> None:
        """Adds those of these plans that there may be."""
        known.add([_taken(self, path) for path in paths if _allowed(self, path)])

    def close(self, known: Known, within: float = 0.0) -> None:
        """Lets go of classes without better plans."""
        tau = self.tau(known, within)
        keep = (self.bounds[:, 2, -1] + self.classes[:, :1] < tau).any(axis=1)
        self.classes, self.bounds = self.classes[keep], self.bounds[keep]


def first_look(
    number: int, model: StepModel, loops: SearchLoops, known: Known, most: Ints
) -> Case | None:
    """Makes the case of a model, with bounds that hold at any price of a second.

    Tables with a column for each price follow in `look`.

    Args:
        number: of the problem.
        model: what a step takes.
        loops: compiled or not.
        known: gets a few plans.
        most: (2,), functions, and thousandths of vCPUs, that a plan may have.

    Returns:
        The case; None if nothing fits, or only with more than `most`.
    """
    fewest = fewest_used(model)
    if (fewest[:, -1] > most).any():
        return None
    case = Case(
        number=number,
        model=model,
        units=Units.of(model.usd_per_s),
        columns=1,
        classes=_coarse(model),
        bounds=np.empty((0, 3, model.layers + 1, 1)),
        fewest=fewest,
        most=most,
    )
    of_fewest = [_of_fewest(model, model.uses[i], fewest[i]) for i in range(2)]
    case.add(known, of_fewest)
    paths = look(case, loops, known, case.classes)
    dearest = max([int(case.units.cost[path[:, 1]].sum()) for path in paths], default=1)
    if dearest + 2 > loops.columns:
        case.units = case.units.coarser(-(-dearest // (loops.columns - 2)))
        dearest = loops.columns - 2
    case.columns = dearest + 2
    return case


def look(case: Case, loops: SearchLoops, known: Known, classes: Array) -> list[Ints]:
    """Makes the tables of classes, and adds plans that they lead to; gives those."""
    tables, paths = [], []
    model, cost = case.model, case.units.cost
    for low, high in classes:
        found = loops.tables(model.forward_s, *case.below, cost, high, case.columns)
        k_, tau = found[2, -1], case.tau(known)
        falls = np.ones(len(k_), dtype=bool)
        falls[1:] = k_[1:] < k_[:-1]
        columns = np.flatnonzero(falls & (k_ + low < tau))
        if len(columns) > loops.descents:
            columns = columns[np.linspace(0, len(columns) - 1, loops.descents).astype(int)]
        made = [loops.descend(found, *case.below, cost, high, int(c)) for c in columns]
        made = [path for path in made if len(path)]
        paths += made
        # Neighbouring columns and classes mostly lead to the same plans.
        new = {key: path for path in made if (key := path.tobytes()) not in case.looked_at}
        case.looked_at.update(new)
        case.add(known, new.values())
        tables.append(found)
    case.classes, case.bounds = classes, np.array(tables)
    return paths


def refine(case: Case, loops: SearchLoops, known: Known) -> None:
    """Takes what is open of the classes apart, for tighter bounds."""
    if not len(case.classes):
        return
    parts = max(1, -(-loops.classes // max(1, len(case.classes))))
    ends = [np.linspace(low, high, parts + 1) for low, high in case.classes if high > low]
    finer = [pair for end in ends for pair in pairwise(end)]
    look(case, loops, known, np.array(finer) if finer else case.classes)
    case.close(known)


def seconds(model: StepModel, path: Ints) -> float:
    """Of a step of a plan."""
    m, h, psi, lag_f, lag_b = model, 0.0, 0.0, 0.0, 0.0
    firsts = [*(path[1:, 0] + 1).tolist(), 0]
    for (r, k), q in zip(path.tolist(), firsts, strict=True):
        h += m.own_s[r, q, k]
        lag_f = max(lag_f, m.lag_f_s[r, q, k], m.below_lag_f_s[q, k])
        lag_b = max(lag_b, m.lag_b_s[r, q, k])
        psi = max(psi + m.forward_s[r, q, k], h + lag_b + m.tail_s[r, q, k])
        psi += m.below_forward_s[q, k]
        h += m.below_s[q, k]
        lag_b = max(lag_b, m.below_lag_b_s[q, k])
    return float(psi + lag_f)


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


def _allowed(case: Case, path: Ints) -> bool:
    """Whether it has few enough functions and vCPUs, and each stage fits where it stands."""
    m, firsts = case.model, np.append(path[1:, 0] + 1, 0)
    depths = np.arange(1, len(path) + 1)
    fits = depths <= m.deepest[path[:, 0], firsts, path[:, 1]]
    return bool((m.uses[:2, path[:, 1]].sum(axis=1) <= case.most).all() and fits.all())


def _taken(case: Case, path: Ints) -> tuple[float, float, Found]:
    step_s = seconds(case.model, path)
    return step_s, step_s * float(case.model.usd_per_s[path[:, 1]].sum()), Found(case.number, path)


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
