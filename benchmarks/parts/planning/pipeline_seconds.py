"""Seconds in which the whole front of a cut model is found, by number of layers.

    python -m benchmarks.parts.planning.pipeline_seconds [--numpy] [LAYERS ...]

Instances are synthetic, in the shapes of FuncPipe's four models: bytes of table 1, in micro-batches
of 4 samples, spread over any number of layers by chance (seeded); Lambda's memory sizes of section
5.1, its price, and 70 MB/s and 40 ms to the store. In CNNs parameters grow towards the end, and
activations fall; a transformer's layers are alike. How long a search takes varies a lot with them,
so there are several of each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.planning.choose.arrays import Array
from dayfly.planning.choose.pipelines.choose import Choice, choose
from dayfly.planning.choose.pipelines.problem import LayerBytes, MemoryOption, StagesOverStore

MEMORY_MIB = (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240)
DEGREES = (1, 2, 4, 8, 16, 32)
MICRO_BATCHES = (16, 64)
SAMPLES = 4
_ONE_VCPU_MIB, _MOST_VCPUS = 1769, 6
_USD_PER_GB_S = 0.0000166667


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of a model: table 1, and what it does not have.

    parameter_mb; activation_mb and boundary_mb (a usual layer's output): of a sample. forward_s: of
    a micro-batch on one vCPU. alike: whether its layers are.
    """

    parameter_mb: float
    activation_mb: float
    boundary_mb: float
    forward_s: float
    alike: bool = False


SHAPES = {
    "resnet101": Shape(parameter_mb=170, activation_mb=198, boundary_mb=1.0, forward_s=2.0),
    "amoebanet_d18": Shape(parameter_mb=476, activation_mb=432, boundary_mb=2.0, forward_s=4.0),
    "amoebanet_d36": Shape(parameter_mb=900, activation_mb=697, boundary_mb=2.0, forward_s=7.0),
    "bert_large": Shape(
        parameter_mb=1153, activation_mb=263, boundary_mb=0.5, forward_s=6.0, alike=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One search. points: of the front."""

    shape: str
    micro_batches: int
    seed: int
    seconds: float
    points: int
    gap: float


def instance(
    shape: Shape,
    layers: int,
    *,
    micro_batches: int,
    seed: int = 0,
    memory_mib: Sequence[int] = MEMORY_MIB,
    mixed: bool = False,
) -> StagesOverStore:
    """A model of so many layers."""
    chance = np.random.default_rng(seed)

    def parts(falls: bool) -> Array:
        """Of each layer, together 1."""
        if shape.alike:
            weights = chance.gamma(20.0, 1.0, layers)
        else:
            slope = np.linspace(2.0, 0.3, layers)
            weights = chance.gamma(2.0, 1.0, layers) * (slope if falls else slope[::-1])
        found: Array = weights / weights.sum()
        return found

    parameters = np.rint(1e6 * shape.parameter_mb * parts(falls=False))
    activations = np.rint(1e6 * SAMPLES * shape.activation_mb * parts(falls=True))
    outputs = np.rint(1e6 * SAMPLES * shape.boundary_mb * layers * parts(falls=True))
    forward = shape.forward_s * parts(falls=True)
    options = []
    for size in memory_mib:
        seconds = forward / min(size / _ONE_VCPU_MIB, _MOST_VCPUS) ** 0.92
        options.append(
            MemoryOption(
                memory_mib=size,
                forward_s=tuple(seconds.tolist()),
                backward_s=tuple((2 * seconds).tolist()),
                bytes_per_s=70e6 * min(1.0, 0.4 + size / 5000),
                base_bytes=300.0 * 2**20,
                usd_per_s=size / 1024 * _USD_PER_GB_S,
            )
        )
    return StagesOverStore(
        layers=tuple(
            LayerBytes(parameter_bytes=s, activation_bytes=a, output_bytes=o, gradient_bytes=o)
            for s, a, o in zip(
                parameters.tolist(), activations.tolist(), outputs.tolist(), strict=True
            )
        ),
        options=tuple(options),
        degrees=DEGREES,
        micro_batches=micro_batches,
        latency_s=0.04,
        mixed=mixed,
    )


def searched(
    layers: int, *, seeds: Sequence[int] = (0,), compiled: bool | None = None
) -> Iterator[Searched]:
    """All shapes and micro-batches. compiled: as `choose` has it; compile before you measure."""
    for name, shape in SHAPES.items():
        for micro_batches in MICRO_BATCHES:
            for seed in seeds:
                problem = instance(shape, layers, micro_batches=micro_batches, seed=seed)
                seconds, choice = timed(problem, compiled=compiled)
                yield Searched(
                    shape=name,
                    micro_batches=micro_batches,
                    seed=seed,
                    seconds=seconds,
                    points=len(choice.front.points),
                    gap=choice.gap,
                )


def timed(problem: StagesOverStore, *, compiled: bool | None = None) -> tuple[float, Choice]:
    """Seconds of a search, and what it found."""
    started = time.perf_counter()
    choice = choose(problem, compiled=compiled)
    return time.perf_counter() - started, choice


def warm_up(compiled: bool) -> float:
    """Seconds of a first, small search: with numba it compiles, or reads its cache."""
    return timed(instance(SHAPES["resnet101"], 6, micro_batches=16), compiled=compiled)[0]


def main(arguments: Sequence[str]) -> None:
    """Prints the table."""
    compiled = "--numpy" not in arguments
    layers = [int(one) for one in arguments if one.isdigit()] or [20, 50, 100, 200]
    print(f"first search {warm_up(compiled):.2f} s", flush=True)
    print("| layers | median s | max s | points, median |\n|---|---|---|---|")
    for count in layers:
        found = list(searched(count, seeds=range(3), compiled=compiled))
        taken = [one.seconds for one in found]
        longest = max(found, key=lambda one: one.seconds)
        points = statistics.median(one.points for one in found)
        print(
            f"| {count} | {statistics.median(taken):.2f} | {max(taken):.2f} ({longest.shape}, "
            f"M={longest.micro_batches}) | {points:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
