"""KubeML's tables 4.3 to 4.5 (what Lambda would cost) and figure 4.13 (LeNet on more workers).

Costs are those of `formulas.kubeml`, in both readings of Lambda's price. What figure 4.13 needs and
the thesis does not print, and is assumed here:

    computing    table 4.3's 263.56 s on 8 workers are all computing
    links        1 Gb/s of the server that merges, 0.1 ms a message; a merge an epoch (infinite k)
    vCPUs        1.5 a worker, of six nodes of 8, which are 24 cores if two are one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.formulas.collectives import push_pull_s
from benchmarks.parts.papers.formulas.kubeml import Reading, cluster_usd, functions_usd
from benchmarks.parts.papers.models import BACKWARD
from benchmarks.parts.papers.rows import given, platform
from dayfly.models import MODELS, on_meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One of tables 4.3 to 4.5.

    functions, run_s, invocations, memory_gb, usd_per_duration: of Lambda. machine_usd_per_hour,
    cluster_run_s: of KubeML's machine, with two K80. name: of `dayfly.models`. pixels: of a
    picture's side. samples, epochs: trained. lambda_usd, kubeml_usd: as the table prints them.
    """

    model: str
    functions: int
    run_s: float
    invocations: int
    memory_gb: float
    usd_per_duration: float
    machine_usd_per_hour: float
    cluster_run_s: float
    name: str
    pixels: int
    samples: int
    epochs: int
    printed_lambda_usd: float
    printed_kubeml_usd: float

    def functions_usd(self, reading: Reading) -> tuple[float, float]:
        """Dollars of Lambda's time, which the tables have alone, and of invocations."""
        return functions_usd(
            self.functions,
            self.run_s,
            self.invocations,
            usd_per_duration=self.usd_per_duration,
            usd_per_invocation=2e-7,
            reading=reading,
        )

    def lambda_usd(self, reading: Reading) -> float:
        """Of time alone."""
        return self.functions_usd(reading)[0]

    def kubeml_usd(self) -> float:
        """Two K80, and the cluster's fee."""
        return cluster_usd(
            self.cluster_run_s,
            machine_usd_per_hour=self.machine_usd_per_hour,
            gpus=2,
            gpu_usd_per_hour=0.45,
            cluster_usd_per_hour=0.1,
        )

    def flops_s(self) -> float:
        """Seconds on Lambda's 1.5 vCPUs a function, by FLOPs."""
        model = on_meta(MODELS[self.name].build).eval()
        channels = MODELS[self.name].sample(1).shape[1]
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, channels, self.pixels, self.pixels, device="meta"))
        per_vcpu = given(platform("aws-lambda").vcpu_flops_per_s, "FLOPs of aws-lambda")
        whole = (1 + BACKWARD) * counter.get_total_flops() * self.samples * self.epochs
        return float(whole / (self.functions * _VCPUS * per_vcpu))


_VCPUS = 1.5
COSTS = (
    Cost(
        model="LeNet",
        functions=8,
        run_s=263.56,
        invocations=240,
        memory_gb=1.5,
        usd_per_duration=2.5e-6,
        machine_usd_per_hour=0.38,
        cluster_run_s=69.3,
        name="lenet5",
        pixels=28,
        samples=60_000,
        epochs=30,
        printed_lambda_usd=0.00527,
        printed_kubeml_usd=0.02676,
    ),
    Cost(
        model="ResNet34",
        functions=8,
        run_s=17_326,
        invocations=320,
        memory_gb=3.0,
        usd_per_duration=5e-6,
        machine_usd_per_hour=0.76,
        cluster_run_s=470.77,
        name="resnet34",
        pixels=32,
        samples=50_000,
        epochs=40,
        printed_lambda_usd=0.69,
        printed_kubeml_usd=0.23,
    ),
    Cost(
        model="VGG16",
        functions=4,
        run_s=38_409,
        invocations=160,
        memory_gb=3.0,
        usd_per_duration=5e-6,
        machine_usd_per_hour=0.76,
        cluster_run_s=1035,
        name="vgg16",
        pixels=32,
        samples=50_000,
        epochs=40,
        printed_lambda_usd=0.768,
        printed_kubeml_usd=0.506,
    ),
)


