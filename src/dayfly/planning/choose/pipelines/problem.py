"""What there is to choose among when a model is cut into stages, and its limits.

    L, i         layers, and one of them, from 0
    s, a         bytes of a layer's parameters; of its activations, of a micro-batch
    o, g         bytes of its output, and of the gradient that it sends to the layer before
    j, W_j       memory option of a stage's functions, and their bytes a second, each way
    d, M         replicas of a stage, and micro-batches of a step, all replicas' together
    s_0          bytes that a function needs without a model
    beta         by how much computing slows down while something is transferred, 1 at least
    A, B, D      Hydrozoa: replicas of the model, its shards; bytes a second between containers

`StagesOverStore` is FuncPipe's problem (section 3.4), without merging layers, `StagesOverLinks`
Hydrozoa's (sections 3.3 and 3.4). Memory is MiB as platforms count it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.errors import RequestError

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

    forward_s, backward_s: of a micro-batch, for each layer. bytes_per_s: W_j. base_bytes: s_0.
    usd_per_s, vcpus: of one function.
    """

    memory_mib: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    bytes_per_s: float
    base_bytes: float
    usd_per_s: float
    vcpus: float = 1.0

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
        """What its functions have."""
        return float(self.memory_mib * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesOverStore:
    """FuncPipe's problem: cut, memory of each stage, replicas, collective, over one store.

    degrees: all d to consider; those that do not divide micro_batches (M) are left out. pipelined:
    which scatter-reduces to consider: pipelined, plain, or both. copies: of its parameters, that a
    function holds at most, with one replica and with several. functions_at_once, vcpus_at_once: the
    platform's limits; None: no limit. mixed: whether stages may have different numbers of replicas,
    which the paper does not allow. store: its name, for words. Raises RequestError for what is
    empty, below its bounds, or does not fit the rest.
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

    def __post_init__(self) -> None:
        _check_sizes(self.layers, self.options)
        if self.functions_at_once is not None and self.functions_at_once < 1:
            raise RequestError(
                f"{self.functions_at_once} functions at once: allow 1 at least, or give no limit"
            )
        if self.vcpus_at_once is not None and self.vcpus_at_once <= 0:
            raise RequestError(
                f"{self.vcpus_at_once:g} vCPUs at once: allow more than 0, or give no limit"
            )
        if not self.pipelined or self.micro_batches < 1 or not self.divisors:
            raise RequestError(
                f"degrees {self.degrees} for {self.micro_batches} micro-batches: give one that "
                "divides them, such as 1, and a collective"
            )
        if self.beta < 1 or self.latency_s < 0 or min(self.copies) < 0:
            raise RequestError(
                f"beta is {self.beta:g}, latency {self.latency_s:g} s, copies {self.copies}: give "
                "a beta of 1 at least, and the others not below 0"
            )

    @property
    def divisors(self) -> tuple[int, ...]:
        """The degrees that divide M, rising."""
        return tuple(sorted({d for d in self.degrees if d > 0 and self.micro_batches % d == 0}))


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """One way to make micro-batches of a step's batch: they are M, all replicas' together.

    layers: bytes of a micro-batch. container: the containers, with seconds of a micro-batch.
    """

    micro_batches: int
    layers: tuple[LayerBytes, ...]
    container: MemoryOption

    def __post_init__(self) -> None:
        _check_sizes(self.layers, (self.container,))
        if self.micro_batches < 1:
            raise RequestError(f"{self.micro_batches} micro-batches of a step: give 1 at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesOverLinks:
    """Hydrozoa's problem: A x B containers and micro-batches, direct links, ring all-reduce.

    containers: all numbers A x B to consider. micro_batches: all ways to consider; A must divide M.
    ring_s_per_byte, ring_round_s: what a ring takes beside sending (its alpha and beta). copies:
    as in `StagesOverStore`. Raises RequestError for what is empty or below its bounds.
    """

    micro_batches: tuple[MicroBatches, ...]
    containers: tuple[int, ...]
    ring_s_per_byte: float = 0.0
    ring_round_s: float = 0.0
    copies: tuple[float, float] = COPIES

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
