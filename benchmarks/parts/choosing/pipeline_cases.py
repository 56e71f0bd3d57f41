"""FuncPipe's four models cut over S3, Hydrozoa's four on 16 K80s, and random ones like them.

FuncPipe's: layers as `benchmarks.parts.papers.funcpipe.setting` counts them, none merged; eight
memory sizes, micro-batches of 4, and its four pairs of weights, of MB and seconds with P = 1
(section 5.1). Hydrozoa's: as `benchmarks.parts.papers.hydrozoa` assumes; a batch of 512 in
micro-batches of 1 to 8 samples, and the least time of a step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.parts.choosing.answer import Goal
from benchmarks.parts.choosing.cases import Case
from benchmarks.parts.choosing.pipeline_points import holds, plan_over_store
from benchmarks.parts.papers.funcpipe.pipeline import WEIGHTS
from benchmarks.parts.papers.funcpipe.setting import (
    BASE_MIB,
    MIB,
    MICRO_BATCH,
    MODELS,
    TITLES,
    Setting,
    at_lambda,
)
from benchmarks.parts.papers.hydrozoa.workers import (
    LINK_BYTES_PER_S,
    LINK_LATENCY_S,
    WORKERS,
    k80,
)
from benchmarks.parts.papers.models import BACKWARD, Layer, layers_of
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    StagesOverLinks,
    StagesOverStore,
)

DEGREES = (1, 2, 4, 8, 16, 32)
_FASTEST = Goal(alpha1=0.0, alpha2=1.0)
#: Hydrozoa's models (table 2), as `dayfly.models` calls them; samples of a step and a micro-batch.
SHARDED = {
    "resnet34": "ResNet-34",
    "resnet152": "ResNet-152",
    "vgg19": "VGG19",
    "bert_base": "BERT-12",
}
_BATCH, _SAMPLES = 512, (1, 2, 4, 8)
_K80_MIB, _COPIES = 12288, (2.0, 2.0)


def goals(at: Setting) -> tuple[Goal, ...]:
    """The paper's four pairs of weights."""
    usd_of_mb_s = at.usd_for_1_s(1024.0) / 1024.0
    return tuple(Goal(alpha1=1.0 / usd_of_mb_s, alpha2=weight) for weight in WEIGHTS)


def paper_cases(batch: int = 64, names: Sequence[str] = tuple(MODELS)) -> tuple[Case, ...]:
    """FuncPipe's models, with four pairs of weights each."""
    at = at_lambda()
    return tuple(
        Case(name=f"{TITLES[name]}, {batch}", problem=of_model(name, batch, at), goals=goals(at))
        for name in names
    )


