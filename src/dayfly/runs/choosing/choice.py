"""One choice over all targets: the front of time against dollars, a recommendation, its reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from dayfly.errors import RequestError
from dayfly.planning.choose import forked
from dayfly.planning.choose.front import Front, Point, counted, per_cent
from dayfly.planning.choose.known import Known, KnownPlans
from dayfly.planning.choose.pipelines.compiled import make_ready
from dayfly.runs.choosing.candidate import (
    CLOSED_FORM_ERROR,
    MOST_NEAR,
    PIPELINE,
    Candidate,
    with_settings,
)
from dayfly.runs.choosing.candidates import Proposed, beaten, in_order, proposed
from dayfly.runs.choosing.cuts import merging_words, search_work
from dayfly.runs.choosing.knobs import Knob
from dayfly.runs.choosing.local_search import settled
from dayfly.runs.choosing.option import VIRTUAL_TIME, Option, least_times
from dayfly.runs.choosing.other_stores import OverStore, store_words
from dayfly.runs.choosing.query import MICRO_SAMPLES, PlanQuery
from dayfly.runs.choosing.ranking import ranked
from dayfly.runs.choosing.targets import Target
from dayfly.runs.choosing.variants import variants


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperChoice:
    """What a paper's method chooses for the same job.

    Attributes:
        method: name of the paper's method.
        option: its plan as dayfly predicts it; None: it chooses nothing.
        why: the reason why it chooses nothing.
    """

    method: str
    option: Option | None = None
    why: str = ""


def places(targets: Sequence[Target]) -> tuple[str, ...]:
    """Returns the targets in words, choices of servers together."""
    said: dict[str, None] = {}
    for target in targets:
        of_group = target.platform, target.group
        count = sum((one.platform, one.group) == of_group for one in targets)
        servers = f"{target.platform.name} over {count} choices of servers {target.group}"
        said[servers if target.group else str(target)] = None
    return tuple(said)


#: Places that are named one by one.
_FEW_PLACES = 6


def where_in_words(targets: Sequence[Target]) -> str:
    """Returns the targets in words; of many places how many platforms they are."""
    named = places(targets)
    if len(named) <= _FEW_PLACES:
        return ", ".join(named)
    return f"{len({target.platform.name for target in targets})} platforms"


#: Reasons that are said where there is no plan, at most.
_REASONS = 4
#: Of the time limit, what the searches for pipelines get together.
_SEARCHING = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was found.

    Attributes:
        job: its name.
        targets: platforms and stores that were looked at.
        asked: the query.
        front: of all targets together.
        chosen: the point of the front that the goal chooses.
        others: plans that are not on the front, as one on it is faster and cheaper.
        considered: number of plans that the planners proposed.
        predicted: number of these that were predicted as `dayfly predict` does.
        gap: certified, of the search for pipelines within its model; 0: exact.
        is_best: whether none of the chosen plan's neighbours would be chosen in its place; False:
            the search for a better one had to end.
        stores: the chosen one's functions over each other store.
        knobs: the chosen one with one setting changed, each alone.
        notes: what a person should know, a sentence each.
    """

    job: str
    targets: tuple[Target, ...]
    asked: PlanQuery
    front: Front[Option]
    chosen: Point[Option]
    others: tuple[Point[Candidate], ...]
    considered: int
    predicted: int
    gap: float
    is_best: bool
    stores: tuple[OverStore, ...]
    knobs: tuple[Knob, ...]
    notes: tuple[str, ...]
    took_s: float

    @property
    def words(self) -> str:
        """Why the chosen one."""
        return self.asked.goal.words(self.front, self.chosen)

    @property
    def store_words(self) -> str:
        """Why the chosen one's store; empty: there is no other."""
        return store_words(self.chosen.plan, self.stores) if self.stores else ""

    @property
    def knee(self) -> Point[Option]:
        """Of the front."""
        return self.front.knee()

    def marks(self, point: Point[Option]) -> tuple[str, ...]:
        """What a plan of the front is: chosen, fastest, cheapest, knee (of more than two)."""
        of = {
            "chosen": self.chosen,
            "fastest": self.front.fastest,
            "cheapest": self.front.cheapest,
        }
        if len(self.front.points) > 2:
            of["knee"] = self.knee
        return tuple(name for name, one in of.items() if one is point)


