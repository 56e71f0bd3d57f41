"""The search's loops: numbers one after another, and whole arrays, give the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dayfly.planning.choose.pipelines import bound_kernels, kernels, vectorised
from dayfly.planning.choose.pipelines.bounds import (
    Case,
    Found,
    Known,
    LagClass,
    by_price,
    first_look,
)
from dayfly.planning.choose.pipelines.compiled import engine
from dayfly.planning.choose.pipelines.model import Incumbents, Units, over_store
from dayfly.wire.pipelines.orders import ORDERS
from tests.choose.pipelines_by_hand import random_problem

NUMPY = engine(False)


class NothingKnown(Known):
    """No plan is kept, so that no class and no stage closes."""

    def add(self, found: list[tuple[float, float, Found]]) -> None:
        pass


def a_case(
    seed: int, layers: int = 7, degree: int = 2, known: Known | None = None
) -> tuple[Case, Known]:
    """With coarse classes, by price."""
    problem = random_problem(seed, layers=layers, options=3)
    problem = replace(problem, schedule=list(ORDERS)[seed % 2])
    model = over_store(problem, [(j, degree) for j in range(3)], pipelined=True)
    known = Incumbents() if known is None else known
    case = first_look(0, [model], NUMPY, known, 10**9)
    assert case is not None
    by_price(case, known)
    assert len(case.classes) > 1
    return case, known


def line_of(case: Case, one: LagClass) -> tuple[Any, ...]:
    """Arguments of loops over the stages of a class."""
    return (case.model.stages, case.model.sides, one.opened, case.units.cost, one.high)


SEEDS = pytest.mark.parametrize("seed", range(5))


@SEEDS
def test_tables(seed: int) -> None:
    case, _ = a_case(seed)
    for one in case.classes:
        for columns in (1, 4, case.columns):
            line = (*line_of(case, one), columns)
            assert np.array_equal(bound_kernels.tables(*line), vectorised.tables(*line))


@SEEDS
def test_plans_that_tables_lead_to(seed: int) -> None:
    case, _ = a_case(seed)
    for one in case.classes:
        line = (one.tables, *line_of(case, one), np.arange(case.columns))
        paths = bound_kernels.descend(*line)
        assert np.array_equal(paths, vectorised.descend(*line))
        for column, every in enumerate(paths):
            path = every[every[:, 0] >= 0]
            if len(path):
                assert case.seconds(path)[0] >= one.tables[2, -1, column]
                if column < case.columns - 1:
                    assert case.units.cost[path[:, 1]].sum() <= column


@SEEDS
def test_what_plans_take(seed: int) -> None:
    """Of plans that fit, and of others: with too many functions, or stages that are too large."""
    case, _ = a_case(seed, layers=4, degree=4, known=NothingKnown())
    m, chance = case.model, np.random.default_rng(seed)
    tails, taken = np.stack([m.tail_s, 2 * m.tail_s]), []
    for _ in range(100):
        ends = [*np.flatnonzero(chance.integers(2, size=3)).tolist(), 3]
        path = np.array([(r, chance.integers(3)) for r in reversed(ends)])
        most = np.array([chance.integers(2, 20), 10**9])
        line = (path, m.stages, m.sides, case.fits, tails, m.uses, m.deepest, most)
        taken.append(bound_kernels.weigh(*line))
        assert np.array_equal(taken[-1], vectorised.weigh(*line))
    assert 0 < np.isfinite(taken).mean() < 1


@SEEDS
def test_stages_that_are_open(seed: int) -> None:
    """By columns for each price, and by few: of what goes beyond the last the last says enough."""
    case, known = a_case(seed)
    m, closed = case.model, 0
    for one in case.classes:
        for columns in (case.columns, 5):
            lags, bounds = np.array([[one.low, one.high]]), one.tables[None, ..., -columns:]
            tau = case.tau(known, times=2)
            limits = bound_kernels.reach(lags, bounds, tau)[:, :, 0]
            line = (m.stages, m.sides, case.fits, case.units.cost, one.high, limits)
            found = bound_kernels.open_stages(*line)
            assert np.array_equal(found, vectorised.open_stages(*line))
            closed += np.count_nonzero(case.fits & (m.lag_f_s <= one.high) & ~found)
    assert closed


@SEEDS
def test_labels(seed: int) -> None:
    """All of a search without dominance, boundary by boundary."""
    case, known = a_case(seed)
    m, tau = case.model, case.tau(known, times=4)
    labels, begins = np.zeros((1, kernels.FIELDS)), np.array([m.layers])
    limits = bound_kernels.reach(case.lags, case.bounds, tau)
    assert np.array_equal(limits, vectorised.reach(case.lags, case.bounds, tau))
    for q in reversed(range(m.layers)):
        line = (
            q,
            m.stages,
            m.sides,
            case.fits,
            case.units.price,
            m.uses,
            m.deepest,
            labels,
            begins,
            np.array([9, 9000]),
            case.fewest,
            case.lags,
            limits[q],
            tau,
        )
        (one, origin, out), (other, its_origin, its_out) = (
            kernels.expand(*line),
            vectorised.expand(*line),
        )
        assert out == its_out
        a, b = (np.lexsort(o.T) for o in (origin, its_origin))
        assert np.array_equal(origin[a], its_origin[b])
        assert np.array_equal(one[a], other[b])
        order = np.lexsort((one[:, 1], one[:, 0]))
        for by_uses in (False, True):
            kept = kernels.undominated(one, order, 0.01, by_uses)
            assert np.array_equal(kept, vectorised.undominated(one, order, 0.01, by_uses))
        labels = np.concatenate([labels, one[order]])
        begins = np.concatenate([begins, np.full(len(one), q)])
    assert len(labels) > 10


@SEEDS
def test_bounds_hold(seed: int) -> None:
    """No plan takes less than the tables of its class say, at any boundary."""
    case, _ = a_case(seed, layers=4, degree=4, known=NothingKnown())
    chance = np.random.default_rng(seed)
    for _ in range(200):
        ends = [*np.flatnonzero(chance.integers(2, size=3)).tolist(), 3]
        path = np.array([(r, chance.integers(3)) for r in reversed(ends)])
        (taken,) = case.seconds(path)
        if not np.isfinite(taken):
            continue
        cost = int(case.units.cost[path[:, 1]].sum())
        column = min(cost, case.columns - 1)
        assert min(one.least_s[column] for one in case.classes) <= taken * (1 + 1e-12)


def test_units() -> None:
    exact = Units.of(np.array([2.0, 3.0, 8.0]) * 1.7e-6)
    assert exact.cost.tolist() == [2, 3, 8]
    assert exact.usd_per_s == pytest.approx(1.7e-6)
    coarse = exact.coarser(3)
    assert coarse.cost.tolist() == [0, 1, 2]
    assert (coarse.price * coarse.usd_per_s).tolist() == pytest.approx(
        [2 * 1.7e-6, 3 * 1.7e-6, 8 * 1.7e-6]
    )
    odd = Units.of(np.array([1.0, np.pi]))
    assert odd.cost.tolist() == [8, 25]
    assert (odd.price >= odd.cost).all()


def test_what_is_known() -> None:
    """Two plans: 1 s at $3 and 2 s at $2. Of a price of $2 a second, 1.5 s cost as much as one."""
    known: Incumbents[str] = Incumbents()
    assert (known.tau(np.array([1.0])) > 1e99).all()
    known.add([(2.0, 2.0, "slow"), (1.0, 3.0, "fast"), (1.5, 3.5, "worse")])
    assert known.plans == ["fast", "slow"]
    assert known.tau(np.array([4.0, 2.0, 0.5])).tolist() == pytest.approx([1.0, 1.5, 4.0])
    assert known.tau(np.array([2.0]), within=0.5).tolist() == pytest.approx([1.0])