def of_model(name: str, batch: int, at: Setting) -> StagesOverStore:
    """A model of FuncPipe's; its activations are those of table 1."""
    ends = 1 if name == "bert_large" else 0
    ours = layers_of(name, first=ends, last=ends)
    scale = MODELS[name] * MIB / sum(one.activation_bytes for one in ours)
    layers = [replace(one, activation_bytes=scale * one.activation_bytes) for one in ours]
    return _over_store(layers, batch // MICRO_BATCH, at)


def random_cases(count: int, seed: int) -> tuple[Case, ...]:
    """Others of 10 to 40 layers; weights of the paper."""
    dice, at = random.Random(seed), at_lambda()
    found: list[Case] = []
    while len(found) < count:
        problem = random_problem(dice, dice.randint(10, 40), at)
        if _has_a_plan(problem):
            name = f"random {len(found) + 1}"
            found.append(Case(name=name, problem=problem, goals=goals(at)))
    return tuple(found)


def random_problem(
    dice: random.Random, layers: int, at: Setting, *, options: Sequence[int] | None = None
) -> StagesOverStore:
    """Layers whose bytes and FLOPs differ by a factor of 30. options: of the memory sizes, by
    index; None: all."""

    def spread(usual: float) -> float:
        return usual * 30 ** dice.uniform(-0.5, 0.5)

    share = 1 / layers
    size, kept, flops = (
        dice.uniform(100, 1200) * MIB,
        dice.uniform(100, 700) * MIB,
        dice.uniform(4e9, 80e9),
    )
    made = [
        Layer(
            flops=spread(flops * share),
            parameter_bytes=int(spread(size * share)),
            output_bytes=spread(0.5 * MIB),
            activation_bytes=spread(kept * share),
            kept_bytes=0.0,
        )
        for _ in range(layers)
    ]
    problem = _over_store(made, dice.choice([4, 16, 64]), at)
    if options is not None:
        problem = replace(problem, options=tuple(problem.options[one] for one in options))
    return replace(problem, beta=dice.choice([1.0, 1.15]))


def shard_cases(names: Sequence[str] = tuple(SHARDED)) -> tuple[Case, ...]:
    """Hydrozoa's models on 16 containers."""
    return tuple(
        Case(name=SHARDED[name], problem=_over_links(layers_of(name)), goals=(_FASTEST,))
        for name in names
    )


def random_shard_cases(count: int, seed: int) -> tuple[Case, ...]:
    """Others of 10 to 30 layers."""
    dice, found = random.Random(seed), []
    for number in range(1, count + 1):
        layers = dice.randint(10, 30)
        made = [
            Layer(
                flops=10 ** dice.uniform(7.5, 9.5),
                parameter_bytes=int(10 ** dice.uniform(4, 7.5)),
                output_bytes=10 ** dice.uniform(4, 6.5),
                activation_bytes=0.0,
                kept_bytes=10 ** dice.uniform(5, 7),
            )
            for _ in range(layers)
        ]
        problem = _over_links(made)
        found.append(Case(name=f"random {number}", problem=problem, goals=(_FASTEST,)))
    return tuple(found)


def _has_a_plan(problem: StagesOverStore) -> bool:
    """Whether each layer by itself fits the largest functions."""
    count, largest = len(problem.layers), len(problem.options) - 1
    return any(
        holds(problem, plan_over_store(problem, range(1, count), [largest] * count, degree))
        for degree in problem.divisors
    )


def _over_store(layers: Sequence[Layer], micro_batches: int, at: Setting) -> StagesOverStore:
    options = []
    for memory in at.memory_mib:
        forward = tuple(MICRO_BATCH * one.flops / at.flops(memory) for one in layers)
        options.append(
            MemoryOption(
                memory_mib=memory,
                forward_s=forward,
                backward_s=tuple(BACKWARD * one for one in forward),
                bytes_per_s=at.rate(1),
                base_bytes=float(BASE_MIB * MIB),
                usd_per_s=at.usd_for_1_s(memory),
            )
        )
    sizes = tuple(_bytes(a, MICRO_BATCH) for a in _sent_back(layers))
    return StagesOverStore(
        layers=sizes,
        options=tuple(options),
        degrees=DEGREES,
        micro_batches=micro_batches,
        latency_s=at.latency_s,
        store="s3",
    )


def _over_links(layers: Sequence[Layer]) -> StagesOverLinks:
    ways = []
    for samples in _SAMPLES:
        forward = tuple(samples * one.flops / k80().flops_per_s for one in layers)
        container = MemoryOption(
            memory_mib=_K80_MIB,
            forward_s=forward,
            backward_s=tuple(BACKWARD * one for one in forward),
            bytes_per_s=LINK_BYTES_PER_S,
            base_bytes=float(BASE_MIB * MIB),
            usd_per_s=k80().usd_per_hour / 3600,
        )
        held = [replace(one, activation_bytes=one.kept_bytes) for one in layers]
        ways.append(
            MicroBatches(
                micro_batches=_BATCH // samples,
                layers=tuple(_bytes(pair, samples) for pair in _sent_back(held)),
                container=container,
            )
        )
    return StagesOverLinks(
        micro_batches=tuple(ways),
        containers=(WORKERS[-1],),
        ring_round_s=LINK_LATENCY_S,
        copies=_COPIES,
    )


def _sent_back(layers: Sequence[Layer]) -> list[tuple[Layer, float]]:
    """Each layer, with the bytes of its gradient: as large as the output of the layer before."""
    sent = [0.0, *(one.output_bytes for one in layers[:-1])]
    return list(zip(layers, sent, strict=True))


def _bytes(pair: tuple[Layer, float], samples: int) -> LayerBytes:
    layer, gradient = pair
    return LayerBytes(
        parameter_bytes=float(layer.parameter_bytes),
        activation_bytes=samples * layer.activation_bytes,
        output_bytes=samples * layer.output_bytes,
        gradient_bytes=samples * gradient,
    )