def tables() -> Figure:
    """Tables 4.3 to 4.5."""

    def bars(name: str, of: Callable[[Cost], float], *, theirs: bool = False) -> Series:
        models = tuple(one.model for one in COSTS)
        ys = tuple(map(of, COSTS))
        return Series(name=name, xs=models, ys=ys, kind="bars", theirs=theirs)

    facts = []
    for one in COSTS:
        printed, charged = map(one.lambda_usd, (Reading.AS_PRINTED, Reading.PER_100_MS))
        theirs = one.printed_lambda_usd, one.printed_kubeml_usd
        facts += [
            Fact(
                what=f"{one.model}: dollars of Lambda and of KubeML, by the prices as printed",
                theirs=f"${theirs[0]:.3g}, ${theirs[1]:.3g}",
                ours=f"${printed:.3g}, ${one.kubeml_usd():.3g}",
                agrees=all(
                    abs(ours / other - 1) < 0.02
                    for ours, other in zip((printed, one.kubeml_usd()), theirs, strict=True)
                ),
            ),
            Fact(
                what=f"{one.model}: Lambda's dollars over KubeML's, by AWS's prices",
                theirs=times(theirs[0] / theirs[1]),
                ours=times(charged / one.kubeml_usd()),
                agrees=abs(charged / one.kubeml_usd() / (theirs[0] / theirs[1]) - 1) < 0.15,
                why="the table's price is for 100 ms and is taken for a second; so taken, "
                f"{times(printed / one.kubeml_usd())} follows",
            ),
            Fact(
                what=f"{one.model}: Lambda's seconds, by FLOPs",
                theirs=f"{one.run_s:.0f} s",
                ours=f"{one.flops_s():.0f} s",
                agrees=abs(one.flops_s() / one.run_s - 1) < 0.15,
                why="FLOPs are not what small pictures wait for: it follows with "
                f"{38.5 * one.flops_s() / one.run_s:.2g} GFLOP/s a vCPU, where FuncPipe's models "
                "of 224 pixels have 38.5",
            ),
        ]
    return Figure(
        name="kubeml-tables",
        what="KubeML, tables 4.3 to 4.5: what Lambda would cost",
        panels=(
            Panel(
                title="training",
                x="",
                y="USD",
                log_y=True,
                series=(
                    bars("KubeML", lambda one: one.kubeml_usd()),
                    bars("Lambda, by AWS's prices", lambda one: one.lambda_usd(Reading.PER_100_MS)),
                    bars("KubeML, printed", lambda one: one.printed_kubeml_usd, theirs=True),
                    bars("Lambda, printed", lambda one: one.printed_lambda_usd, theirs=True),
                ),
            ),
        ),
        facts=tuple(facts),
    )


_WORKERS = (4, 8, 16, 32)
_LENET_BYTES, _LINK_BYTES_PER_S, _LATENCY_S = 4 * 44_426, 1.25e8, 1e-4
_CORES = 24


def merged_s(workers: int, rate: float = _LINK_BYTES_PER_S) -> float:
    """LeNet's parameters pushed to the server, and pulled."""
    return push_pull_s(_LENET_BYTES, workers, _LENET_BYTES, rate, _LATENCY_S, rate)


def epoch_s(
    workers: int, *, start_s: float = 0.0, jitter: float = 0.0, slower: bool = False
) -> float:
    """An epoch of LeNet: the slowest worker's share, and a merge by push and pull.

    start_s: of a worker, one after another. jitter: standard deviation of workers' times by their
    mean. slower: whether the nodes have 24 cores, and a vCPU is one, until there are too
    few.
    """
    lenet = COSTS[0]
    share_s = lenet.run_s / lenet.epochs * lenet.functions / workers
    # The slowest of n normal times, by Blom's plotting positions.
    late = NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
    crowded = max(1.0, workers * _VCPUS / _CORES) if slower else 1.0
    return share_s * crowded * (1 + jitter * late) + merged_s(workers) + workers * start_s


def _speedup(few: int, many: int, **assumed: Any) -> float:
    return epoch_s(few, **assumed) / epoch_s(many, **assumed)


def _both(**assumed: Any) -> str:
    """From 8 to 16 workers, and from 16 to 32."""
    return ", ".join(times(_speedup(few, 2 * few, **assumed)) for few in (8, 16))


def figure_13() -> Figure:
    """LeNet for 30 epochs on six nodes: from 4 to 8 workers, and with more."""
    alone, epochs = _speedup(4, 8), COSTS[0].epochs
    merge_s, quick_s = merged_s(8), merged_s(8, 5 * _LINK_BYTES_PER_S)
    # Of starts one after another: 16 workers are then no quicker than 8.
    start_s = (epoch_s(8) - epoch_s(16)) / 8
    rows: dict[str, dict[str, Any]] = {
        "computing and merges": {},
        "workers a fifth apart": {"jitter": 0.2},
        "24 cores for all": {"slower": True},
        f"each started {start_s:.2f} s later": {"start_s": start_s},
    }
    return Figure(
        name="kubeml-13",
        what="KubeML, figure 4.13: LeNet on a cluster of six nodes",
        panels=(
            Panel(
                title="LeNet, 30 epochs",
                x="workers",
                y="s",
                log_x=True,
                log_y=True,
                series=(
                    *(
                        Series(
                            name=name,
                            xs=_WORKERS,
                            ys=tuple(epochs * epoch_s(n, **assumed) for n in _WORKERS),
                            dashed=bool(assumed),
                        )
                        for name, assumed in rows.items()
                    ),
                    Series(name="table 4.3", xs=(8,), ys=(COSTS[0].run_s,), theirs=True),
                ),
            ),
        ),
        facts=(
            Fact(
                what="a merge of LeNet's parameters, 8 workers",
                theirs="less than 10 ms",
                ours=f"{1000 * merge_s:.0f} ms",
                agrees=merge_s < 0.010,
                why=f"{1000 * quick_s:.0f} ms with 5 Gb/s; the thesis measured within one machine",
            ),
            Fact(
                what="speedup from 4 to 8 workers",
                theirs="linear",
                ours=times(alone),
                agrees=alone > 1.9,
            ),
            Fact(
                what="speedup from 8 to 16, and from 16 to 32",
                theirs="worse than with 8",
                ours=_both(),
                agrees=_speedup(8, 16) < 1,
                why=f"{_both(jitter=0.2)} if workers' times are a fifth apart, which is what the "
                f"thesis blames; {_both(slower=True)} if two vCPUs are one core. It follows from 8 "
                f"on if each worker costs {start_s:.2f} s more, but then 4 to 8 gives "
                f"{times(_speedup(4, 8, start_s=start_s))}",
            ),
        ),
    )
