"""FuncPipe's merging of layers, without which its program takes hours (section 4).

Neighbours become one layer until at most so many are left, of about equal computation time: of
three criteria the paper's best. How many are left it does not print. Nothing else changes: a plan
of merged layers takes and costs what it does with the layers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dayfly.planning.choose.pipelines.problem import LayerBytes, PipelinePlan, StagesOverStore


@dataclass(frozen=True, slots=True)
class Merged:
    """problem: with fewer layers. firsts: the first layer of each. whole: the problem itself."""

    problem: StagesOverStore
    firsts: tuple[int, ...]
    whole: StagesOverStore

    def unmerged(self, plan: PipelinePlan) -> PipelinePlan:
        """The same cuts in the whole problem."""
        starts = tuple(self.firsts[start] for start in plan.starts)
        return replace(plan, layers=len(self.whole.layers), starts=starts)


def merged(problem: StagesOverStore, groups: int | None) -> Merged:
    """At most so many layers: each goes to the group in whose part of the time its middle lies.

    Times are those of the first memory option. None: all stay, as they do if there are no more.
    """
    if groups is None or len(problem.layers) <= groups:
        return Merged(problem, tuple(range(len(problem.layers))), problem)
    option = problem.options[0]
    times = [f + b for f, b in zip(option.forward_s, option.backward_s, strict=True)]
    whole_s, so_far, firsts = sum(times) or 1.0, 0.0, [0]
    last = 0
    for layer, time_s in enumerate(times):
        group = min(groups - 1, int(groups * (so_far + time_s / 2) / whole_s))
        if layer and group > last:
            firsts.append(layer)
        last, so_far = group, so_far + time_s
    parts = [range(a, b) for a, b in zip(firsts, [*firsts[1:], len(times)], strict=True)]
    options = tuple(
        replace(one, forward_s=_sums(one.forward_s, parts), backward_s=_sums(one.backward_s, parts))
        for one in problem.options
    )
    layers = tuple(_together([problem.layers[i] for i in part]) for part in parts)
    return Merged(replace(problem, layers=layers, options=options), tuple(firsts), problem)


def _together(layers: Sequence[LayerBytes]) -> LayerBytes:
    return LayerBytes(
        parameter_bytes=sum(one.parameter_bytes for one in layers),
        activation_bytes=sum(one.activation_bytes for one in layers),
        output_bytes=layers[-1].output_bytes,
        gradient_bytes=layers[0].gradient_bytes,
    )


def _sums(values: Sequence[float], parts: Sequence[range]) -> tuple[float, ...]:
    return tuple(sum(values[i] for i in part) for part in parts)
