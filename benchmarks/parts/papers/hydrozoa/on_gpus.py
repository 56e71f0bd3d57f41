"""Hydrozoa's figure 7 and table 5, on the catalogue's K80 and V100.

What a GPU takes is derived from published peaks (`papers.gpus`). What the paper does not print, and
is assumed here:

    links      1 Gb/s each way between containers, and between Azure's machines; within SageMaker's
               p3.8xlarge what a GPU's own link carries, in the catalogue: NVLink has no row
    batch      data parallel: as many samples as the GPU holds, 256 at most
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, times
from benchmarks.parts.papers.gpus import Gpu, derived
from benchmarks.parts.papers.hydrozoa.hybrid import Batches, fitted_k80, hybrid_samples_per_s
from benchmarks.parts.papers.hydrozoa.workers import BATCH, LINK_BYTES_PER_S
from benchmarks.parts.papers.rows import prices

_SHARDS = (1, 2, 4, 8)
_HYBRIDS = ((16, 1), (8, 2), (4, 4), (2, 8), (1, 16))
#: Appendix B: V100s of a cluster; a Hydrozoa worker has 4 vCPUs and 6 GB, as in section 5.3.
_GPUS, _VCPUS, _MIB = 4, 4, 6 * 1024


def figure_7() -> Figure:
    """BERT-12 by model parallelism, and by all strategies that fit 16 K80s."""
    name = "bert_base"
    kinds = {"derived K80": derived("K80"), "K80 of figure 4": fitted_k80()}
    batches = Batches.of_table_4(name)

    def rate(gpu: Gpu, replicas: int, shards: int) -> float:
        return hybrid_samples_per_s(name, replicas, shards, batches, gpu)

    model = {title: [rate(gpu, 1, one) for one in _SHARDS] for title, gpu in kinds.items()}
    hybrid = {
        title: {f"{a}x{b}": rate(gpu, a, b) for a, b in _HYBRIDS} for title, gpu in kinds.items()
    }
    facts = []
    for title in kinds:
        one, _, four, eight = model[title]
        best = max(hybrid[title], key=lambda shape: hybrid[title][shape])
        facts += [
            Fact(
                what=f"{title}: speed of 4 shards over one",
                theirs="scales effectively",
                ours=times(four / one),
                agrees=four / one > 2,
                why="they wait for 1 Gb/s between shards",
            ),
            Fact(
                what=f"{title}: speed of 8 shards over 4",
                theirs="marginally more",
                ours=times(eight / four),
                agrees=1 < eight / four < 1.25,
                why="this K80 is twice as fast as the catalogue's, so that 1 Gb/s between shards "
                "is what they wait for",
            ),
            Fact(
                what=f"{title}: best strategy on 16",
                theirs="4x4",
                ours=best,
                agrees=best == "4x4",
                why="it waits for 1 Gb/s between shards",
            ),
        ]
    return Figure(
        name="hydrozoa-7",
        what="Hydrozoa, figure 7: BERT-12 on K80s, model and hybrid parallel",
        panels=(
            Panel(
                title="model parallel",
                x="shards",
                y="samples a second",
                log_x=True,
                series=tuple(
                    Series(name=title, xs=_SHARDS, ys=tuple(found))
                    for title, found in model.items()
                ),
            ),
            Panel(
                title="16 K80s",
                x="strategy: replicas x shards",
                y="samples a second",
                series=tuple(
                    Series(name=title, xs=tuple(found), ys=tuple(found.values()), kind="bars")
                    for title, found in hybrid.items()
                ),
            ),
        ),
        facts=tuple(facts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What table 5 prints of a model: micro-batches, their size; over Azure ML and SageMaker."""

    title: str
    micro_batches: int
    size: int
    speeds: tuple[float, float]
    costs: tuple[float, float]
    per_usd: tuple[float, float]


