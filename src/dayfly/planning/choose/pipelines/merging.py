"""FuncPipe's merging of layers before the search for cuts (section 4).

Neighbours become one layer until at most so many are left. Each merged layer has about an equal
share of one of the paper's three criteria:

    time           computing, forward and backward, of the first memory option
    parameters     bytes of the parameters
    activations    bytes of the activations

    layer          0  1  2  3  4  5  6
    time           4  1  1  2  1  1  2     12 in all: with 3 merged layers, each has 4, about
    merged         0 |1  1  1 |2  2  2     firsts: 0, 1, 4

Layer i goes to the merged layer in whose share the middle of i lies. A plan of merged layers takes,
costs and holds what it does with the layers themselves: only cuts within a merged layer are not
looked at. How many layers are left the paper does not print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from dayfly.errors import RequestError
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)

TIME, PARAMETERS, ACTIVATIONS = CRITERIA = "time", "parameters", "activations"
#: Layers that are searched as they are, unless said otherwise: tables of a search grow with their
#: square, and up to this many it is exact within the usual time limit.
MOST_LAYERS = 256
_AnyProblem = TypeVar("_AnyProblem", StagesOverStore, StagesOverLinks, Problem)


@dataclass(frozen=True, slots=True)
class Merging:
    """How layers are to be merged. Raises RequestError for what cannot be.

    Attributes:
        most: merged layers, at most; 2 at least, as a cut has two stages.
        by: one of `CRITERIA`, of which merged layers have equal shares, about.
    """

    most: int = MOST_LAYERS
    by: str = TIME

    def __post_init__(self) -> None:
        if self.most < 2:
            raise RequestError(f"--merge-layers {self.most}: give 2 at least, as a cut has two")
        if self.by not in CRITERIA:
            raise RequestError(
                f"--merge-layers {self.most}:{self.by}: merge by {', '.join(CRITERIA)}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `N` or `N:BY`. Raises RequestError for what is neither."""
        most, colon, by = text.partition(":")
        if not most.isdecimal():
            raise RequestError(f"--merge-layers {text!r}: give a number, as 32, or 32:parameters")
        return cls(int(most), by if colon else TIME)


@dataclass(frozen=True, slots=True)
class MergedLayers:
    """Which layers become one.

    Attributes:
        firsts: the first layer of each merged one, rising from 0.
        layers: L, of the model.
    """

    firsts: tuple[int, ...]
    layers: int

    @classmethod
    def of(cls, problem: Problem, merging: Merging | None) -> Self:
        """Returns the merged layers of a problem.

        Args:
            problem: over a store or links; over links its first way to make micro-batches counts.
            merging: how; None: each layer stays, as each does if there are no more than asked for.
        """
        layers, options = _layers_and_options(problem)
        count = len(layers)
        if merging is None or count <= merging.most:
            return cls(tuple(range(count)), count)
        if merging.by == TIME:
            one = options[0]
            shares = [f + b for f, b in zip(one.forward_s, one.backward_s, strict=True)]
        elif merging.by == PARAMETERS:
            shares = [layer.parameter_bytes for layer in layers]
        else:
            shares = [layer.activation_bytes for layer in layers]
        return cls(_equal_shares(shares, merging.most), count)

    @property
    def merges(self) -> bool:
        """Whether there are fewer than before."""
        return len(self.firsts) < self.layers

    def merge(self, problem: _AnyProblem) -> _AnyProblem:
        """Returns the problem of the merged layers; the same one if none are merged."""
        if not self.merges:
            return problem
        if isinstance(problem, StagesOverStore):
            options = tuple(map(self._option, problem.options))
            return replace(problem, layers=self._bytes(problem.layers), options=options)
        return replace(problem, micro_batches=tuple(map(self._way, problem.micro_batches)))

    def unmerged(self, plan: PipelinePlan) -> PipelinePlan:
        """Returns a plan over merged layers as one over the model's own layers, cut alike."""
        starts = tuple(self.firsts[start] for start in plan.starts)
        return replace(plan, layers=self.layers, starts=starts)

    @property
    def _parts(self) -> list[range]:
        return list(map(range, self.firsts, (*self.firsts[1:], self.layers)))

    def _bytes(self, layers: Sequence[LayerBytes]) -> tuple[LayerBytes, ...]:
        return tuple(
            LayerBytes(
                parameter_bytes=sum(layers[i].parameter_bytes for i in part),
                activation_bytes=sum(layers[i].activation_bytes for i in part),
                output_bytes=layers[part[-1]].output_bytes,
                gradient_bytes=layers[part[0]].gradient_bytes,
            )
            for part in self._parts
        )

    def _option(self, option: MemoryOption) -> MemoryOption:
        forward, backward = (
            tuple(sum(seconds[i] for i in part) for part in self._parts)
            for seconds in (option.forward_s, option.backward_s)
        )
        return replace(option, forward_s=forward, backward_s=backward)

    def _way(self, way: MicroBatches) -> MicroBatches:
        return replace(way, layers=self._bytes(way.layers), container=self._option(way.container))


def _layers_and_options(
    problem: Problem,
) -> tuple[Sequence[LayerBytes], Sequence[MemoryOption]]:
    if isinstance(problem, StagesOverLinks):
        way = problem.micro_batches[0]
        return way.layers, (way.container,)
    return problem.layers, problem.options


def _equal_shares(shares: Sequence[float], most: int) -> tuple[int, ...]:
    """Returns the first layers of at most `most` parts, whose shares have about equal sums."""
    whole, so_far, firsts, last = sum(shares), 0.0, [0], 0
    if not whole:
        shares, whole = [1.0] * len(shares), float(len(shares))  # by number
    for layer, share in enumerate(shares):
        part = min(most - 1, int(most * (so_far + share / 2) / whole))
        if layer and part > last:
            firsts.append(layer)
        last, so_far = part, so_far + share
    return tuple(firsts)
