"""FuncPipe's mixed-integer quadratic program (section 3.4, appendix C), on SCIP.

    x_i     cut behind layer i           y_k    d is D_k           z_ij   layer i has memory M_j
    r_iq    no cut from i to q: the product of 1 - x_p, p = i to q-1
    v_iqj   r_iq z_ij                     e_ij   x_i z_ij           n_ij   x_i z_(i+1)j

Products of binaries are technique 1, of a binary and a continuous variable technique 2 with its
misprint corrected (ax <= f <= bx, docs/errata.md), maxima technique 3. Where an expression is only
ever pressed down (t_iter, lags, memory needed), the halves that would hold it up are left out, and
a product of binaries may be continuous, as its bounds make it 0 or 1. Limits of functions and vCPUs
at once, which the paper does not have, are two more constraints. What remains is

    min alpha_1 t_iter c_mem + alpha_2 t_iter

which is not convex: SCIP divides the range of t_iter, too. HiGHS solves no such programs, and the
paper's Gurobi is not free.

Appendix C (1) prints z_ij T_bc^ij in the sum over q: T is that of layer q. Instead of P M_j an
option has its own price. gamma = 2 and delta = 2 + d are those of the pipelined scatter-reduce.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyscipopt import Model, quicksum

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.merging import merged
from benchmarks.parts.choosing.pipeline_points import holds, plan_over_store, point
from dayfly.planning.choose.formulas import gamma_and_delta
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
)

#: What is nearer than so to the optimum is taken for it.
GAP = 1e-6


def miqp(
    problem: StagesOverStore, goal: Goal, *, groups: int | None, time_limit_s: float
) -> Answer[PipelinePlan]:
    """The best for a pair of weights. groups: layers after merging; None: not merged.

    How it was stopped has SCIP's gap. Raises ValueError for a problem that the paper does not have.
    """
    if problem.mixed or problem.pipelined != (True,):
        raise ValueError("FuncPipe has one degree, and the pipelined scatter-reduce")
    small = merged(problem, groups)
    program = _Program(small.merge(problem), goal)
    program.model.setParam("limits/time", time_limit_s)
    program.model.optimize()
    proved = program.model.getStatus() in ("optimal", "gaplimit", "infeasible", "inforunbd")
    if not program.model.getNSols():
        return Answer(None, "infeasible" if proved else f"{time_limit_s:g} s, nothing found")
    plan = small.unmerged(program.plan())
    stopped = "optimal"
    if not proved:
        gap = program.model.getGap()
        stopped = f"{time_limit_s:g} s, {f'gap {gap:.0%}' if gap < 1e3 else 'no bound'}"
    return Answer(point(problem, plan) if holds(problem, plan) else None, stopped)


class _Program:
    """The program of a problem whose layers are merged. Layers and options count from 0."""

    def __init__(self, problem: StagesOverStore, goal: Goal) -> None:
        self.problem = p = problem
        self.model = Model()
        self.model.hideOutput()
        self.model.setParam("limits/gap", GAP)
        self.count, self.kinds = len(p.layers), len(p.options)
        layers, kinds = range(self.count), range(self.kinds)
        # Bytes in GiB and dollars in the least price, so that all are of an order.
        self.unit = min(option.usd_per_s for option in p.options)
        self.x = [self._binary() for _ in layers[:-1]]
        self.y = [self._binary() for _ in p.divisors]
        self.z = [[self._binary() for _ in kinds] for _ in layers]
        add = self.model.addCons
        add(quicksum(self.y) == 1)
        for row in self.z:
            add(quicksum(row) == 1)
        for i in layers[1:]:  # 3c, for each memory: one that has no cut between has the same
            for j in kinds:
                add(self.z[i][j] - self.z[i - 1][j] <= self.x[i - 1])
                add(self.z[i - 1][j] - self.z[i][j] <= self.x[i - 1])
        r = self._unbroken()
        self.v = {(i, q, j): self._product(r[i, q], self.z[i][j]) for i, q in r for j in kinds}
        self.e = [
            [self._product(x, z) for z in row] for x, row in zip(self.x, self.z, strict=False)
        ]
        self.n = [
            [self._product(x, z) for z in row] for x, row in zip(self.x, self.z[1:], strict=True)
        ]
        self._memory(r)
        seconds = self._seconds()
        price = self._price()
        value = self.model.addVar(lb=0.0, ub=self._slowest_s() * self._dearest())
        add(value >= seconds * price)
        weight = goal.alpha1 * self.unit
        scale = max(weight, goal.alpha2)
        self.model.setObjective(weight / scale * value + goal.alpha2 / scale * seconds)

    def plan(self) -> PipelinePlan:
        """The best that was found."""
        value = self.model.getVal
        starts = [i + 1 for i, x in enumerate(self.x) if value(x) > 0.5]
        firsts = [0, *starts]
        options = [max(range(self.kinds), key=lambda j, i=i: value(self.z[i][j])) for i in firsts]
        at = max(range(len(self.y)), key=lambda k: value(self.y[k]))
        return plan_over_store(self.problem, starts, options, self.problem.divisors[at])

    def _unbroken(self) -> dict[tuple[int, int], Any]:
        """r_iq for i <= q; r_ii is 1."""
        r: dict[tuple[int, int], Any] = {}
        for i in range(self.count):
            r[i, i] = 1
            for q in range(i + 1, self.count):
                r[i, q] = self._product(r[i, q - 1], 1 - self.x[q - 1])
        return r

    def _memory(self, r: dict[tuple[int, int], Any]) -> None:
        """3b, linearised as appendix C (7)."""
        p, add, gib = self.problem, self.model.addCons, 2.0**30
        most_a = sum(layer.activation_bytes for layer in p.layers) / gib
        most_s = sum(layer.parameter_bytes for layer in p.layers) / gib
        for i in range(self.count):
            a = quicksum(r[q, i] * (p.layers[q].activation_bytes / gib) for q in range(i + 1))
            s = quicksum(r[q, i] * (p.layers[q].parameter_bytes / gib) for q in range(i + 1))
            needed = []
            for y, d in zip(self.y, p.divisors, strict=True):
                needed.append(p.micro_batches // d * self._at_least(a, y, most_a))
                needed.append(p.copies[d > 1] * self._at_least(s, y, most_s))
            room = quicksum(
                z * ((option.memory_bytes - option.base_bytes) / gib)
                for z, option in zip(self.z[i], p.options, strict=True)
            )
            add(quicksum(needed) <= room)

    def _seconds(self) -> Any:
        """Equation 7, with 8 to 11."""
        p, add, layers = self.problem, self.model.addCons, range(self.count)
        kinds = range(self.kinds)
        forward = [self._stage_s(((q, i) for q in range(i + 1)), i, "forward") for i in layers]
        backward = [self._stage_s(((i, q) for q in layers[i:]), i, "backward") for i in layers]
        up, down, back_up, back_down = [], [], [], []
        for i in layers[:-1]:
            output, gradient = p.layers[i].output_bytes, p.layers[i + 1].gradient_bytes
            for sides, size, mine in (
                (up, output, self.e),
                (down, output, self.n),
                (back_up, gradient, self.n),
                (back_down, gradient, self.e),
            ):
                each = (mine[i][j] * (size / p.options[j].bytes_per_s) for j in kinds)
                sides.append(quicksum(each) + p.latency_s * self.x[i])
        most_s = self._longest_s()
        passed_f = [self._layer_s(i, "forward") for i in layers]
        passed_b = [self._layer_s(i, "backward") for i in layers]
        lag_f = self.model.addVar(lb=0.0, ub=most_s)
        for one in (*forward, *up, *down):
            add(lag_f >= one)
        total_f = quicksum(passed_f) + quicksum(up) + quicksum(down) + self._lagged(lag_f, most_s)
        last = self.model.addVar(lb=0.0, ub=self._slowest_s())
        above: Any = None
        for i in reversed(layers):
            lag_b = self.model.addVar(lb=0.0, ub=most_s)
            add(lag_b >= backward[i])
            if above is not None:
                for one in (above, back_up[i], back_down[i]):
                    add(lag_b >= one)
            done = quicksum(passed_b[i:]) + quicksum(back_up[i:]) + quicksum(back_down[i:])
            add(last >= done + self._lagged(lag_b, most_s) + self._sync_s(i))
            above = lag_b
        seconds = self.model.addVar(lb=0.0, ub=self._slowest_s())
        add(seconds >= total_f + last)
        return seconds

    def _stage_s(self, pairs: Iterable[tuple[int, int]], i: int, way: str) -> Any:
        """t^_fc or t~_bc of layer i: pairs (first, last) of which i is one."""
        p, found = self.problem, []
        for first, last in pairs:
            other = first if last == i else last
            for j, option in enumerate(p.options):
                time_s = p.beta * getattr(option, f"{way}_s")[other]
                found.append(self.v[first, last, j] * time_s)
        return quicksum(found)

    def _layer_s(self, i: int, way: str) -> Any:
        p = self.problem
        return quicksum(
            z * (p.beta * getattr(option, f"{way}_s")[i])
            for z, option in zip(self.z[i], p.options, strict=True)
        )

    def _longest_s(self) -> float:
        """No stage and no transfer takes longer: H of technique 3."""
        p = self.problem
        slowest = min(option.bytes_per_s for option in p.options)
        moved = max(max(layer.output_bytes, layer.gradient_bytes) for layer in p.layers)
        computed = max(max(sum(o.forward_s), sum(o.backward_s)) for o in p.options)
        return max(p.beta * computed, moved / slowest + p.latency_s)

    def _slowest_s(self) -> float:
        """No plan takes longer: each of its passes and transfers takes the longest of all."""
        p = self.problem
        slowest = min(option.bytes_per_s for option in p.options)
        summed = 2 * sum(layer.parameter_bytes for layer in p.layers) / slowest
        passes = 2 * (p.micro_batches + 3 * self.count) * self._longest_s()
        return passes + summed + (2 + max(p.divisors)) * p.latency_s

    def _dearest(self) -> float:
        """No plan costs more a second, in the least price."""
        p = self.problem
        most = max(option.usd_per_s for option in p.options)
        return self.count * max(p.divisors) * most / self.unit

    def _lagged(self, lag: Any, most_s: float) -> Any:
        """(mu - 1) lag, appendix C (3)."""
        p = self.problem
        return quicksum(
            (p.micro_batches // d - 1) * self._at_least(lag, y, most_s)
            for y, d in zip(self.y, p.divisors, strict=True)
            if p.micro_batches > d
        )

    def _sync_s(self, i: int) -> Any:
        """Equation 9: nothing where d is 1."""
        p = self.problem
        several = [(y, d) for y, d in zip(self.y, p.divisors, strict=True) if d > 1]
        if not several:
            return 0.0
        gamma, _ = gamma_and_delta(2, pipelined=True)
        sizes = [
            self.v[i, q, j] * (gamma * p.layers[q].parameter_bytes / option.bytes_per_s)
            for q in range(i, self.count)
            for j, option in enumerate(p.options)
        ]
        slowest = min(option.bytes_per_s for option in p.options)
        most_s = gamma * sum(layer.parameter_bytes for layer in p.layers) / slowest
        summed = self._at_least(quicksum(sizes), quicksum(y for y, _ in several), most_s)
        deltas = [y * (p.latency_s * gamma_and_delta(d, pipelined=True)[1]) for y, d in several]
        return summed + quicksum(deltas)

    def _price(self) -> Any:
        """Equation 5, in the least price: sum of D_k M_j y_k x_i z_ij. Keeps the limits, too."""
        p, price, functions, vcpus = self.problem, [], [], []
        ends = [*self.e, self.z[-1]]
        for y, d in zip(self.y, p.divisors, strict=True):
            for row in ends:
                for option, one in zip(p.options, row, strict=True):
                    used = d * self._product(y, one)
                    price.append(used * (option.usd_per_s / self.unit))
                    functions.append(used)
                    vcpus.append(used * option.vcpus)
        total, add = self.model.addVar(lb=0.0, ub=self._dearest()), self.model.addCons
        add(total >= quicksum(price))
        if p.functions_at_once is not None:
            add(quicksum(functions) <= p.functions_at_once)
        if p.vcpus_at_once is not None:
            add(quicksum(vcpus) <= p.vcpus_at_once)
        return total

    def _binary(self) -> Any:
        return self.model.addVar(vtype="B")

    def _product(self, x: Any, y: Any) -> Any:
        """Technique 1."""
        if isinstance(x, int):
            return y
        f = self.model.addVar(lb=0.0, ub=1.0)
        self.model.addCons(f <= x)
        self.model.addCons(f <= y)
        self.model.addCons(f >= x + y - 1)
        return f

    def _at_least(self, y: Any, x: Any, most: float) -> Any:
        """Technique 2's lower half: y of [0, most] where x is 1, else 0 or more."""
        f = self.model.addVar(lb=0.0, ub=most)
        self.model.addCons(f >= y - most * (1 - x))
        return f
