"""A plan's functions over each other store of its platform, and in words why the chosen store.

    seconds   of the run: compute, transfer, sync, overhead, start-up (`Option.run_breakdown`)
    dollars   of the bill, by kind

CE-scaling explains its choice by the terms of equations 2 and 4.
These are of the predicted run, for pipelines and all collectives, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dayfly.errors import RequestError
from dayfly.planning.choose.front import difference, dollars, seconds
from dayfly.planning.servers import held_bytes, holds
from dayfly.runs.choosing.candidate import Candidate, over
from dayfly.runs.choosing.option import KnownPredictions, Option, fits
from dayfly.runs.choosing.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class OverStore:
    """A plan's functions over another store.

    Attributes:
        store: of the catalogue.
        option: the plan there; None: it cannot run there.
        why: the reason why it cannot.
    """

    store: str
    option: Option | None = None
    why: str = ""


def over_stores(
    option: Option, targets: Sequence[Target], predicted: KnownPredictions
) -> tuple[OverStore, ...]:
    """The same functions over each other store of the platform, in the order of the targets.

    Of servers whose types and number were to be chosen, it is over one choice alone.
    """
    places = [*_others(option, targets)]
    said = predicted.each([_over(option.candidate, one) for one in places])
    return tuple(_of(one.profile.channel, its) for one, its in zip(places, said, strict=True))


def _of(store: str, said: Option | RequestError) -> OverStore:
    if isinstance(said, RequestError):
        return OverStore(store=store, why=str(said))
    if not fits(said):
        return OverStore(store=store, why="it does not fit into their memory")
    return OverStore(store=store, option=said)


def _over(candidate: Candidate, target: Target) -> Candidate | RequestError:
    try:
        return over(candidate, target)
    except RequestError as refusal:
        return refusal


def _others(option: Option, targets: Sequence[Target]) -> Iterator[Target]:
    """Targets beside the option's, and of each group the cheapest that is no bottleneck, as
    FuncPipe has it (section 5.1), or the largest."""
    mine = option.candidate.target
    workers = option.candidate.settings.workers
    groups = {mine.group}
    for target in targets:
        if target.platform != mine.platform or target.profile.channel == mine.profile.channel:
            continue
        if not target.group:
            yield target
        elif target.group not in groups:
            groups.add(target.group)
            choices = [
                one
                for one in targets
                if (one.platform, one.group) == (mine.platform, target.group)
                and one.store is not None
                and holds(one.store, held_bytes(one.profile, workers))
            ]
            wide = [one for one in choices if not _is_bottleneck(one, workers)]
            if wide:
                yield min(wide, key=lambda one: one.store.servers_usd(3600.0) if one.store else 0.0)
            elif choices:
                yield max(choices, key=lambda one: one.profile.store_bytes_per_s or math.inf)


def _is_bottleneck(target: Target, workers: int) -> bool:
    """Whether the store carries less than so many functions of any size can send."""
    rates = (size.up.peak_bytes_per_s.value for size in target.profile.sizes)
    return (target.profile.store_bytes_per_s or math.inf) < workers * max(rates)


def store_words(option: Option, others: Sequence[OverStore]) -> str:
    """The choice of a plan's store: it beside the others, with the parts that decide."""
    candidate, run = option.candidate, option.prediction
    if candidate.settings.workers == 1:
        return "A lone function needs a store for its data and checkpoints alone."
    said = [
        f"Over {candidate.target.profile.channel} it takes {seconds(run.total_s)} and "
        f"{dollars(run.cost_usd)}"
    ]
    for one in others:
        if one.option is None:
            said.append(f"over {one.store} it cannot be: {one.why}")
            continue
        its = one.option.prediction
        longer = difference(option.run_breakdown, one.option.run_breakdown)
        dearer = difference(_in_words(run.by_kind), _in_words(its.by_kind))
        said.append(
            f"over {one.store} it would take {seconds(its.total_s)} ({longer}) and "
            f"{dollars(its.cost_usd)} ({dearer})"
        )
    return "; ".join(said) + "."


def _in_words(by_kind: Mapping[str, float]) -> dict[str, float]:
    return {kind.replace("_", " "): usd for kind, usd in by_kind.items()}
