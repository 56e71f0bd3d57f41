"""Hydrozoa's figures 4 to 6: functions, containers, GPUs and machines, data parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, percent, times
from benchmarks.parts.papers.formulas.hydrozoa import samples_per_usd
from benchmarks.parts.papers.hydrozoa.workers import (
    WORKERS,
    Way,
    containers,
    derived_k80,
    functions,
    k80,
    machines,
    samples_per_s,
    slower,
    vcpu_part,
)

#: Of which model, and as which of the ratios, that stands below.
_FITTED = ("resnet34", 2)
#: Curves of what the paper does not have.
_ASSUMED = ("H-L, scatter-reduce", "H-G, derived K80")
#: Dollars an hour of a container in figure 5: H-L's $0.60 by 11.5 x / 4.6 x.
_PRICE_5 = 0.24


def _ablation(name: str, title: str, number: int, theirs: Sequence[float]) -> Figure:
    """Figures 4 and 5. theirs: the paper's ratios, as `facts` has them."""
    alone = (k80(), derived_k80())
    ways = (functions(), functions("scatter-reduce"), containers(name), *alone)
    labels = ("H-L", "H-L, scatter-reduce", "H-C", "H-G, one K80", "H-G, derived K80")
    rates = {
        label: [samples_per_s(way, name, 1 if way in alone else n) for n in WORKERS]
        for label, way in zip(labels, ways, strict=True)
    }
    per_usd = {
        label: [
            samples_per_usd(rate, way.usd_per_hour * (1 if way in alone else n))
            for rate, n in zip(rates[label], WORKERS, strict=True)
        ]
        for label, way in zip(labels, ways, strict=True)
    }
    panels = tuple(
        Panel(
            title=f"{title}: {what}",
            x="workers",
            y=unit,
            log_x=True,
            log_y=log,
            series=tuple(
                Series(name=label, xs=WORKERS, ys=tuple(values), dashed=label in _ASSUMED)
                for label, values in found.items()
            ),
        )
        for what, unit, log, found in (
            ("throughput", "samples a second", True, rates),
            ("throughput per dollar", "samples a dollar", True, per_usd),
        )
    )

    def over(found: dict[str, list[float]], one: str, other: str) -> float:
        return found[one][-1] / found[other][-1]

    def with_more(one: Way, other: Way, batch: int) -> float:
        """Throughput of one kind over another's on 16 workers, or one K80, with a larger batch."""
        first, second = (
            samples_per_s(way, name, 1 if way == k80() else WORKERS[-1], batch=batch)
            for way in (one, other)
        )
        return first / second

    more = 384
    cpu_over = with_more(containers(name, more), functions(), more)
    priced = cpu_over * functions().usd_per_hour / _PRICE_5
    gpu_over = with_more(k80(), functions(), 600) * WORKERS[-1]
    gpu_over *= functions().usd_per_hour / k80().usd_per_hour
    wide = [samples_per_s(containers(name), name, n, link_bytes_per_s=6.25e8) for n in WORKERS]
    gpu = "H-G, one K80"
    price = k80().usd_per_hour * over(per_usd, gpu, "H-C") / theirs[3]
    whys = (
        f"{times(cpu_over)} with {more} samples a worker, which are not printed",
        f"{times(priced)} with {more} samples a worker and ${_PRICE_5} an hour of a container, "
        "which the paper's own two ratios want",
        "",
        f"it follows with ${price:.2f} an hour of a K80; the paper's own price is $0.512",
        f"{times(gpu_over)} with 600 samples a worker",
    )
    pairs = (
        ("16 workers: throughput of H-C over H-L", over(rates, "H-C", "H-L")),
        ("throughput per dollar, the same", over(per_usd, "H-C", "H-L")),
        ("throughput of one H-G over 16 H-C", over(rates, gpu, "H-C")),
        ("throughput per dollar, the same", over(per_usd, gpu, "H-C")),
        ("throughput per dollar of H-G over H-L", over(per_usd, gpu, "H-L")),
    )
    facts = [
        Fact(
            what=what + (" (fitted)" if (name, place) == _FITTED else ""),
            theirs=f"{printed:g} x",
            ours=times(ours),
            agrees=None if (name, place) == _FITTED else abs(ours / printed - 1) < 0.15,
            why=whys[place],
        )
        for place, ((what, ours), printed) in enumerate(zip(pairs, theirs, strict=True))
    ]
    facts.append(_derived(name, over(rates, "H-G, derived K80", "H-C"), theirs[2]))
    plain = rates["H-L, scatter-reduce"]
    facts.append(
        Fact(
            what="16 workers: H-C over H-L if that used scatter-reduce",
            theirs=f"{theirs[0]:g} x",
            ours=times(rates["H-C"][-1] / plain[-1]),
            agrees=abs(rates["H-C"][-1] / plain[-1] / theirs[0] - 1) < 0.15,
            why="with one aggregator, and the samples above, it follows",
        )
    )
    scaling = rates["H-C"][-1] / rates["H-C"][0] / WORKERS[-1]
    facts.append(
        Fact(
            what="H-C on 16 workers, by 16 times one",
            theirs="near linear",
            ours=f"{scaling:.2f}",
            agrees=scaling > 0.85,
            why=f"{wide[-1] / wide[0] / WORKERS[-1]:.2f} with 5 Gb/s between containers, not 1",
        )
    )
    return Figure(
        name=f"hydrozoa-{number}",
        what=f"Hydrozoa, figure {number}: functions, containers and a GPU, {title}",
        panels=panels,
        facts=tuple(facts),
    )


