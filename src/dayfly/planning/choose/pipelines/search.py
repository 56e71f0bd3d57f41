"""FuncPipe's problem, exactly: every degree as a case, all with one front in view.

    1  bounds for any price, and a few plans, of each case
    2  bounds by price in coarse classes, then in finer ones of what is still open, of the stages
       alone that a better plan may have
    3  a beam, for better plans to compare with
    4  all labels: what is not found then is no better than what is known

Where stages have different numbers of replicas, those with few hold more micro-batches by 1F1B, the
more replicas the others have. At first no stage has more for it, which makes one case of all. If a
plan of that front does not fit, each largest number is a case of its own, exact of plans that have
it.

Replicas sum by one of two collectives, the same one in all stages. Both are searched as one case,
in which each stage has the faster collective. If the search meets a plan that is slower than that
with either collective, each collective is searched by itself, within the same bounds.

Where bandwidth declines with the functions of a plan, each number of functions that leaves less
than the one before is a case of its own, of plans with so many at most. Those with fewer take
longer in it than they do: a case is exact of its own number, and another one is of theirs.

A case whose bounds (`bounds`) are no better than what is known is closed at once. The search puts
labels together from the last layer to the first, pruned by bounds and by dominance:

    label      stages from a boundary to the end, and their side of what is below the boundary
    c          their price
    h          seconds forward and backward, transfers included
    psi        seconds forward, and the largest over its stages of what comes from the first
               backward pass on to the end of their sums
    Df, Db     largest forward and backward lag

A stage below takes a label on: h' = h + f + b and psi' = max(psi + f, h' + Db' + tail), with
transfers, and the largest lags. With all layers psi + Df is the step's time (`model`).

A label is kept only if some class of `bounds` says that it may become better than what is known.
Label A dominates B of the same boundary if, whatever is put below both, A is no worse: it costs no
more, and with (x)+ = max(x, 0)

    h_A + (Df_A - Df_B)+ + (Db_A - Db_B)+ <= h_B
    psi_A + (Df_A - Df_B)+ <= max(psi_B, h_B + Db_B + least seconds backward below)

for the stage next below ends its sums no earlier than h_B + Db_B and its own passes.

Functions and vCPUs at once are prices, too, but seldom matter: they count in dominance only after a
search left labels out for having too many. So do the stages of a label by 1F1B, where the stages
above decide how many micro-batches the next one below holds: bounds take one for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dayfly.planning.choose import forked
from dayfly.planning.choose.arrays import Array, Ints, undominated
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.bounds import (
    DEARER,
    Case,
    Known,
    by_price,
    first_look,
    refine,
)
from dayfly.planning.choose.pipelines.compiled import SearchLoops
from dayfly.planning.choose.pipelines.kernels import FIELDS
from dayfly.planning.choose.pipelines.model import Incumbents, over_store
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import StagesOverStore
from dayfly.planning.choose.pipelines.ways import Way, fits, most_of, path_of, point_of, ways_of

#: Labels of a price that a beam keeps.
_BEAM = 2
#: Of seconds, added up in another order.
_ROUNDING = 1e-12


class OutOfTime(Exception):
    """The deadline passed before the search was through."""


def search(
    case: Case,
    known: Known,
    *,
    beam: bool = False,
    within: float = 0.0,
    deadline: float | None = None,
) -> None:
    """Adds all plans that are better than what is known, by more than the part `within`.

    Raises OutOfTime.

    Args:
        beam: only those that a few labels of each price lead to.
        deadline: of `forked.cpu_s`.
    """
    by_uses = case.crowded
    case.crowded |= _search(case, known, beam, within, deadline, by_uses=by_uses) > 0
    if case.crowded and not (beam or by_uses):
        _search(case, known, beam, within, deadline, by_uses=True)
    if case.torn and len(case.models) > 1 and not beam:
        for one in case.apart():
            search(one, known, within=within, deadline=deadline)


def _search(
    case: Case,
    known: Known,
    beam: bool,
    within: float,
    deadline: float | None,
    *,
    by_uses: bool,
) -> int:
    """See `search`. Gives how many labels were left out for using too much alone."""
    m, loops, count, left_out = case.model, case.loops, case.model.layers, 0
    lags, tau = case.lags, case.tau(known, within, times=DEARER)
    limits = loops.reach(lags, case.bounds, tau)
    least_b = np.concatenate([[0.0], np.cumsum(m.backward_s.min(axis=1))])
    store = _Labels(count)
    opened = np.logical_or.reduce([one.opened for one in case.classes])
    for q in reversed(range(count)):
        if deadline is not None and forked.cpu_s() > deadline:
            raise OutOfTime
        # Longer stages do not fit: labels of later boundaries are of no use here any more.
        (ends,) = np.nonzero(opened[:, q].any(axis=1))
        if not len(ends):
            continue
        skip = int(np.searchsorted(-store.begins[: store.n], -(ends[-1] + 1)))
        made, origin, out = loops.expand(
            q,
            m.stages,
            m.sides,
            opened,
            case.units.price,
            m.uses,
            m.deepest,
            store.values[skip : store.n],
            store.begins[skip : store.n],
            case.most,
            case.fewest,
            lags,
            limits[q],
            tau,
        )
        left_out += out
        origin[:, 1] += skip
        if q:
            keep = np.lexsort((made[:, 1], made[:, 0]))
            keep = loops.undominated(made, keep, least_b[q], by_uses)
            if beam:
                keep = keep[_best(made[keep])]
            made, origin = made[keep], origin[keep]
        store.add(q, made, origin)
    case.torn = _add_whole(case, known, store)
    return left_out


def _best(labels: Array) -> Ints:
    """Of each whole price those that have most left, in the order that they have."""
    price = np.floor(labels[:, 0])
    order = np.lexsort((-labels[:, -1], price))
    rank = np.arange(len(order)) - np.searchsorted(price[order], price[order])
    return np.sort(order[rank < _BEAM])


def _add_whole(case: Case, known: Known, store: _Labels) -> bool:
    """Adds the best complete plans; returns whether one takes longer than the case's bound says.

    It does where different collectives are faster for its stages, as a plan has one for all."""
    whole = np.flatnonzero(store.begins[: store.n] == 0)
    values = store.values[whole]
    step_s = values[:, 2] + values[:, 3]
    best = undominated(step_s, step_s * values[:, 0])
    found = [case.taken(store.path(int(whole[i]))) for i in best.tolist()]
    known.add(found)
    longest_s = step_s[best] * (1 + _ROUNDING)
    return any(taken[0] > most for taken, most in zip(found, longest_s.tolist(), strict=True))


class _Labels:
    """All labels of a search, those of the last layers first; the first is of no stage at all.

    values: (n, FIELDS). begins: first layer of each. origin: (n, 2), option of the first stage, and
    the label that it was put below.
    """

    def __init__(self, layers: int) -> None:
        self.n = 1
        self.values = np.zeros((4096, FIELDS))
        self.begins = np.full(4096, layers, dtype=np.int64)
        self.origin = np.zeros((4096, 2), dtype=np.int64)

    def add(self, begin: int, values: Array, origin: Ints) -> None:
        """Labels whose first stage begins there."""
        end = self.n + len(values)
        while end > len(self.values):
            self.values = np.concatenate([self.values, np.zeros_like(self.values)])
            self.begins = np.concatenate([self.begins, np.zeros_like(self.begins)])
            self.origin = np.concatenate([self.origin, np.zeros_like(self.origin)])
        self.values[self.n : end] = values
        self.begins[self.n : end] = begin
        self.origin[self.n : end] = origin
        self.n = end

    def path(self, at: int) -> Ints:
        """Stages of a label: (stages, 2) of last layer and option, from the last to the first."""
        stages = []
        while at:
            option, onto = self.origin[at].tolist()
            stages.append((int(self.begins[onto]) - 1, option))
            at = onto
        return np.array(stages[::-1], dtype=np.int64).reshape(-1, 2)


#: With a time limit, what is better by this part is looked for first, unless plans are known.
_FIRST_WITHIN = 0.1


def search_over_store(
    problems: Sequence[StagesOverStore],
    loops: SearchLoops,
    deadline: float | None,
    good: Sequence[PipelinePlan] = (),
    rivals: Sequence[tuple[float, float]] = (),
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front of all problems together, and its gap; nothing, if nothing fits.

    Each schedule is searched by itself, in parallel if this process may fork (`forked`). The plans
    of a schedule are left out if a schedule that comes earlier in `problems` has one that takes no
    longer and costs no more.

    Args:
        deadline: of `forked.cpu_s`; the first look is always taken.
        good: plans that may be as good as any; the better they are, the less is left to search.
        rivals: seconds and dollars of steps; plans that one of these beats are not sought.
    """
    alike = [
        [one for one in problems if one.schedule == schedule]
        for schedule in dict.fromkeys(one.schedule for one in problems)
    ]
    ask = partial(_of_schedule, loops=loops, deadline=deadline, good=good)
    known: Incumbents[PipelinePlan] = Incumbents()
    fronts: Iterable[tuple[list[Point[PipelinePlan]], float]]
    if rivals:  # they leave little to search: one after another, each with what is known by then
        fronts = (ask(one, rivals=[*rivals, *known.takes]) for one in alike)
    else:
        fronts = forked.each(partial(ask, rivals=()), alike)
    points: list[Point[PipelinePlan]] = []
    gap = 0.0
    for own, its_gap in fronts:
        points += [one for one in own if not known.has_no_worse(one.seconds, one.usd)]
        known.add([(one.seconds, one.usd, one.plan) for one in own])
        gap = max(gap, its_gap)
    return points, gap


