"""CE-scaling's figure 18: the quickest epoch within a budget where only one store may be used.

By the equations and assumptions of `ce_scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.parts.papers.ce_scaling import (
    STORES,
    USUAL,
    Changed,
    Epoch,
    Work,
    epoch,
    fits,
    works,
)
from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series

_FUNCTIONS_18 = (10, 20, 50, 100)
_MEMORY_18 = (512, 1024, 1769, 3538, 7076, 10240)


def best(
    work: Work, name: str, budget_usd: float, changed: Changed = USUAL
) -> tuple[int, int, Epoch]:
    """The functions and memory of the quickest epoch within a budget; those of the paper are not
    printed, so all are tried."""
    tried = [
        (n, m, epoch(work, name, n, m, changed=changed)) for n in _FUNCTIONS_18 for m in _MEMORY_18
    ]
    within = [one for one in tried if one[2].usd <= budget_usd]
    return min(within, key=lambda one: (one[2].seconds, one[2].usd))


def budget(work: Work) -> float:
    """Twice what the cheapest epoch on 10 functions over S3 costs; the paper's is not printed."""
    return 2 * min(epoch(work, "S3", 10, m).usd for m in _MEMORY_18)


def _named(epochs: Mapping[str, Epoch]) -> tuple[str, str, str]:
    """Stores that are the quickest, the cheapest, and of the least time x cost."""
    return (
        min(epochs, key=lambda name: epochs[name].seconds),
        min(epochs, key=lambda name: epochs[name].usd),
        min(epochs, key=lambda name: epochs[name].usd * epochs[name].seconds),
    )


def _why(work: Work) -> str:
    """Who wins if a server had no less to move, and a cache were billed by the hour."""
    changed = Changed(as_store=True, hourly_usd=0.05)
    stores = [name for name in STORES if fits(work, name)]
    found = {name: best(work, name, budget(work), changed)[2] for name in stores}
    return (
        f"{', '.join(_named(found))} if a server moved as many models as a store and a cache cost "
        "$0.05 an hour"
    )


def figure_18() -> Figure:
    """The quickest epoch within a budget when only one store may be used."""
    panels, facts = [], []
    for work in works():
        stores = tuple(name for name in STORES if fits(work, name))
        found = {name: best(work, name, budget(work)) for name in stores}
        epochs = {name: one for name, (_, _, one) in found.items()}
        groups = tuple(f"{name}\n{n} x {m}" for name, (n, m, _) in found.items())
        panels.append(
            Panel(
                title=f"{work.title}: an epoch",
                x="store, functions x MiB",
                y="s",
                series=(
                    Series(
                        name="all",
                        xs=groups,
                        ys=tuple(one.seconds for one in epochs.values()),
                        kind="bars",
                    ),
                    Series(
                        name="communication",
                        xs=groups,
                        ys=tuple(one.sync_s for one in epochs.values()),
                        kind="bars",
                    ),
                ),
            )
        )
        panels.append(
            Panel(
                title=f"{work.title}: cost of it",
                x="store, functions x MiB",
                y="USD",
                series=(
                    Series(
                        name="all",
                        xs=groups,
                        ys=tuple(one.usd for one in epochs.values()),
                        kind="bars",
                    ),
                    Series(
                        name="store",
                        xs=groups,
                        ys=tuple(one.store_usd for one in epochs.values()),
                        kind="bars",
                    ),
                ),
            )
        )
        quickest, cheapest, traded = _named(epochs)
        seconds = [one.seconds for one in epochs.values()]
        theirs = (
            "best trade-off: DynamoDB"
            if work.title == "LR"
            else "quickest and cheapest: ElastiCache"
        )
        facts.append(
            Fact(
                what=f"{work.title}: quickest, cheapest, least time x cost",
                theirs=theirs,
                ours=f"{quickest}, {cheapest}, {traded}",
                agrees=traded == "DynamoDB"
                if work.title == "LR"
                else quickest == cheapest == "ElastiCache",
                why=_why(work),
            )
        )
        facts.append(
            Fact(
                what=f"{work.title}: slowest over quickest store",
                theirs="they vary",
                ours=f"{max(seconds) / min(seconds):.2f} x",
                agrees=max(seconds) / min(seconds) > 1.05,
            )
        )
    return Figure(
        name="ce-scaling-18",
        what="CE-scaling, figure 18: one store alone",
        panels=tuple(panels),
        facts=tuple(facts),
    )