def _derived(name: str, ours: float, printed: float) -> Fact:
    """The catalogue's K80 over 16 containers. ours: as vCPUs are."""
    few, many = slower(functions()), slower(containers(name))
    then = samples_per_s(derived_k80(), name, 1) / samples_per_s(many, name, WORKERS[-1])
    others = samples_per_s(many, name, WORKERS[-1]) / samples_per_s(few, name, WORKERS[-1])
    return Fact(
        what="throughput of one derived K80 over 16 H-C",
        theirs=f"{printed:g} x",
        ours=times(ours),
        agrees=abs(ours / printed - 1) < 0.15,
        why=f"{times(then)} if vCPUs compute with {percent(vcpu_part())} of the FLOPs that "
        "FuncPipe's time gives them, which ResNet-34's ratio wants; H-C over H-L is then "
        f"{times(others)}",
    )


def figure_4() -> Figure:
    """ResNet-34."""
    return _ablation("resnet34", "ResNet-34", 4, (1.34, 4.1, 1.8, 9.8, 40.4))


def figure_5() -> Figure:
    """AlexNet."""
    return _ablation("alexnet", "AlexNet", 5, (4.6, 11.5, 2.5, 13.5, 155.5))


def figure_6() -> Figure:
    """ResNet-34, data parallel: Hydrozoa, Azure ML and SageMaker."""
    ways = (
        replace(k80(), name="Hydrozoa"),
        machines("Azure ML", "vm-nc6"),
        machines("SageMaker", "vm-p2-xlarge"),
    )
    rate, derived = (
        {n: samples_per_s(way, "resnet34", n) for n in WORKERS} for way in (k80(), derived_k80())
    )
    per_usd = {
        way.name: [samples_per_usd(rate[n], n * way.usd_per_hour) for n in WORKERS] for way in ways
    }
    panels = (
        Panel(
            title="throughput",
            x="workers",
            y="samples a second",
            log_x=True,
            series=(
                Series(name="all three", xs=WORKERS, ys=tuple(rate.values())),
                Series(name="derived K80", xs=WORKERS, ys=tuple(derived.values()), dashed=True),
            ),
        ),
        Panel(
            title="throughput per dollar",
            x="workers",
            y="samples a dollar",
            log_x=True,
            series=tuple(
                Series(name=name, xs=WORKERS, ys=tuple(values)) for name, values in per_usd.items()
            ),
        ),
    )
    hydrozoa = per_usd["Hydrozoa"][-1]
    gains = {name: hydrozoa / per_usd[name][-1] for name in ("Azure ML", "SageMaker")}
    return Figure(
        name="hydrozoa-6",
        what="Hydrozoa, figure 6: ResNet-34, data parallel on K80s",
        panels=panels,
        facts=(
            Fact(
                what="price of a worker, an hour",
                theirs="$0.512",
                ours=f"${k80().usd_per_hour:.3f}",
                agrees=abs(k80().usd_per_hour - 0.512) < 0.001,
            ),
            Fact(
                what="throughput over both, as all do the same (table 4)",
                theirs="1.03 x",
                ours=times(1.0),
                agrees=True,
            ),
            Fact(
                what="throughput per dollar over Azure ML",
                theirs="1.81 x",
                ours=times(gains["Azure ML"]),
                agrees=abs(gains["Azure ML"] / 1.81 - 1) < 0.05,
            ),
            Fact(
                what="throughput per dollar over SageMaker",
                theirs="2.26 x",
                ours=times(gains["SageMaker"]),
                agrees=abs(gains["SageMaker"] / 2.26 - 1) < 0.05,
            ),
        ),
    )
