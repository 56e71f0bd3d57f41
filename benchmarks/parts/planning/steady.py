"""Models whose layers take the same CPU time in every pass, however fast the machine is just now.

    layer      | its own computing | fill, until as much CPU time is spent as it is to take |

On a machine that others use, too, the same pass takes half as long again from one second to the
next, and what is predicted from passes is as wrong, whatever predicts. Here layers compute what
they do, and then small products until their time is up: parameters, messages and memory are the
job's, and a plan is right or wrong by all that is not the machine's speed.

Beside profiles that are kept lie the times that layers have, so that they predict runs of another
day, too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.parts.planning.jobs import Work
from dayfly.errors import RequestError
from dayfly.training.stages.layers import layers_of

#: Passes of each of two batches, by whose medians layers get their time, and how many times these:
#: on a machine that others use, few passes take longer.
_PASSES, _TIMES = 24, 2.2
#: A product that fills: some 30 us, in which other threads may run.
_FILLING = torch.full((96, 96), 1e-3)
_FILLED = torch.empty_like(_FILLING)


@dataclass(frozen=True, slots=True)
class Takes:
    """CPU seconds of a layer's pass: fixed_s, and each_s more a sample."""

    fixed_s: float = 0.0
    each_s: float = 0.0

    def of(self, samples: int) -> float:
        """With so many samples."""
        return self.fixed_s + self.each_s * samples


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer's two passes take."""

    forward: Takes = Takes()
    backward: Takes = Takes()


class SteadyLayer(nn.Module):
    """A layer that takes as long as it is said to, or its own time if that is more.

    forward_s, backward_s: CPU seconds of the last passes without what fills them; 0 before the
    first. The backward pass of a model's first layer is filled only if what it is given has
    gradients, or could have.
    """

    def __init__(self, layer: nn.Module, takes: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.takes = takes
        self.forward_s = self.backward_s = 0.0
        self._back = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        began, samples = time.thread_time(), len(x)
        if torch.is_grad_enabled():
            if x.is_floating_point() and not x.requires_grad:
                x = x.detach().requires_grad_()
            x = _Last.apply(x, self, samples)
        out = self.layer(x)
        if torch.is_grad_enabled():
            out = _First.apply(out, self)
        self.forward_s = time.thread_time() - began
        fill(began + self.takes.forward.of(samples))
        return out  # type: ignore[no-any-return]  # torch.autograd.Function.apply has no type

    def back_begins(self) -> None:
        """The gradient of what it put out is there."""
        self._back = time.thread_time()

    def back_ends(self, samples: int) -> None:
        """The gradient of what was put in is there."""
        self.backward_s = time.thread_time() - self._back
        fill(self._back + self.takes.backward.of(samples))


class _First(torch.autograd.Function):
    """Nothing, and the first that a layer's backward pass comes to."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, layer: SteadyLayer) -> torch.Tensor:
        ctx.layer = layer
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        ctx.layer.back_begins()
        return gradient, None


class _Last(torch.autograd.Function):
    """Nothing, and the last that a layer's backward pass comes to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: SteadyLayer, samples: int) -> torch.Tensor:
        ctx.layer, ctx.samples = layer, samples
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        ctx.layer.back_ends(ctx.samples)
        return gradient, None, None


def fill(until_s: float) -> None:
    """Compute until the thread's CPU time is that."""
    with torch.no_grad():
        while time.thread_time() < until_s:
            torch.mm(_FILLING, _FILLING, out=_FILLED)


def steady_model(make: Callable[[], nn.Module], takes: Sequence[Layer]) -> nn.Sequential:
    """The layers of a model that `make` makes, each to take as long as it says."""
    layers = layers_of(make())
    return nn.Sequential(*(SteadyLayer(*one) for one in zip(layers, takes, strict=True)))


def steady(work: Work, keep: Path | None = None) -> Work:
    """The work with layers that take longer than they do on this machine now, found by passes.

    keep: a directory where their times lie, or are put. Raises RequestError for times that are
    none, and where profiles are whose layers' times are not.
    """
    file = None if keep is None else keep / f"{work.name}.layers.json"
    if file is None:
        takes = _found(work)
    elif file.exists():
        takes = _read(file, len(layers_of(work.model())))
    elif others := sorted(one.name for one in file.parent.glob(f"{work.name}-*.json")):
        raise RequestError(
            f"{file} is not there, which says what the layers of {others[0]} take: take the "
            f"profiles of {work.name} away, and they are made anew"
        )
    else:
        takes = _found(work)
        sides = [[[one.fixed_s, one.each_s] for one in (a.forward, a.backward)] for a in takes]
        file.write_text(json.dumps(sides) + "\n", encoding="utf-8")
    return replace(work, model=partial(steady_model, work.model, takes))


def _read(file: Path, count: int) -> list[Layer]:
    """What was written of so many layers. Raises RequestError, which names the file."""
    try:
        sides = json.loads(file.read_text(encoding="utf-8"))
        takes = [
            Layer(Takes(float(a), float(b)), Takes(float(c), float(d))) for (a, b), (c, d) in sides
        ]
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise RequestError(
            f"{str(file)!r} is no list of layers' times: for each layer give "
            "[[fixed_s, each_s], [fixed_s, each_s]]"
        ) from error
    times = (s for a in takes for one in (a.forward, a.backward) for s in (one.fixed_s, one.each_s))
    if len(takes) != count or not all(0 <= s < math.inf for s in times):
        raise RequestError(f"{str(file)!r}: give times from 0, of {count} layers")
    return takes


def _found(work: Work) -> list[Layer]:
    """What layers take, by passes, and longer."""
    count = len(layers_of(work.model()))
    model = steady_model(work.model, [Layer()] * count)
    whole, part = work.batch_size, work.few
    own = [_medians(_passes(work, model, samples)) for samples in (part, whole)]
    takes = []
    for few, many in zip(*own, strict=True):
        sides = zip(few, many, strict=True)
        takes.append(Layer(*(_line((part, less), (whole, more)) for less, more in sides)))
    return takes


def _passes(work: Work, model: nn.Sequential, samples: int) -> list[list[tuple[float, float]]]:
    """What each layer took forward and backward, pass by pass."""
    one_pass, found = work.passes_of(model, samples), []
    for _ in range(_PASSES + 1):
        one_pass()
        found.append([(one.forward_s, one.backward_s) for one in _layers(model)])
    return found[1:]  # the first one makes what the others use again


def _layers(model: nn.Sequential) -> list[SteadyLayer]:
    return [layer for layer in model if isinstance(layer, SteadyLayer)]


def _medians(passes: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, ...]]:
    """Of each layer, forward and backward."""
    return [
        tuple(median(times) for times in zip(*of_layer, strict=True))
        for of_layer in zip(*passes, strict=True)
    ]


def _line(few: tuple[int, float], many: tuple[int, float]) -> Takes:
    """Through both, as far as more samples take longer; times what layers get."""
    (part, less_s), (whole, more_s) = few, many
    each_s = max(0.0, more_s - less_s) / (whole - part)
    return Takes(_TIMES * max(0.0, more_s - each_s * whole), _TIMES * each_s)
