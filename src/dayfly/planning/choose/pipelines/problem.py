"""What there is to choose among when a model is cut into stages, its limits, and what a plan takes.

    L, i         layers, and one of them, from 0
    s, a         bytes of a layer's parameters; of its activations, of a micro-batch
    o, g         bytes of its output, and of the gradient that it sends to the layer before
    j, W_j       memory option of a stage's functions, and their bytes a second, each way
    d, M         replicas of a stage, and micro-batches of a step, all replicas' together
    s_0          bytes that a function needs without a model
    beta         by how much computing slows down while something is transferred, 1 at least
    A, B, D      Hydrozoa: replicas of the model, its shards; bytes a second between containers

`StagesOverStore` is FuncPipe's problem (section 3.4), `StagesOverLinks` Hydrozoa's (sections 3.3
and 3.4); `merging` makes one of fewer layers. Memory is MiB as platforms count it.

The time of a step is FuncPipe's equation 7, or Hydrozoa's section 3.4 (corrected); its dollars are
that time for each function of each stage, at its price (FuncPipe equation 6). Equation 7 is taken
stage by stage, which is quicker than layer by layer. So stages may have different numbers of
replicas, which no paper has: each stage's own mu = M/d counts where it, or its side of a boundary,
sets the pace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.errors import RequestError
from dayfly.planning.choose.formulas import gamma_and_delta, pipeline_s, synchronisation_s
from dayfly.planning.choose.pipelines.extra_memory import ExtraMemory, extra_bytes
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.decline import Decline, left_of_bandwidth
from dayfly.wire.pipelines.orders import FILL_DRAIN, most_held, most_of_wave
from dayfly.wire.streams import HostLink

#: FuncPipe's copies of the parameters (3b, 4 - 2 y_1): with one replica, and with several.
COPIES = (2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """s, a, o and g of a layer; all but s of a micro-batch."""

    parameter_bytes: float
    activation_bytes: float
    output_bytes: float
    gradient_bytes: float

    def __post_init__(self) -> None:
        if min(getattr(self, name) for name in self.__slots__) < 0:
            raise RequestError(f"a layer has {self}: give no bytes below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOption:
    """Functions, or containers, that a stage may have.

    Attributes:
        forward_s, backward_s: of a micro-batch, for each layer.
        bytes_per_s: W_j.
        base_bytes: s_0.
        usd_per_s, vcpus: of one function.
        room_bytes: of the memory that s_0, a and s are in, such as a GPU's; None: memory_mib.
    """

    memory_mib: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    bytes_per_s: float
    base_bytes: float
    usd_per_s: float
    vcpus: float = 1.0
    room_bytes: float | None = None

    def __post_init__(self) -> None:
        if min((*self.forward_s, *self.backward_s, self.base_bytes), default=0.0) < 0:
            raise RequestError(
                f"functions of {self.memory_mib} MiB have seconds or bytes below 0: give none"
            )
        if min(self.memory_mib, self.bytes_per_s, self.usd_per_s, self.vcpus) <= 0:
            raise RequestError(
                f"functions of {self.memory_mib} MiB, {self.bytes_per_s:g} bytes/s, "
                f"${self.usd_per_s:g} a second, {self.vcpus:g} vCPUs: give more than 0 of each"
            )

    @property
    def memory_bytes(self) -> float:
        """What its functions have for a, s and s_0."""
        return float(self.memory_mib * 2**20) if self.room_bytes is None else self.room_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesOverStore:
    """FuncPipe's problem: cut, memory of each stage, replicas, collective, over one store.

    The replicas of a stage share it, and their hosts, as they all transfer at once; that stages
    share them, too, is left to virtual time.

    Raises RequestError for what is empty, below its bounds, or does not fit the rest.

    Attributes:
        degrees: all d to consider; those that do not divide micro_batches (M) are left out.
        pipelined: which scatter-reduces to consider: pipelined, plain, or both.
        copies: of its parameters, that a function holds at most, with one replica and with several.
        functions_at_once, vcpus_at_once: the platform's limits; None: no limit.
        mixed: whether stages may have different numbers of replicas, which the paper does not
            allow.
        store: its name, for words.
        store_bytes_per_s: what it carries each way for all functions together; infinite: any.
        decline: of W_j, by the functions of all stages (`planning.decline`).
        host: what functions on one machine share; None: nothing.
        schedule: order of a step's passes, which decides how many micro-batches a stage holds.
        extra: memory that the equation leaves out; None: nothing.
    """

    layers: tuple[LayerBytes, ...]
    options: tuple[MemoryOption, ...]
    degrees: tuple[int, ...]
    micro_batches: int
    latency_s: float = 0.0
    beta: float = 1.0
    pipelined: tuple[bool, ...] = (True,)
    copies: tuple[float, float] = COPIES
    functions_at_once: int | None = None
    vcpus_at_once: float | None = None
    mixed: bool = False
    store: str = ""
    store_bytes_per_s: float = math.inf
    decline: Decline = ()
    host: HostLink | None = None
    schedule: str = FILL_DRAIN
    extra: ExtraMemory | None = None

    def __post_init__(self) -> None:
        _check_sizes(self.layers, self.options)
        most, vcpus = self.functions_at_once, self.vcpus_at_once
        if most is not None and most < 1:
            raise RequestError(f"{most} functions at once: allow 1 at least, or give no limit")
        if vcpus is not None and vcpus <= 0:
            raise RequestError(f"{vcpus:g} vCPUs at once: allow more than 0, or give no limit")
        if not self.pipelined or self.micro_batches < 1 or not self.divisors:
            raise RequestError(
                f"degrees {self.degrees} for {self.micro_batches} micro-batches: give one that "
                "divides them, such as 1, and a collective"
            )
        if (rate := self.store_bytes_per_s) <= 0:
            raise RequestError(f"a store of {rate:g} bytes/s for all: give more than 0")
        if self.beta < 1 or self.latency_s < 0 or min(self.copies) < 0:
            raise RequestError(
                f"beta is {self.beta:g}, latency {self.latency_s:g} s, copies {self.copies}: give "
                "a beta of 1 at least, and the others not below 0"
            )

    @property
    def divisors(self) -> tuple[int, ...]:
        """The degrees that divide M, rising."""
        return tuple(sorted({d for d in self.degrees if d > 0 and self.micro_batches % d == 0}))

    def bytes_per_s(
        self, option: MemoryOption, replicas: int, functions: int | None = None
    ) -> float:
        """Returns what a function has each way: what is left of W_j with so many functions of all
        stages (None: all of it), at most its share of store and host with its stage's replicas."""
        left = 1.0 if functions is None else left_of_bandwidth(self.decline, functions)
        own = min(left * option.bytes_per_s, self.store_bytes_per_s / replicas)
        return own if self.host is None else min(own, self.host.share(replicas))

    @property
    def most_functions(self) -> int:
        """Of a plan."""
        most = len(self.layers) * max(self.divisors)
        return most if self.functions_at_once is None else min(most, self.functions_at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """One way to make micro-batches of a step's batch: they are M, all replicas' together.

    Attributes:
        layers: bytes of a micro-batch.
        container: the containers, with seconds of a micro-batch.
        extra: as in `StagesOverStore`.
    """

    micro_batches: int
    layers: tuple[LayerBytes, ...]
    container: MemoryOption
    extra: ExtraMemory | None = None

    def __post_init__(self) -> None:
        _check_sizes(self.layers, (self.container,))
        if self.micro_batches < 1:
            raise RequestError(f"{self.micro_batches} micro-batches of a step: give 1 at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesOverLinks:
    """Hydrozoa's problem: A x B containers and micro-batches, direct links, ring all-reduce.

    Raises RequestError for what is empty or below its bounds.

    Attributes:
        containers: all numbers A x B to consider.
        micro_batches: all ways to consider; A must divide M.
        ring_s_per_byte, ring_round_s: what a ring takes beside sending (its alpha and beta).
        copies, decline, host, schedule: as in `StagesOverStore`.
    """

    micro_batches: tuple[MicroBatches, ...]
    containers: tuple[int, ...]
    ring_s_per_byte: float = 0.0
    ring_round_s: float = 0.0
    copies: tuple[float, float] = COPIES
    decline: Decline = ()
    host: HostLink | None = None
    schedule: str = FILL_DRAIN

    def __post_init__(self) -> None:
        if not self.micro_batches or not self.containers or min(self.containers) < 1:
            raise RequestError(
                f"{len(self.micro_batches)} ways to make micro-batches, {self.containers} "
                "containers: give one at least of each"
            )
        if len({way.micro_batches for way in self.micro_batches}) < len(self.micro_batches):
            raise RequestError("two ways make as many micro-batches: give each number once")
        if min(self.ring_s_per_byte, self.ring_round_s, *self.copies) < 0:
            raise RequestError("a ring takes less than no time, or holds less than nothing")

    def bytes_per_s(self, way: MicroBatches, containers: int) -> float:
        """Returns D, what is left of a container's when there are so many, which share hosts."""
        own = way.container.bytes_per_s * left_of_bandwidth(self.decline, containers)
        return own if self.host is None else min(own, self.host.share(containers))


Problem = StagesOverStore | StagesOverLinks


def _check_sizes(layers: Sequence[LayerBytes], options: Sequence[MemoryOption]) -> None:
    if not layers or not options:
        raise RequestError("a cut needs layers and memory sizes: give one of each at least")
    for option in options:
        if {len(option.forward_s), len(option.backward_s)} != {len(layers)}:
            raise RequestError(
                f"functions of {option.memory_mib} MiB have seconds of {len(option.forward_s)} and "
                f"{len(option.backward_s)} layers of {len(layers)}: give one for each layer"
            )


def over_store(problems: Sequence[Problem]) -> dict[tuple[int, str], StagesOverStore]:
    """Returns the problems over a store, by the way that a step goes through (`PipelinePlan.way`).

    Args:
        problems: of one job, each of another way.
    """
    return {
        (one.micro_batches, one.schedule): one
        for one in problems
        if isinstance(one, StagesOverStore)
    }


def step_s(problem: Problem, plan: PipelinePlan) -> float:
    """Seconds of a step."""
    if isinstance(problem, StagesOverLinks):
        return _over_links_s(problem, plan)
    return _over_store_s(problem, plan)


def usd_per_s(problem: Problem, plan: PipelinePlan) -> float:
    """Of all functions together."""
    if isinstance(problem, StagesOverLinks):
        return plan.functions * of(problem, plan).container.usd_per_s
    prices = [problem.options[option].usd_per_s for option in plan.options]
    return sum(map(float.__mul__, prices, map(float, plan.replicas)))


def step_usd(problem: Problem, plan: PipelinePlan) -> float:
    """Dollars of a step."""
    return step_s(problem, plan) * usd_per_s(problem, plan)


def memory_bytes(problem: Problem, plan: PipelinePlan) -> tuple[float, ...]:
    """Returns the memory that a function of each stage needs: mu a + copies s + s_0 (FuncPipe 3b),
    and what that leaves out. By 1F1B as many micro-batches count in place of mu as a stage holds at
    once (`wire.pipelines.flow.Flow.held`)."""
    if isinstance(problem, StagesOverLinks):
        way = of(problem, plan)
        layers, extra = way.layers, way.extra
        bases = [way.container.base_bytes] * len(plan.options)
    else:
        layers, extra = problem.layers, problem.extra
        bases = [problem.options[one].base_bytes for one in plan.options]
    held = []
    for at, (stage, replicas, base_bytes) in enumerate(
        zip(plan.stages, plan.replicas, bases, strict=True)
    ):
        copies, mu = problem.copies[replicas > 1], plan.micro_batches // replicas
        each = most_of_wave(max(plan.replicas), replicas)
        many = most_held(problem.schedule, mu, each * (len(plan.options) - at))
        sent, more = extra_bytes(extra, stage[-1], stage[0], plan.options[at], mu, replicas)
        kept = many * (sum(layers[i].activation_bytes for i in stage) + float(sent))
        parameters = copies * sum(layers[i].parameter_bytes for i in stage)
        held.append(kept + parameters + base_bytes + float(more))
    return tuple(held)


def of(problem: StagesOverLinks, plan: PipelinePlan) -> MicroBatches:
    """The micro-batches of a plan. Raises ValueError if the problem has no such."""
    found = [one for one in problem.micro_batches if one.micro_batches == plan.micro_batches]
    if not found:
        raise ValueError(f"no way to make {plan.micro_batches} micro-batches")
    return found[0]


def _over_links_s(problem: StagesOverLinks, plan: PipelinePlan) -> float:
    way, replicas = of(problem, plan), plan.replicas[0]
    rate = problem.bytes_per_s(way, plan.functions)
    passes_s = pipeline_s(
        [sum(way.container.forward_s[i] for i in stage) for stage in plan.stages],
        [sum(way.container.backward_s[i] for i in stage) for stage in plan.stages],
        [way.layers[start - 1].output_bytes / rate for start in plan.starts],
        plan.micro_batches // replicas,
    )
    return passes_s + max(
        synchronisation_s(
            sum(way.layers[i].parameter_bytes for i in stage),
            replicas,
            rate,
            problem.ring_s_per_byte,
            problem.ring_round_s,
        )
        for stage in plan.stages
    )


def _over_store_s(problem: StagesOverStore, plan: PipelinePlan) -> float:
    """Equation 7, from the last stage to the first; see above."""
    forward_s = lag_f = behind_s = lag_b = latest_s = 0.0
    above = None
    for number in reversed(range(len(plan.options))):
        option = problem.options[plan.options[number]]
        stage, replicas = plan.stages[number], plan.replicas[number]
        more = plan.micro_batches // replicas - 1
        mine = problem.bytes_per_s(option, replicas, plan.functions)
        f = problem.beta * sum(option.forward_s[i] for i in stage)
        b = problem.beta * sum(option.backward_s[i] for i in stage)
        if above is not None:  # the boundary behind this stage
            rates = [(mine, more), above]
            for size, backward in (
                (problem.layers[stage[-1]].output_bytes, False),
                (problem.layers[stage[-1] + 1].gradient_bytes, True),
            ):
                ways = [(size / rate + problem.latency_s, mu) for rate, mu in rates]
                total, lag = sum(s for s, _ in ways), max(s * mu for s, mu in ways)
                if backward:
                    behind_s, lag_b = behind_s + total, max(lag_b, lag)
                else:
                    forward_s, lag_f = forward_s + total, max(lag_f, lag)
        forward_s, lag_f = forward_s + f, max(lag_f, more * f)
        behind_s, lag_b = behind_s + b, max(lag_b, more * b)
        sync_s = 0.0
        if replicas > 1:
            gamma, delta = gamma_and_delta(replicas, pipelined=plan.pipelined)
            size = sum(problem.layers[i].parameter_bytes for i in stage)
            sync_s = gamma * size / mine + delta * problem.latency_s
        latest_s = max(latest_s, behind_s + lag_b + sync_s)
        above = (mine, more)
    return forward_s + lag_f + latest_s
