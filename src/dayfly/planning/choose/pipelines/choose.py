"""The front of cut models: seconds against dollars of a step, to the proven optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dayfly.errors import RequestError
from dayfly.planning.choose import forked
from dayfly.planning.choose.front import Front, Point, counted
from dayfly.planning.choose.pipelines.bounds import fewest_used
from dayfly.planning.choose.pipelines.compiled import engine
from dayfly.planning.choose.pipelines.extra_memory import ExtraMemory, extra_bytes
from dayfly.planning.choose.pipelines.links import search_over_links
from dayfly.planning.choose.pipelines.model import over_store, stages_after
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.planning.choose.pipelines.search import search_over_store
from dayfly.wire.pipelines.orders import FILL_DRAIN, most_held, most_of_wave


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer may be alone in a stage.

    Attributes:
        number: of the option.
        micro_batches: of a step.
        behind: stages that the layers behind each layer make at least.
        most: replicas of a stage, at most.
        extra: as of the problem.
    """

    number: int
    option: MemoryOption
    micro_batches: int
    layers: Sequence[LayerBytes]
    replicas: int
    schedule: str
    behind: Sequence[int]
    most: int
    extra: ExtraMemory | None

    def needs_bytes(self, layer: int, copies: Sequence[float]) -> float:
        """Returns the memory that a stage of one layer needs: FuncPipe's equation 3b and what it
        leaves out. By 1F1B fewer micro-batches than mu are held where fewer stages follow."""
        one, mu = self.layers[layer], self.micro_batches // self.replicas
        waves = most_of_wave(self.most, self.replicas) * (1 + self.behind[layer])
        sent, more = extra_bytes(self.extra, layer, layer, self.number, mu, self.replicas)
        kept = most_held(self.schedule, mu, waves) * (one.activation_bytes + float(sent))
        parameters = copies[self.replicas > 1] * one.parameter_bytes
        return kept + parameters + self.option.base_bytes + float(more)


def refusal(problem: Problem) -> RequestError:
    """Of a problem without any plan."""
    if isinstance(problem, StagesOverLinks):
        return _over_links(problem)
    return _over_store(problem)


def _over_store(p: StagesOverStore) -> RequestError:
    """Either a layer fits into no function, or all of them into too many."""
    options = range(len(p.options))
    ways = [
        [(j, d) for d in p.divisors if d == most or (p.mixed and d < most) for j in options]
        for most in p.divisors
    ]
    models = [
        over_store(p, way, pipelined=p.pipelined[0], most=most)
        for way, most in zip(ways, p.divisors, strict=True)
    ]
    places, m = [], p.micro_batches
    for way, model, most in zip(ways, models, p.divisors, strict=True):
        # Of layers that fit nowhere either, each is a stage.
        behind = np.minimum(stages_after(model.deepest), np.arange(len(p.layers))[::-1]).tolist()
        places.append(
            [
                _Place(j, p.options[j], m, p.layers, d, p.schedule, behind, most, p.extra)
                for j, d in way
            ]
        )
    refused = _too_large(places, p.copies)
    if refused is not None:
        return refused
    used = [fewest_used(model)[:, -1].tolist() for model in models]
    least, vcpus = (min(column) for column in zip(*used, strict=True))
    if p.functions_at_once is not None and least > p.functions_at_once:
        return RequestError(
            f"the model fits into no fewer than {counted(least, 'function')}, and the limit is "
            f"{p.functions_at_once} at once: allow {least}, or take larger functions"
        )
    need = f"needs {vcpus / 1000:g} vCPUs at least"
    if p.functions_at_once is not None:
        need += f", and more if it is to have {p.functions_at_once} functions at most"
    return RequestError(
        f"the model fits nowhere within {p.vcpus_at_once} vCPUs at once: it {need}: allow more"
    )


def _over_links(p: StagesOverLinks) -> RequestError:
    """Either no A x B suits, or a layer fits into no container, or all of them into too many."""
    suits = [
        (way, a)
        for way in p.micro_batches
        for n in p.containers
        for a in range(1, n + 1)
        if n % a == 0 and way.micro_batches % a == 0 and n // a <= len(way.layers)
    ]
    if not suits:
        micro_batches = [way.micro_batches for way in p.micro_batches]
        most = max(len(way.layers) for way in p.micro_batches)
        return RequestError(
            f"no A x B makes {p.containers} containers with A a divisor of {micro_batches} "
            f"micro-batches and B at most {most} shards: take another number"
        )
    places = []
    for way, a in suits:
        behind = [*[1] * (len(way.layers) - 1), 0]  # at least
        m, layers, extra = way.micro_batches, way.layers, way.extra
        place = _Place(0, way.container, m, layers, a, p.schedule, behind, a, extra)
        places.append([place])
    return _too_large(places, p.copies) or RequestError(
        f"the model fits into {p.containers} containers in no way: take more of them, or larger "
        "ones"
    )


