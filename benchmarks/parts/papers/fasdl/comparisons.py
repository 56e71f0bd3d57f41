"""FasDL's figures 10, 11 and 14: its predictions, LambdaML's sums beside K-REDUCE, one function.

The paper's formulas, and what is assumed, stand in `costs`. Figure 12 is about learning, which
virtual time knows nothing of; how many epochs the same dollars buy is among figure 11's facts.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from benchmarks.parts.papers.fasdl.costs import (
    MOST_MIB,
    USUAL,
    Assumed,
    Taken,
    alone,
    epochs_of,
    fastest,
    needed_mib,
    summed_s,
)
from benchmarks.parts.papers.fasdl.workloads import WORKLOADS, Workload, make_setup
from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, percent, times
from dayfly.planning.choose.formulas import hybrid_step_s

_PRINTED = Assumed(printed=True)
#: Section VIII-D: percent of the dollars saved where ScatterReduce and AllReduce choose, too.
_SAVED = {
    "ScatterReduce": {"BERT-Base": 39.0, "ResNet50": 26.7, "MobileNet": 25.8, "SqueezeNet": 53.2},
    "AllReduce": {"MobileNet": 25.8, "SqueezeNet": 17.6},
}
#: Section VIII-D: percent of time and dollars saved on the same functions, a mean of four models.
_MEANS = {"ScatterReduce": (16.8, 28.3), "AllReduce": (33.6, 31.4)}


def _bars(name: str, values: dict[str, float], *, theirs: bool = False) -> Series:
    return Series(
        name=name, xs=tuple(values), ys=tuple(values.values()), kind="bars", theirs=theirs
    )


def error(load: Workload, assumed: Assumed = USUAL) -> float:
    """By which part a step of equation 7 is longer than one of the hybrid protocol's schedule."""
    one, size = load.theirs, load.size_bytes
    rate = assumed.throughput(size / one.aggregators, "S3")
    own_s, other_s = (load.fit.step_s(batch, one.memory_mib) for batch in (one.own, one.others))
    real_s = hybrid_step_s(own_s, other_s, size, one.workers, one.aggregators, rate, rate, 0.0)
    return float((own_s + summed_s(load, one, "S3", assumed)) / real_s - 1)


def figure_10() -> Figure:
    """The equations' predictions beside the schedules that they are about."""
    found = {
        name: {one.title: error(one, assumed) for one in WORKLOADS}
        for name, assumed in (("equation 3 corrected", USUAL), ("as printed", _PRINTED))
    }
    corrected, printed = found.values()
    faster = Assumed(bytes_per_s=1e8)
    return Figure(
        name="fasdl-10",
        what="FasDL, figure 10: precision of predictions",
        panels=(
            Panel(
                title="a step by equation 7 over that of the schedule",
                x="",
                y="longer by (%)",
                series=tuple(
                    _bars(name, {title: 100 * one for title, one in by.items()})
                    for name, by in found.items()
                ),
            ),
        ),
        facts=tuple(
            Fact(
                what=f"{one.title}: error of the equations, equation 3 corrected and as printed",
                theirs="within 6 %",
                ours=f"{100 * corrected[one.title]:.1f} %, {100 * printed[one.title]:.1f} %",
                agrees=abs(corrected[one.title]) <= 0.06,
                why="equation 7 has an aggregator wait for the others' shards, which the protocol "
                f"does not; {100 * error(one, faster):.1f} % with 100 MB/s, where that is less",
            )
            for one in WORKLOADS
        ),
    )


def saved(
    load: Workload, method: str, assumed: Assumed = _PRINTED, *, chosen: bool = False
) -> tuple[float, float]:
    """Part of the time and of the dollars that K-REDUCE saves. chosen: over the configuration that
    table IV has for the other, not over the same functions."""
    ours, to_one = load.theirs, method == "AllReduce"
    other = make_setup(
        ours.workers, ours.memory_mib, ours.own, 1 if to_one else ours.workers, ours.own
    )
    if chosen:
        other = (load.to_one if to_one else load.scatter) or other
    epochs = epochs_of(load, assumed)
    one, two = (alone(load, setup, "S3", epochs, assumed) for setup in (ours, other))
    return 1 - one.seconds / two.seconds, 1 - one.usd / two.usd


