"""The exact search: labels from the last layer to the first, pruned by bounds and by dominance.

    label      stages from a boundary to the end, without what is below the boundary
    c          their price
    h          seconds forward and backward, transfers included, theirs of the boundary, too
    psi        seconds forward, and the largest over its stages of all from the first backward pass
               on to the end of their sums
    Df, Db     largest forward and backward lag

A stage below takes a label on:  h' = h + f + b + transfers, psi' = max(psi + f + transfers, h' +
Db' + tail), and the largest lags. With all layers psi + Df is the step's time (`model`).

Label A dominates B of the same boundary if whatever is put below both, A is no worse: its price is
not higher, and with (x)+ = max(x, 0)

    h_A + (Df_A - Df_B)+ + (Db_A - Db_B)+ <= h_B
    psi_A + (Df_A - Df_B)+ <= max(psi_B, h_B + Db_B + least seconds backward below)

for the stage next below ends its sums no earlier than h_B + Db_B and its own passes.

A label is kept if some class v of `bounds` says that it may become better than what is known. First
only a few labels of each price are (a beam), for better plans to compare with; then all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dayfly.plan.choose.arrays import Array, Ints
from dayfly.plan.choose.pipelines.engine import Engine
from dayfly.plan.choose.pipelines.incumbents import Incumbents
from dayfly.plan.choose.pipelines.model import StepModel
from dayfly.plan.choose.pipelines.units import Units

#: A plan while it is searched: (last layer, option) of each stage, from the last to the first.
Path = tuple[tuple[int, int], ...]

#: Columns of tables at most.
COLUMNS = 400
#: Classes of the first look, and afterwards.
COARSE, FINE = 5, 16
#: Labels of a price in the beam.
BEAM = 2
MOST_LABELS = 10**9


@dataclass(slots=True)
class Case:
    """One degree and collective: a model, and what is known of it.

    classes: (V, 2), more than, and at most, which forward lag. bounds: (V, 3, L + 1, columns).
    """

    number: int
    model: StepModel
    units: Units
    columns: int
    classes: Array
    bounds: Array
    most_functions: int

    @property
    def stages(self) -> tuple[Array, ...]:
        m = self.model
        return (m.forward_s, m.own_s, m.lag_f_s, m.lag_b_s, m.tail_s, m.below_forward_s, m.below_s, m.below_lag_f_s)

    def tau(self, known: Incumbents[tuple[int, Path]], within: float = 0.0) -> Array:
        return known.tau(np.arange(4 * self.columns + 1) * self.units.usd_per_s, within)


def least_lag(model: StepModel) -> float:
    each = np.maximum(model.lag_f_s[np.arange(model.layers), np.arange(model.layers)], model.below_lag_f_s)
    return float(each.min(axis=1).max())


def prepare(number: int, model: StepModel, engine: Engine, most_functions: int) -> Case | None:
    """With coarse classes. None: it fits nowhere."""
    m = model
    units = Units.of(m.usd_per_s)
    low = least_lag(m)
    if not np.isfinite(low):
        return None
    high = max(float(m.lag_f_s[np.isfinite(m.lag_f_s)].max()), low, float(m.below_lag_f_s.max()))
    if low > 0:
        tops = low * (high / low) ** (np.arange(1, COARSE + 1) / COARSE)
    else:
        tops = np.linspace(0, high, COARSE + 1)[1:] if high else np.zeros(1)
    tops[-1] = high
    classes = np.stack([np.concatenate([[low], tops[:-1]]), tops], axis=1)
    case = Case(number, m, units, 1, classes, np.empty((0, 3, 1, 1)), most_functions)
    most = 0
    for lo, hi in classes:
        found = engine.tables(*case.stages, units.cost, hi, 1)
        _, path = engine.descend(found, *case.stages, m.below_lag_b_s, units.cost, hi, 0)
        if len(path):
            most = max(most, int(units.cost[path[:, 1]].sum()))
    if most + 2 > COLUMNS:
        case.units = units.coarser(-(-most // COLUMNS))
        most = COLUMNS
    case.columns = most + 2
    return case


def bound(case: Case, engine: Engine, known: Incumbents[tuple[int, Path]], tops: Array, closed: bool=True) -> None:
    """Tables of classes, incumbents from them; closed classes go."""
    kept, tables = [], []
    for lo, hi in tops:
        found = engine.tables(*case.stages, case.units.cost, hi, case.columns)
        tau = case.tau(known)
        k_ = found[2, -1]
        drop = np.flatnonzero(np.diff(k_, prepend=np.inf) < 0)
        fresh = []
        for c in drop[k_[drop] + lo < tau[drop]].tolist():
            t, path = engine.descend(found, *case.stages, case.model.below_lag_b_s, case.units.cost, hi, c)
            if not len(path):
                continue
            usd = float(case.model.usd_per_s[path[:, 1]].sum())
            if case.model.replicas[path[:, 1]].sum() <= case.most_functions:
                fresh.append((t, t * usd, (case.number, path)))
        known.add(fresh)
        kept.append((lo, hi))
        tables.append(found)
    case.classes, case.bounds = np.array(kept), np.array(tables)


def open_(case: Case, known, within=0.0) -> Array:
    tau = case.tau(known, within)[: case.columns]
    k_ = case.bounds[:, 2, -1] + case.classes[:, :1]
    return (k_ < tau).any(axis=1)


def search(case: Case, engine: Engine, known, *, beam: int | None, within=0.0, by_functions=False, stats=None):
    m = case.model
    count = m.layers
    price = case.units.price
    labels = np.zeros((4096, 6))
    origin = np.zeros((4096, 2), dtype=np.int64)
    starts = np.zeros((count + 1, 2), dtype=np.int64)
    starts[count] = (0, 1)
    n = 1
    least_b = np.concatenate([[0.0], np.cumsum(m.backward_s.min(axis=1))])
    tau = case.tau(known, within)
    made_all = 0
    for l in reversed(range(count)):
        made, source = engine.expand(
            l, *case.stages, m.below_lag_b_s, price, m.replicas, starts, labels, case.most_functions,
            int(m.replicas.min()), case.classes, case.bounds, tau,
        )
        made_all += len(made)
        if l:
            order = np.lexsort((made[:, 1] , made[:, 0]))
            made, source = made[order], source[order]
            keep = engine.undominated(made, least_b[l], by_functions)
            made, source = made[keep], source[keep]
            if beam is not None and len(made):
                s = engine.slacks(l, made, case.classes, case.bounds, tau)
                bucket = np.floor(made[:, 0])
                order = np.lexsort((-s, bucket))
                b = bucket[order]
                first = np.concatenate([[True], b[1:] != b[:-1]])
                rank = np.arange(len(b)) - np.maximum.accumulate(np.where(first, np.arange(len(b)), 0))
                sel = np.sort(order[rank < beam])
                made, source = made[sel], source[sel]
        while n + len(made) > len(labels):
            labels = np.concatenate([labels, np.zeros_like(labels)])
            origin = np.concatenate([origin, np.zeros_like(origin)])
        labels[n : n + len(made)] = made
        origin[n : n + len(made)] = source
        starts[l] = (n, n + len(made))
        n += len(made)
    if stats is not None: stats.append((case.number, beam, made_all, n))
    at0 = np.arange(*starts[0])
    fresh = []
    where = np.repeat(np.arange(count + 1), starts[:, 1] - starts[:, 0])
    pos = np.zeros(n, dtype=np.int64)
    for q in range(count + 1):
        pos[starts[q, 0]:starts[q, 1]] = q
    done_t = labels[at0, 2] + labels[at0, 3]
    from dayfly.plan.choose.arrays import undominated
    if len(at0):
        for i in undominated(done_t, labels[at0, 0]).tolist():
            at = int(at0[i])
            path = []
            while at:
                k, parent = origin[at]
                path.append((int(pos[parent]) - 1, int(k)))
                at = int(parent)
            path.reverse()
            arr = np.array(path)
            usd = float(m.usd_per_s[arr[:, 1]].sum())
            fresh.append((float(done_t[i]), float(done_t[i]) * usd, (case.number, arr)))
    known.add(fresh)