def choice_of(
    targets: Sequence[Target], asked: PlanQuery, told: Callable[[str], None] | None = None
) -> Choice:
    """Choose.

    Args:
        targets: platforms and stores to choose among.
        asked: goal and limits.
        told: what takes long and is done once, as compiling the search; None: nobody.

    Raises:
        RequestError: there is no plan as asked for; with the nearest one.
    """
    if not targets:
        raise RequestError("a choice needs a platform and a store: name one of each at least")
    make_ready(max(search_work(one, asked) for one in targets), told or (lambda text: None))
    began = time.monotonic()
    targets = [one.of_sizes(asked.memory_mib) for one in targets]
    # Plans that another one beats are shown beside the front, where one place is asked about.
    several = len(targets) > 1
    known = KnownPlans(Known(CLOSED_FORM_ERROR), Known(CLOSED_FORM_ERROR)) if several else None
    choosing = variants([one.profile for one in targets], asked)
    found = [
        one
        for variant in choosing.asked
        for one in _proposed(targets, variant, known, len(choosing.asked))
    ]
    candidates = _together(
        [
            counted
            for one in found
            for candidate in one.candidates
            if (counted := choosing.of(candidate)) is not None
        ]
    )
    if known is not None:
        candidates = [one for one in candidates if not beaten(one, known)]
    if asked.ends:
        candidates = [with_settings(one, {**one.own, **asked.ends}) for one in candidates]
    several_ways = len(choosing.asked) > 1
    refused = [
        (f"{target}, {_way(variant) if several_ways else ''}{planner}", why)
        for (variant, target), one in zip(product(choosing.asked, targets), found, strict=True)
        for planner, why in one.refused.items()
    ]
    if not candidates:
        raise RequestError(f"no plan: {_in_short(refused)}")
    notes = [f"{where}: {why}" for where, why in refused]
    best = ranked(candidates, asked.goal, limit_s=asked.time_limit_s, least=asked.least_predicted)
    around = settled(best, asked, targets, choosing.of)
    best, front = around.plans, around.plans.front
    gap = max(one.gap for one in found)
    closed = sum(one.plan.by != VIRTUAL_TIME for one in front.points)
    if closed:
        notes.append(
            f"{closed} of the front are predicted by closed forms, as their messages are too many "
            "for the time limit: allow more with --time-limit"
        )
    notes += [*choosing.notes, *asked.target_words, *least_times(front)]
    notes += filter(None, (merging_words(target, asked) for target in targets))
    if best.too_large:
        notes.append(f"{best.too_large} left out: they need more memory than their functions have")
    notes += [note for target in targets for note in target.notes]
    notes += [
        f"{target.profile.channel} has no prices in the catalogue: its messages count nothing"
        for target in targets
        if target.store is None and "://" not in target.profile.channel
    ]
    return Choice(
        job=targets[0].profile.job,
        targets=tuple(targets),
        asked=asked,
        front=front,
        chosen=asked.goal.choose(front),
        others=best.others(front),
        considered=best.considered,
        predicted=len(best.options),
        gap=gap,
        is_best=around.is_best,
        stores=around.stores,
        knobs=around.knobs,
        notes=tuple(dict.fromkeys(notes)),
        took_s=time.monotonic() - began,
    )


def _in_short(refused: Sequence[tuple[str, str]]) -> str:
    """The first of the reasons why there is no plan, each once, and how many there are."""
    where: dict[str, list[str]] = {}
    for place, why in refused:
        where.setdefault(why, []).append(place)
    said = [
        f"{first}{f' and {len(others)} more' if others else ''}: {why}"
        for why, (first, *others) in where.items()
    ]
    left = len(said) - _REASONS
    return "; ".join(said[:_REASONS]) + (
        f"; and {counted(left, 'more reason')}" if left > 0 else ""
    )


def _way(variant: PlanQuery) -> str:
    """A variant before its planners' words."""
    batch = "" if variant.batch_size is None else f"@{variant.batch_size}"
    return f"{variant.method}{batch}, "


def _proposed(
    targets: Sequence[Target], asked: PlanQuery, known: KnownPlans | None, ways: int
) -> list[Proposed]:
    """Of each target, in their order, for one of so many variants.

    What the searches may take is CPU time: a machine that is busy otherwise ends none early.
    """
    found: dict[int, Proposed] = {}
    order = in_order(targets, asked) if known is not None else range(len(targets))
    until = forked.cpu_s() + _SEARCHING * asked.time_limit_s / ways
    for number, at in enumerate(order):
        # Those to come need less: most of them are beaten by what is known then.
        left_s = max(0.0, until - forked.cpu_s()) / min(2, len(order) - number)
        found[at] = proposed(targets[at], asked, time_limit_s=max(0.01, left_s), known=known)
    return [found[at] for at in range(len(targets))]


def _together(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Leaves out choices of servers that others of the group beat by more than closed forms err.

    A lone function sends nothing but reports, so it needs no server where there is another store.
    """
    kept = [one for one in candidates if not one.target.group]
    groups: dict[tuple[str, str], list[Point[Candidate]]] = {}
    for one in candidates:
        if one.target.group and not (kept and one.settings.workers == 1):
            key = one.target.platform.name, one.target.group
            groups.setdefault(key, []).append(Point(one.seconds, one.usd, one, one.limits))
    for points in groups.values():
        near = Front.of(points).near(points, CLOSED_FORM_ERROR, MOST_NEAR)
        kept += [point.plan for point in near]
    return kept


#: A smaller gap above 0 is shown as this one.
_LEAST_GAP = 1e-4


def certainty(choice: Choice) -> str:
    """How good the front is, a sentence."""
    more = "" if choice.gap == 0.0 else f"more than {per_cent(max(choice.gap, _LEAST_GAP), 1.0)} "
    left = ["cuts within merged layers"] * any(
        merging_words(target, choice.asked) for target in choice.targets
    )
    candidates = (
        *(one.plan.candidate for one in choice.front.points),
        *(one.plan for one in choice.others),
    )
    if not choice.asked.micro_batches and any(one.kind == PIPELINE for one in candidates):
        left.append(f"micro-batches of other than about {MICRO_SAMPLES} samples")
    within = f"; {' and '.join(left)} were not searched" if left else ""
    changed = (
        "no plan with one setting changed, as --plot shows them, would be chosen in its place"
        if choice.is_best
        else "with one more setting changed it may be better"
    )
    return (
        f"By the planners' equations, of seconds, dollars and memory, no plan is {more}better than "
        f"those of their front{within}. Predicted, as dayfly predict does: {choice.predicted} of "
        f"{counted(choice.considered, 'candidate')}, among which the choice is; {changed}. It took "
        f"{choice.took_s:.2g} s."
    )