def to_one_s(load: Workload, most: int = 10**6) -> float:
    """The least seconds of AllReduce within B^g_max. most: samples of a worker."""
    return min(
        alone(load, setup, "S3", epochs_of(load), _PRINTED).seconds
        for workers in range(2, load.most_samples // 16 + 1)
        for samples in range(16, min(most, load.most_samples // workers) + 1, 16)
        if needed_mib(load, samples) <= MOST_MIB
        for setup in [make_setup(workers, MOST_MIB, samples, 1, samples)]
    )


def _why_chosen(load: Workload, method: str) -> str:
    """Of what K-REDUCE saves beside the other's own choice."""
    if method == "AllReduce":
        fewer = 170
        less = replace(load, theirs=replace(load.theirs, others=fewer))
        return (
            f"bandwidth and latency do not matter; {percent(saved(less, method, chosen=True)[1])} "
            f"if those who do not aggregate had {fewer} samples, not table IV's "
            f"{load.theirs.others}"
        )
    late = Assumed(printed=True, s3_latency_s=0.2)
    slow = Assumed(printed=True, s3_latency_s=0.0, bytes_per_s=5e7)
    by_late, by_slow = (percent(saved(load, method, one, chosen=True)[1]) for one in (late, slow))
    return (
        f"{by_late} with 200 ms a message, {by_slow} with 50 MB/s and none: ResNet50 wants the one "
        "and MobileNet the other"
    )


def figure_11() -> Figure:
    """K-REDUCE beside LambdaML's ScatterReduce and AllReduce: same functions, and own choices."""
    same = {name: {one.title: saved(one, name) for one in WORKLOADS} for name in _MEANS}
    chosen = {
        name: {
            one.title: saved(one, name, chosen=True)[1] for one in WORKLOADS if one.title in theirs
        }
        for name, theirs in _SAVED.items()
    }
    means = {
        name: [fmean(part) for part in zip(*by.values(), strict=True)] for name, by in same.items()
    }
    scheduled = [
        fmean(part)
        for part in zip(*(saved(one, "ScatterReduce", USUAL) for one in WORKLOADS), strict=True)
    ]
    but_bert = [
        fmean(part) for part in list(zip(*list(same["AllReduce"].values())[1:], strict=True))
    ]
    facts = [
        Fact(
            what=f"the same functions, mean of four models: time and cost below {name}'s",
            theirs=f"{theirs[0]} %, {theirs[1]} %",
            ours=f"{100 * means[name][0]:.1f} %, {100 * means[name][1]:.1f} %",
            agrees=all(
                abs(100 * one / other - 1) < 0.15
                for one, other in zip(means[name], theirs, strict=True)
            ),
            why="BERT, whose one aggregator downloads nine models, saves "
            f"{percent(same[name]['BERT-Base'][0])}; without it {100 * but_bert[0]:.1f} %, "
            f"{100 * but_bert[1]:.1f} %, which agrees",
        )
        for name, theirs in _MEANS.items()
    ]
    facts.append(
        Fact(
            what="the same below ScatterReduce's, by schedules",
            theirs="16.8 %, 28.3 %",
            ours=f"{100 * scheduled[0]:.1f} %, {100 * scheduled[1]:.1f} %",
            agrees=abs(scheduled[0] / 0.168 - 1) < 0.15,
            why="equation 3 has each aggregator send itself its own part, which ScatterReduce's "
            "need not; with it the number follows, as above",
        )
    )
    facts += [
        Fact(
            what=f"{load.title}, own configurations of table IV: cost below {name}'s",
            theirs=f"{theirs[load.title]} %",
            ours=percent(chosen[name][load.title]),
            agrees=abs(100 * chosen[name][load.title] / theirs[load.title] - 1) < 0.15,
            why=_why_chosen(load, name),
        )
        for name, theirs in _SAVED.items()
        for load in WORKLOADS
        if load.title in theirs
    ]
    facts += [
        Fact(
            what=f"{load.title}: quickest AllReduce within B^g (limit in table IV)",
            theirs=f"no fit in {load.limit_s:.0f} s",
            ours=f"{to_one_s(load):.0f} s",
            agrees=to_one_s(load) > load.limit_s,
            why="two workers of 512 samples, as table IV has them for a server, fit; if no worker "
            f"had more than 128, {to_one_s(load, 128):.0f} s",
        )
        for load in WORKLOADS[:2]
    ]
    facts.append(
        Fact(
            what="figure 12: epochs of ScatterReduce, same functions, for the dollars of one",
            theirs="no number",
            ours=", ".join(f"{1 - same['ScatterReduce'][one.title][1]:.2f}" for one in WORKLOADS),
            agrees=None,
        )
    )
    return Figure(
        name="fasdl-11",
        what="FasDL, figure 11: K-REDUCE beside ScatterReduce and AllReduce",
        columns=3,
        panels=(
            *(
                Panel(
                    title=f"same functions: {what} saved",
                    x="",
                    y="%",
                    series=tuple(
                        _bars(f"over {name}", {k: 100 * one[number] for k, one in by.items()})
                        for name, by in same.items()
                    ),
                )
                for number, what in enumerate(("time", "cost"))
            ),
            Panel(
                title="own configurations: cost saved",
                x="",
                y="%",
                series=tuple(
                    series
                    for name, by in chosen.items()
                    for series in (
                        _bars(f"over {name}", {k: 100 * one for k, one in by.items()}),
                        _bars(f"over {name}, the paper's text", _SAVED[name], theirs=True),
                    )
                ),
            ),
        ),
        facts=tuple(facts),
    )


def one_function(load: Workload) -> Taken:
    """The largest function alone, with as many samples as fit."""
    most = min(load.most_samples, int((MOST_MIB - needed_mib(load, 0)) / load.sample_mib))
    one = alone(load, make_setup(1, MOST_MIB, most, 1, most), "S3", epochs_of(load))
    return replace(one, channel_usd=0.0)


def figure_14() -> Figure:
    """The quickest training, and the largest function by itself."""
    single = {one.title: one_function(one) for one in WORKLOADS}
    found = {
        channel: {one.title: fastest(one, channel)[1] for one in WORKLOADS}
        for channel in ("S3", "ElastiCache")
    }
    rows = {"one function": single, **{f"FasDL, {name}": by for name, by in found.items()}}
    over = {
        title: one.seconds / min(by[title].seconds for by in found.values())
        for title, one in single.items()
    }
    over_s3 = max(one.seconds / found["S3"][title].seconds for title, one in single.items())
    _, resnet, mobile, _ = WORKLOADS
    longer = (mobile.fit.a / mobile.size_mib) / (resnet.fit.a / resnet.size_mib)
    small, small_fast = single["SqueezeNet"], [by["SqueezeNet"] for by in found.values()]
    return Figure(
        name="fasdl-14",
        what="FasDL, figure 14: the quickest, and one function by itself",
        panels=tuple(
            Panel(
                title=title,
                x="",
                y=y,
                log_y=True,
                series=tuple(
                    _bars(name, {k: float(getattr(one, what)) for k, one in by.items()})
                    for name, by in rows.items()
                ),
            )
            for title, y, what in (
                ("least time", "s", "seconds"),
                ("cost of that", "USD", "usd"),
            )
        ),
        facts=(
            Fact(
                what="most time of one function over FasDL's, S3; over the better store",
                theirs="up to 5 times",
                ours=f"{times(over_s3)}; {times(max(over.values()))} "
                f"({max(over, key=lambda one: over[one])})",
                agrees=abs(over_s3 / 5 - 1) < 0.15,
            ),
            Fact(
                what="SqueezeNet: one function quicker and cheaper",
                theirs="both",
                ours=", ".join(
                    f"{times(one.seconds / small.seconds)} the time, "
                    f"{times(one.usd / small.usd)} the cost"
                    for one in small_fast
                ),
                agrees=all(
                    one.seconds > small.seconds and one.usd > small.usd for one in small_fast
                ),
            ),
            Fact(
                what="the more complex the model, the longer one function takes over FasDL",
                theirs="yes",
                ours=", ".join(f"{title} {times(one)}" for title, one in over.items()),
                agrees=list(over.values()) == sorted(over.values(), reverse=True),
                why=f"by table II MobileNet computes {longer:.1f} times as long for a byte of "
                "parameters as ResNet50, so it gains more; with 100 and 200 MB/s, too",
            ),
        ),
    )
