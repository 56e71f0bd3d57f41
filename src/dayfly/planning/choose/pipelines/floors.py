"""What any cut of a model takes at least, by functions: a look before a search.

    f, b    of a micro-batch through all layers, forward and backward, on the fastest option
    M       micro-batches of a step, all replicas' together
    S, d    stages, and replicas of each; W = S d functions
    p       dollars a second of an option's function
    s, a    bytes of all parameters, and of all activations of a micro-batch

The slowest stage takes 1/S of a pass or more, and M/d micro-batches pass it one after another:

    t >= (f + b) (1 + (M/d - 1)/S)                  in and out of the pipeline, and its pace
    t >= f (1 + (M/d - 1)/S) + sync(s/S)            over a store: some stage has 1/S of s, or more
    t >= (f + b) (1 + (M/d - 1)/S) + sync(s/S)      over links

S stages hold all of it: S (the most memory - base) >= copies s + (M/d) a, or there is no such plan;
by 1F1B a once, as the last stage holds one micro-batch.
Of dollars, with c those of all functions a second,

    c t >= M sum over layers of the least p (f + b)      of all options
    c t >= W (the least p) t
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.planning.choose.arrays import Array
from dayfly.planning.choose.formulas import gamma_and_delta, synchronisation_s
from dayfly.planning.choose.known import Known, KnownPlans
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.wire.pipelines.orders import most_held


def least_steps(problem: Problem) -> list[tuple[int, float, float]]:
    """Returns, for each number of functions, seconds and dollars that a step takes at least.

    Args:
        problem: over a store or over links.

    Returns:
        Tuples of functions (two at least, as a cut has two stages), seconds and dollars; numbers
        of functions that cannot hold the model are left out.
    """
    least: dict[int, tuple[float, float]] = {}
    for passes in _over_links(problem) if isinstance(problem, StagesOverLinks) else _over(problem):
        for workers, seconds, usd in passes.steps():
            known_s, known_usd = least.get(workers, (math.inf, math.inf))
            least[workers] = min(known_s, seconds), min(known_usd, usd)
    return [(workers, *least[workers]) for workers in sorted(least)]


def all_beaten(
    problems: Iterable[Problem],
    known: Known | KnownPlans,
    at: Callable[[Array, Array, Array], tuple[Array, Array]],
) -> bool:
    """Returns whether what is known beats every cut of some problems by what it takes at least.

    Args:
        problems: over stores or links.
        known: plans that are known.
        at: of seconds and dollars of a step, and functions, (cuts,) each, those of a run.
    """
    for problem in problems:
        least = np.array(least_steps(problem)).reshape(-1, 3)
        if not len(least) and known.anything:
            continue  # it fits nowhere; while nothing is known, the search says why
        if not len(least) or not known.beat(*at(least[:, 1], least[:, 2], least[:, 0])).all():
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """Cuts of one number of micro-batches.

    Args:
        layers: of the model.
        options: that a stage may have.
        micro_batches: of a step.
        beta: by how much passes take longer.
        copies: of parameters, with one replica and with several.
        degrees: numbers of replicas; of `mixed` stages they may differ.
        most: functions.
        sync_s: of a stage of so many bytes and replicas.
        adds: whether a sum begins when all passes are over, as over links.
        schedule: of the passes, which says how many micro-batches the last stage holds.
    """

    layers: Sequence[LayerBytes]
    options: Sequence[MemoryOption]
    micro_batches: int
    beta: float
    copies: tuple[float, float]
    degrees: Sequence[int]
    most: int
    sync_s: Callable[[float, int], float]
    adds: bool
    schedule: str
    mixed: bool = False

    def steps(self) -> Iterator[tuple[int, float, float]]:
        """Yields functions, seconds and dollars, perhaps several times the same functions."""
        forward = self.beta * np.array([one.forward_s for one in self.options])
        both = forward + self.beta * np.array([one.backward_s for one in self.options])
        prices = np.array([one.usd_per_s for one in self.options])
        work_usd = self.micro_batches * float((prices[:, None] * both).min(axis=0).sum())
        forward_s, both_s = (float(one.min(axis=0).sum()) for one in (forward, both))
        least_usd = float(prices.min())
        if self.mixed:
            for workers in range(2, self.most + 1):
                seconds = self.micro_batches * both_s / workers
                yield workers, seconds, max(work_usd, workers * least_usd * seconds)
            return
        parameters = sum(one.parameter_bytes for one in self.layers)
        for degree in self.degrees:
            each = self.micro_batches // degree
            for stages in range(self._fewest(degree), self._most_stages(degree) + 1):
                pace = 1 + (each - 1) / stages
                sync_s = self.sync_s(parameters / stages, degree) if degree > 1 else 0.0
                if self.adds:
                    seconds = both_s * pace + sync_s
                else:
                    seconds = max(both_s * pace, forward_s * pace + sync_s)
                workers = stages * degree
                yield workers, seconds, max(work_usd, workers * least_usd * seconds)

    def _fewest(self, degree: int) -> int:
        """Stages that hold the model together."""
        copies = self.copies[degree > 1]
        each = most_held(self.schedule, self.micro_batches // degree, 1)
        held = sum(
            copies * one.parameter_bytes + each * one.activation_bytes for one in self.layers
        )
        room = max(one.memory_bytes - one.base_bytes for one in self.options)
        return max(2, math.ceil(held / room * (1 - 1e-9))) if room > 0 else self.most + 1

    def _most_stages(self, degree: int) -> int:
        return min(len(self.layers), self.most // degree)


def _over(p: StagesOverStore) -> Iterator[_Passes]:
    turns = {
        d: [gamma_and_delta(d, pipelined=one) for one in p.pipelined] for d in p.divisors if d > 1
    }

    def sync_s(nbytes: float, degree: int) -> float:
        rate = max(p.bytes_per_s(option, degree) for option in p.options)
        return min(gamma * nbytes / rate + delta * p.latency_s for gamma, delta in turns[degree])

    yield _Passes(
        layers=p.layers,
        options=p.options,
        micro_batches=p.micro_batches,
        beta=p.beta,
        copies=p.copies,
        degrees=p.divisors,
        most=p.most_functions,
        sync_s=sync_s,
        adds=False,
        schedule=p.schedule,
        mixed=p.mixed,
    )


def _over_links(p: StagesOverLinks) -> Iterator[_Passes]:
    for one in p.micro_batches:
        rate = one.container.bytes_per_s

        def sync_s(nbytes: float, degree: int, rate: float = rate) -> float:
            return synchronisation_s(nbytes, degree, rate, p.ring_s_per_byte, p.ring_round_s)

        yield _Passes(
            layers=one.layers,
            options=[one.container],
            micro_batches=one.micro_batches,
            beta=1.0,
            copies=p.copies,
            degrees=[d for d in range(1, one.micro_batches + 1) if one.micro_batches % d == 0],
            most=max(p.containers),
            sync_s=sync_s,
            adds=True,
            schedule=p.schedule,
        )