_TABLE_5 = {
    "vgg19": _Row(
        title="VGG19",
        micro_batches=34,
        size=4,
        speeds=(1.89, 0.86),
        costs=(1.02, 1.21),
        per_usd=(1.91, 1.04),
    ),
    "bert_base": _Row(
        title="BERT-12",
        micro_batches=24,
        size=2,
        speeds=(3.66, 0.95),
        costs=(1.02, 1.22),
        per_usd=(3.71, 1.15),
    ),
}
_SYSTEMS = ("Azure ML", "SageMaker")
#: Bytes a second between containers that are tried beside 1 Gb/s.
_WIDER = 5 * LINK_BYTES_PER_S


def usd_per_hour() -> tuple[float, float, float]:
    """Of a worker with a V100: Hydrozoa's, Azure ML's, SageMaker's."""
    return (
        3600 * prices("azure-containers-v100").usd_for_1_s(_MIB, _VCPUS),
        3600 * prices("vm-nc6s-v3").usd_for_1_s(0, 0),
        3600 * prices("vm-p3-8xlarge").usd_for_1_s(0, 0) / _GPUS,
    )


def rates(name: str, link_bytes_per_s: float, samples: int) -> tuple[float, float, float]:
    """Samples a second on four V100s: Hydrozoa's four shards, data parallel of the other two.

    link_bytes_per_s: of containers, and of Azure's machines. samples: of a worker of data parallel,
    at most.
    """
    row, gpu = _TABLE_5[name], derived("V100")
    batches = Batches(size=row.size, most=row.micro_batches, most_samples=samples)
    return (
        hybrid_samples_per_s(name, 1, _GPUS, batches, gpu, link_bytes_per_s),
        hybrid_samples_per_s(name, _GPUS, 1, batches, gpu, link_bytes_per_s),
        hybrid_samples_per_s(name, _GPUS, 1, batches, gpu, gpu.host_bytes_per_s),
    )


def implied_samples(name: str, link_bytes_per_s: float) -> int | None:
    """The most samples a worker with which Hydrozoa is as much faster than Azure ML as is printed;
    None if there are none."""
    printed = _TABLE_5[name].speeds[0]
    for samples in range(BATCH, 0, -1):
        hydrozoa, azure, _ = rates(name, link_bytes_per_s, samples)
        if hydrozoa / azure >= printed:
            return samples
    return None


def table_5() -> Figure:
    """VGG19 and BERT-12 on four V100s."""
    ours_usd, *their_usd = usd_per_hour()
    panels, facts = [], []
    for name, row in _TABLE_5.items():
        hydrozoa, *others = rates(name, LINK_BYTES_PER_S, BATCH)
        panels.append(
            Panel(
                title=row.title,
                x="Hydrozoa: 1x4; data parallel: 4x1",
                y="samples a second",
                series=(
                    Series(
                        name="derived V100",
                        xs=("Hydrozoa", *_SYSTEMS),
                        ys=(hydrozoa, *others),
                        kind="bars",
                    ),
                ),
            )
        )
        narrow, wide = (implied_samples(name, one) for one in (LINK_BYTES_PER_S, _WIDER))
        first, *rest = rates(name, _WIDER, wide or 1)
        why = {
            "Azure ML": f"it follows with {narrow or 'no number of'} samples a worker of data "
            f"parallel, not as many as 16 GB hold, or with {wide or 'none'} and 5 Gb/s",
            "SageMaker": f"{times(first / rest[1])} with the {wide or 1} samples a worker and the "
            "5 Gb/s with which the other follows; shards wait for links whose rate is not printed",
        }
        for place, system in enumerate(_SYSTEMS):
            speed, cost = hydrozoa / others[place], their_usd[place] / ours_usd
            pairs = (
                ("throughput", speed, row.speeds[place], 0.15),
                ("price of the cluster, less", cost, row.costs[place], 0.02),
                ("throughput per dollar", speed * cost, row.per_usd[place], 0.15),
            )
            facts += [
                Fact(
                    what=f"{row.title}: {what} over {system}",
                    theirs=f"{printed:g} x",
                    ours=times(ours),
                    agrees=abs(ours / printed - 1) < within,
                    why=why[system],
                )
                for what, ours, printed, within in pairs
            ]
    return Figure(
        name="hydrozoa-table-5",
        what="Hydrozoa, table 5: model and data parallel on four V100s",
        panels=tuple(panels),
        facts=tuple(facts),
    )