def _of_schedule(
    problems: Sequence[StagesOverStore],
    loops: SearchLoops,
    deadline: float | None,
    good: Sequence[PipelinePlan],
    rivals: Sequence[tuple[float, float]],
) -> tuple[list[Point[PipelinePlan]], float]:
    """Returns the front of problems that have the same schedule, and its gap."""
    for tight in (False, True):
        known: Known = Incumbents.of(rivals)
        ways = [way for one in problems for way in ways_of(one, tight=tight)]
        gap = _searched(ways, loops, known, deadline, good)
        if all(fits(ways[one.case], one) for one in known.found):
            break
    return [point_of(ways[one.case], one) for one in known.found], gap


def _searched(
    ways: Sequence[Way],
    loops: SearchLoops,
    known: Known,
    deadline: float | None,
    good: Sequence[PipelinePlan],
) -> float:
    """Searches some ways: adds plans that are better than what is known. Returns the gap."""
    cases = []
    for number, way in enumerate(ways):
        models = [
            over_store(
                way.problem,
                way.choices,
                pipelined=pipelined,
                functions=way.functions,
                most=way.most,
            )
            for pipelined in way.pipelined
        ]
        case = first_look(number, models, loops, known, most_of(way))
        if case is not None:
            cases.append(case)
            case.add(known, [path for plan in good if (path := path_of(plan, way)) is not None])
    at_once = deadline is None or None in known.plans or good
    goals = (0.0,) if at_once else (_FIRST_WITHIN, 0.0)
    return _close_gap(cases, known, deadline, goals)


def _close_gap(
    cases: list[Case],
    known: Known,
    deadline: float | None,
    goals: Sequence[float],
) -> float:
    """Searches all cases until nothing is better or the time is over; returns the gap.

    Args:
        goals: falling, the last is 0: plans that are better by more than the first are searched in
            all cases, then those that are better by more than the next.
    """
    sure = [0.0 if deadline is None else float("inf")] * len(cases)

    def is_late() -> bool:
        return deadline is not None and forked.cpu_s() > deadline

    for case in cases:
        if not is_late():
            by_price(case, known)
    for case in cases:
        refine(case, known, is_late)
    try:
        for case in cases:
            case.close(known)
            if case.classes:
                search(case, known, beam=True, deadline=deadline)
        for within in goals:
            for at, case in enumerate(cases):
                case.close(known)
                if case.classes:
                    search(case, known, within=within, deadline=deadline)
                sure[at] = within
    except OutOfTime:
        pass
    gaps = (min(case.gap(known), part) for case, part in zip(cases, sure, strict=True) if part)
    return max([0.0, *gaps])