def _too_large(ways: Sequence[Sequence[_Place]], copies: Sequence[float]) -> RequestError | None:
    """The layer that fits into no function, of the way in which least is missing; None: all fit.

    ways: each with the places that a stage may have.
    """
    found = []
    for way in ways:
        missing = []
        for number in range(len(way[0].layers)):
            needs = [(place.needs_bytes(number, copies), place) for place in way]
            need, place = min(needs, key=lambda one: one[0] - one[1].option.memory_bytes)
            missing.append((need - place.option.memory_bytes, number, need, place))
        found.append(max(missing, key=lambda one: one[0]))
    over, number, need, place = min(found, key=lambda one: one[0])
    if over <= 0:
        return None
    need_mib, micro_batches = math.ceil(need / 2**20), place.micro_batches
    micro = f"micro-batch{'' if micro_batches == 1 else 'es'} of a step"
    by = "" if place.schedule == FILL_DRAIN else f" by {place.schedule}"
    return RequestError(
        f"the model fits nowhere: layer {number} alone needs {need_mib} MiB with "
        f"{counted(place.replicas, 'replica')} and {micro_batches} {micro}{by}, and functions of "
        f"{place.option.memory_mib} MiB come nearest: take functions of {need_mib} MiB, or smaller "
        "micro-batches"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was found, and how sure it is.

    Attributes:
        points: those of the front, and of the front of each schedule, given what was found before.
            As both take as long in the models, and only virtual time knows better, one schedule's
            best are worth a look where another's beat them. Empty if rivals beat all.
        gap: certified: for every plan that there is, the front or the rivals have one that takes at
            most (1 + gap) of its seconds and costs at most (1 + gap) of its dollars. 0.0: nothing
            is better, but for rounding (less than 10^-9 of it).
    """

    points: tuple[Point[PipelinePlan], ...]
    gap: float = 0.0

    @property
    def front(self) -> Front[PipelinePlan]:
        """Seconds and dollars of one step. Raises ValueError if there are no points."""
        return Front.of(self.points)


def choose(
    *problems: Problem,
    time_limit_s: float | None = None,
    compiled: bool | None = None,
    good: Sequence[PipelinePlan] = (),
    rivals: Sequence[tuple[float, float]] = (),
) -> Choice:
    """All plans that none dominates, of one problem or of several together, such as of stores.

    Raises RequestError, with the nearest that would do, if no problem has a plan, unless there are
    rivals.

    Args:
        time_limit_s: of CPU time; after so long the search ends with what it has, and a gap, unless
            it is through; a first look is taken in any case. None: it goes on until it is exact.
        compiled: whether by numba, which has to be installed; None: if it is, and worth it
            (`engine`).
        good: plans that may be as good as any, such as those of the same problems with a little
            more memory. They change nothing but how soon a search over a store is through.
        rivals: seconds and dollars of a step of plans from elsewhere, such as another platform;
            what one of them beats is not sought.
    """
    if not problems:
        raise RequestError("nothing to choose among: give a problem")
    loops = engine(compiled, problems=problems)
    deadline = None if time_limit_s is None else forked.cpu_s() + time_limit_s
    stores = [problem for problem in problems if isinstance(problem, StagesOverStore)]
    points: list[Point[PipelinePlan]] = []
    gaps = [0.0]
    if stores:
        found, gap = search_over_store(stores, loops, deadline, good, rivals)
        points, gaps = points + found, [*gaps, gap]
    alike: dict[StagesOverLinks, list[StagesOverLinks]] = {}
    for problem in problems:
        if isinstance(problem, StagesOverLinks):
            alike.setdefault(replace(problem, schedule=FILL_DRAIN), []).append(problem)
    for links in alike.values():
        found, gap = search_over_links(links, loops, deadline, rivals)
        points, gaps = points + found, [*gaps, gap]
    if not points and not rivals:
        # By 1F1B least is needed, wherever it may be used.
        raise refusal(next((one for one in problems if one.schedule != FILL_DRAIN), problems[0]))
    return Choice(points=tuple(points), gap=max(gaps))
