"""FuncPipe's figure 11: more bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, percent, span, times
from benchmarks.parts.papers.funcpipe.overall import DOLLARS, SECONDS, chosen, cost_usd, root
from benchmarks.parts.papers.funcpipe.peers import lambda_ml
from benchmarks.parts.papers.funcpipe.pipeline import (
    WEIGHTS,
    choose,
    step_s,
)
from benchmarks.parts.papers.funcpipe.setting import (
    MICRO_BATCH,
    MODELS,
    TITLES,
    at_lambda,
    layers,
    whole,
)
from benchmarks.parts.papers.gpus import Gpu, derived
from benchmarks.parts.papers.models import BACKWARD
from benchmarks.parts.papers.rows import given, platform, prices
from dayfly.planning.gpus import REACHED

_FACTORS = (1, 2, 4, 8, 20)


_BATCH_11 = 64
#: Memory of the function with a GPU: room for a worker and CUDA.
_FUNCTION_MIB = 4096


#: Section 5.8: at 20 times the bandwidth, FuncPipe's speed and cost over LambdaML's.
_AT_20 = {
    "resnet101": (1.122, 1.070),
    "amoebanet_d18": (1.068, 0.936),
    "amoebanet_d36": (1.140, 0.614),
    "bert_large": (1.129, 1.063),
}


_HOWS = ("recommended", "no more memory")


def _rooted(name: str) -> list[tuple[float, float]]:
    """Speed and cost over LambdaML's at 20 times, if computing grows as memory's square root."""
    at = root(at_lambda().faster(_FACTORS[-1]))
    one = lambda_ml(whole(name), _BATCH_11, at)
    _, best = chosen(name, _BATCH_11, at)
    (small,) = choose(layers(name), _BATCH_11, at, weights=(WEIGHTS[-1],), most_mib=one.total_mib)
    return [
        (one.step_s / step_s(way, at), cost_usd(way, at) / (one.step_s * one.usd_for_1_s))
        for way in (best, small)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """One GPU by itself, of a machine or of a function. usd_for_1_s: of all that it comes with."""

    name: str
    gpu: Gpu
    usd_for_1_s: float

    def step_s(self, name: str) -> float:
        """Seconds of a step of the batch, in micro-batches one after another."""
        ends = 1 if name == "bert_large" else 0
        passes_s = _BATCH_11 / MICRO_BATCH * self.gpu.step_s(name, MICRO_BATCH, ends)
        return passes_s + self.gpu.apply_s(whole(name).parameter_bytes)

    def point(self, name: str) -> tuple[float, float]:
        """Seconds and dollars of a step."""
        return self.step_s(name), self.step_s(name) * self.usd_for_1_s


def on_gpus() -> tuple[OnGpu, OnGpu]:
    """A p3.2xlarge with its V100; a function of Alibaba's with a T4, and vCPUs for a worker."""
    machine = prices("vm-p3-2xlarge").usd_for_1_s(0, 0)
    function = prices("alibaba-fc-t4").usd_for_1_s(_FUNCTION_MIB, _FUNCTION_MIB / 4096, 1.0)
    return (
        OnGpu(name="p3.2xlarge, V100", gpu=derived("V100"), usd_for_1_s=machine),
        OnGpu(name="Alibaba function, T4", gpu=derived("T4"), usd_for_1_s=function),
    )


def _gpu_facts(
    saved: Sequence[float], narrowed: Sequence[float], overflow: Sequence[bool]
) -> list[Fact]:
    """What section 5.8 says of GPUs.

    saved: share of the dollars of FuncPipe's recommendation, with the bandwidth there is, that the
    machine saves, by model.
    narrowed: dollars of the function over the machine's. overflow: whether the batch's activations
    alone are more than the V100 holds.
    """
    machine, _ = on_gpus()
    row = platform("aws-lambda")
    vcpu_usd = prices("aws-lambda").usd_for_1_s(10240, row.vcpus(10240) or 1.0) / given(
        row.vcpus(10240), "vCPUs of aws-lambda"
    )
    usd_per_flop = vcpu_usd / given(row.vcpu_flops_per_s, "FLOPs of aws-lambda")
    dearer = [
        usd_per_flop * (1 + BACKWARD) * whole(name).flops * _BATCH_11 / machine.point(name)[1]
        for name in MODELS
    ]
    return [
        Fact(
            what="a whole batch on the V100: models whose activations alone overflow its memory",
            theirs="4 of 4",
            ours=f"{sum(overflow)} of {len(overflow)}",
            agrees=all(overflow),
            why="by table 1 of the paper, 64 samples of ResNet101 need 12.4 GB of 16",
        ),
        Fact(
            what="V100 (derived) over FuncPipe's recommendation at 1x: cost reduction",
            theirs="up to 90 %",
            ours=f"{percent(min(saved))} to {percent(max(saved))}",
            agrees=abs(max(saved) - 0.9) < 0.1,
            why=f"{percent(1 - (1 - max(saved)) * REACHED)} if the V100 reached its peaks",
        ),
        Fact(
            what="dollars of computing a sample: vCPU over V100 (derived)",
            theirs="tens of times",
            ours=f"{span(dearer, 1)} x",
            agrees=max(dearer) >= 10,
            why=f"{span([one / REACHED for one in dearer], 1)} x if the V100 reached its "
            "peaks; tens of times want vCPUs slower than FuncPipe's own time makes them",
        ),
        Fact(
            what="dollars of a step: T4 function over V100 machine (both derived)",
            theirs="gap greatly narrowed",
            ours=f"{span(narrowed)} x",
            agrees=max(narrowed) < min(dearer),
            why="the T4 is sold at nearly the price of a V100's machine, and is half as fast",
        ),
    ]


