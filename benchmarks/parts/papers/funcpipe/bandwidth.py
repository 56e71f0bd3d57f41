"""FuncPipe's figure 11: more bandwidth."""

from __future__ import annotations

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.funcpipe.overall import DOLLARS, SECONDS, chosen, cost_usd, root
from benchmarks.parts.papers.funcpipe.peers import lambda_ml
from benchmarks.parts.papers.funcpipe.pipeline import (
    WEIGHTS,
    choose,
    step_s,
)
from benchmarks.parts.papers.funcpipe.setting import (
    MODELS,
    TITLES,
    at_lambda,
    layers,
    whole,
)

_FACTORS = (1, 2, 4, 8, 20)


_BATCH_11 = 64


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


def figure_11() -> Figure:
    """More bandwidth: from 70 MB/s to 20 times as much."""
    panels, facts = [], []
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
        their_speed, their_cost = _AT_20[name]
        rooted = dict(zip(_HOWS, _rooted(name), strict=True))
        for how, found in zip(_HOWS, (ours, bound), strict=True):
            speed, cost = plain[-1][0] / found[-1][0], found[-1][1] / plain[-1][1]
            facts.append(
                Fact(
                    what=f"{TITLES[name]} at 20x, {how}: speed and cost over LambdaML's",
                    theirs=f"{times(their_speed)}, {times(their_cost)}",
                    ours=f"{times(speed)}, {times(cost)}",
                    agrees=abs(speed / their_speed - 1) < 0.15
                    and abs(cost / their_cost - 1) < 0.15,
                    why=f"{times(rooted[how][0])}, {times(rooted[how][1])} if computing grows as "
                    "the square root of memory"
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
    return Figure(
        name="funcpipe-11",
        what=f"FuncPipe, figure 11: more bandwidth, batch {_BATCH_11}",
        panels=tuple(panels),
        facts=tuple(facts),
    )