def figure_11() -> Figure:
    """More bandwidth: from 70 MB/s to 20 times as much."""
    panels, facts = [], []
    machine, function = on_gpus()
    saved, narrowed, overflow = [], [], []
    for name in MODELS:
        plain, ours, bound = [], [], []
        for factor in _FACTORS:
            at = at_lambda().faster(factor)
            one = lambda_ml(whole(name), _BATCH_11, at)
            plain.append((one.step_s, one.step_s * one.usd_for_1_s))
            _, best = chosen(name, _BATCH_11, at)
            ours.append((step_s(best, at), cost_usd(best, at)))
            (small,) = choose(
                layers(name), _BATCH_11, at, weights=(WEIGHTS[-1],), most_mib=one.total_mib
            )
            bound.append((step_s(small, at), cost_usd(small, at)))
        panels.append(
            Panel(
                title=TITLES[name],
                x=SECONDS,
                y=DOLLARS,
                series=tuple(
                    Series(
                        name=title,
                        xs=tuple(x for x, _ in found),
                        ys=tuple(y for _, y in found),
                        labels=() if found is bound else tuple(f"{factor}x" for factor in _FACTORS),
                        dashed=found is bound,
                    )
                    for title, found in (
                        ("LambdaML", plain),
                        ("FuncPipe, recommended", ours),
                        ("FuncPipe, memory as LambdaML", bound),
                    )
                ),
            )
        )
        panels[-1] = replace(
            panels[-1],
            series=panels[-1].series
            + tuple(
                Series(name=f"{one.name} (derived)", xs=(x,), ys=(y,), kind="points")
                for one in (machine, function)
                for x, y in [one.point(name)]
            ),
        )
        saved.append(1 - machine.point(name)[1] / ours[0][1])
        narrowed.append(function.point(name)[1] / machine.point(name)[1])
        overflow.append(_BATCH_11 * MODELS[name] > machine.gpu.memory_mib)
        their_speed, their_cost = _AT_20[name]
        rooted = dict(zip(_HOWS, _rooted(name), strict=True))
        for how, found in zip(_HOWS, (ours, bound), strict=True):
            speed, cost = plain[-1][0] / found[-1][0], found[-1][1] / plain[-1][1]
            said, then = (", ".join(map(times, both)) for both in ((speed, cost), rooted[how]))
            cause = "cause not known: the same" if then == said else then
            facts.append(
                Fact(
                    what=f"{TITLES[name]} at 20x, {how}: speed and cost over LambdaML's",
                    theirs=f"{times(their_speed)}, {times(their_cost)}",
                    ours=said,
                    agrees=abs(speed / their_speed - 1) < 0.15
                    and abs(cost / their_cost - 1) < 0.15,
                    why=f"{cause} if computing grows as the square root of memory"
                    + ("; with no more memory, below" if how == _HOWS[0] else ""),
                )
            )
        gain = (plain[0][0] / plain[-1][0], bound[0][0] / bound[-1][0])
        facts.append(
            Fact(
                what=f"{TITLES[name]}: speed gained by 20x, LambdaML and (no more memory) FuncPipe",
                theirs="LambdaML gains more",
                ours=f"{times(gain[0])}, {times(gain[1])}",
                agrees=gain[0] > gain[1],
                why="FuncPipe has more to send here",
            )
        )
    facts += _gpu_facts(saved, narrowed, overflow)
    return Figure(
        name="funcpipe-11",
        what=f"FuncPipe, figure 11: more bandwidth, batch {_BATCH_11}",
        panels=tuple(panels),
        facts=tuple(facts),
    )
