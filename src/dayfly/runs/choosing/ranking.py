"""The planners' best, predicted by a run's own schedules: what is shown, and chosen among.

    candidates   seconds and dollars by closed forms, each planner's own
         |       those that the choice depends on first, then where the front has the widest gaps,
         |       then those next to it
         v
    options      seconds, dollars and memory as `dayfly predict` has them

Virtual time goes through every message, which of many workers takes longer than a person waits. A
plan with too many for the time limit is predicted by `planning.closed_form`, and says so. How many
plans are predicted is bounded by their messages and not by a clock, so that a loaded machine
predicts the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean

import numpy as np

from dayfly.errors import RequestError
from dayfly.planning.checks import check_configuration
from dayfly.planning.choose.arrays import over_front, undominated
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.closed_form import MOST_SIMULATED
from dayfly.planning.configuration import stage_memory_mib, stage_range, stage_size
from dayfly.planning.epochs import step_messages, steps_gone_through
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.memory import misfits
from dayfly.planning.plan import Plan, Prediction
from dayfly.planning.predict import predict
from dayfly.runs.choosing.candidate import K_REDUCE, PIPELINE, Candidate, learning
from dayfly.runs.choosing.query import Goal
from dayfly.runs.plans import configuration, plan_of
from dayfly.runs.settings import Settings
from dayfly.specs.methods import Method
from dayfly.wire.pipelines.orders import FILL_DRAIN

VIRTUAL_TIME, CLOSED_FORMS = "virtual time", "closed forms"
#: Messages of a step that one plan may have for each second of the time limit: a thousand take
#: about 0.06 s, of a core.
MESSAGES_PER_S = 1000
#: Messages of all predicted plans for each second of the time limit, in steps and validations.
_ALL_PER_S = 50_000
#: Messages of all predicted plans up to which more are predicted than were asked for, as they take
#: no time to speak of.
_SOON = 30_000
#: Making a plan's schedules and its bill takes as long as going through so many messages.
_EACH = 200
#: A candidate that is worse than one of the front in both goals, but by less, may be better when it
#: is predicted.
_NEAR = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate, predicted.

    Attributes:
        by: virtual time or closed forms.
        messages: of the steps that were gone through for it, by closed forms none.
    """

    candidate: Candidate
    prediction: Prediction
    by: str
    messages: int = 0

    def __str__(self) -> str:
        return str(self.candidate)

    @property
    def short(self) -> str:
        """It in a few words, for tables."""
        one = self.candidate
        own = one.kind == K_REDUCE and one.wanted.batch_size == one.target.profile.batch_size
        batch = f", batch {one.wanted.batch_size}" if own else ""
        return f"{shorthand(one.settings)}{learning(one.target, one.settings, one.wanted)}{batch}"

    @property
    def plan(self) -> Plan:
        """For `dayfly train --plan`."""
        one = self.candidate
        return plan_of(one.target.profile, one.settings, one.wanted, self.prediction)

    @property
    def run_breakdown(self) -> dict[str, float]:
        """Seconds of the run: of all steps what a step's parts are, and what is left, which is
        starting, validation, hand-overs and the end. They add up."""
        one = self.candidate
        steps = one.wanted.epochs * one.target.profile.samples / one.wanted.batch_size
        parts = {name: steps * part for name, part in self.prediction.breakdown.items()}
        return {**parts, "start-up": max(0.0, self.prediction.total_s - sum(parts.values()))}

    @property
    def point(self) -> Point[Option]:
        """On a front."""
        said = self.prediction
        return Point(said.total_s, said.cost_usd, self, self.candidate.limits)


def shorthand(settings: Settings) -> str:
    """What is chosen of a run's settings, in a few words; `learning` names the method."""
    k = "" if settings.aggregators is None else f" K={settings.aggregators}"
    sums = settings.members > 1 and not settings.protocol.staleness
    summed = f", {settings.algorithm}{k}" if sums else ""
    if settings.shares:
        summed += f", shares {' and '.join(map(str, dict.fromkeys(settings.shares)))}"
    micro = settings.micro_batches or 1
    micros = f", {micro} micro" if micro > 1 else ""
    micros += "" if settings.schedule == FILL_DRAIN else f" by {settings.schedule}"
    cores = settings.cpu_cores if settings.imitate is not None else None
    has = FunctionKind(vcpus=cores, gpu_share=settings.gpu_share)
    if not settings.cut:
        return f"{settings.workers} of {settings.memory_mib} MiB{has}{micros}{summed}"
    sizes = settings.stage_memory_mib
    runs = [(len(list(same)), size) for size, same in groupby(sizes)]
    memory = "+".join(f"{count}x{size}" if count > 1 else f"{size}" for count, size in runs)
    memory = memory if len(runs) > 1 else f"{sizes[0]}"
    each = settings.layout.in_words
    return f"{settings.stages} stages x {each} of {memory} MiB{has}{micros}{summed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Candidates of all planners, the best of them predicted.

    Attributes:
        front: of the predicted ones.
        chosen: the point of the front that the goal chooses.
        others: all that are not on the front: as predicted, else as their planner expects.
        predicted: number of predicted candidates.
        too_large: number of candidates whose prediction did not fit into memory.
    """

    front: Front[Option]
    chosen: Point[Option]
    others: tuple[Point[Candidate], ...]
    predicted: int
    too_large: int


def ranked(candidates: Sequence[Candidate], goal: Goal, *, limit_s: float, least: int) -> Ranked:
    """Predict those that matter, and choose.

    Args:
        candidates: of all planners and targets.
        goal: which of the front's plans is chosen.
        limit_s: seconds of the whole request, by which the messages of one plan, and of all that
            are predicted, may be more or fewer. Beyond these only what the choice itself needs is
            predicted.
        least: so many are predicted if there are so many, and more if they have few messages.

    Raises:
        RequestError: no plan keeps the goal's limits; with the nearest one.
    """
    search = _Search(candidates, goal, MESSAGES_PER_S * limit_s)
    while search.open:
        late = search.messages >= _ALL_PER_S * limit_s
        enough = late or (len(search.options) >= least and search.messages >= _SOON)
        at = search.needed(late=late)
        if at is None and not enough:
            at = search.widest()
            at = search.closest() if at is None else at
        if at is None:
            break
        search.predict(at)
    options = search.options
    if not options:
        raise RequestError(
            "no plan fits into the memory of its functions, when what they really hold is counted: "
            "allow larger ones with --memory, or more micro-batches"
        )
    final = Front.of(option.point for option in options)
    return Ranked(
        front=final,
        chosen=goal.choose(final),
        others=search.others(final),
        predicted=len(options),
        too_large=search.too_large,
    )


class _Search:
    """Candidates that are open, and options that were made of others.

    messages: that those which were predicted have in what was gone through, about.

    An open one counts as its planner has it, times how far planner and prediction were apart in the
    mean of those like it: of the same target, kind, collective and schedule, alone or not; or,
    until one is predicted, of those at other targets.
    """

    def __init__(self, candidates: Sequence[Candidate], goal: Goal, most_messages: float) -> None:
        self.open: dict[int, Candidate] = dict(enumerate(candidates))
        self.options: list[Option] = []
        self.too_large = 0
        self.messages = 0
        self._goal, self._most_messages = goal, most_messages
        self._like = [_like(one) for one in candidates]
        self._apart: dict[object, list[tuple[float, float]]] = {}
        self._mean: dict[object, tuple[float, float]] = {}
        #: (candidates, 2), seconds and dollars of each as its planner has it, and as expected.
        self._planned = self._expected = np.array([(one.seconds, one.usd) for one in candidates])

    def predict(self, number: int) -> None:
        """Make an option of a candidate, unless it does not fit."""
        candidate = self.open.pop(number)
        option = predicted(candidate, self._most_messages)
        self.messages += _EACH + option.messages
        if not fits(option):
            self.too_large += 1
            return
        self.options.append(option)
        said = option.prediction
        ratios = (said.total_s / candidate.seconds, said.cost_usd / candidate.usd)
        like = self._like[number]
        for of in (like, like[1:]):
            apart = self._apart.setdefault(of, [])
            apart.append(ratios)
            seconds, usd = (geometric_mean(column) for column in zip(*apart, strict=True))
            self._mean[of] = seconds, usd
        mean, usual = self._mean, (1.0, 1.0)
        ratio = [mean.get(one) or mean.get(one[1:], usual) for one in self._like]
        self._expected = self._planned * np.array(ratio)

    def others(self, front: Front[Option]) -> tuple[Point[Candidate], ...]:
        """All that are not on this front, as predicted, or expected if they are still open."""
        on = {id(point.plan.candidate) for point in front.points}
        known = [
            Point(one.prediction.total_s, one.prediction.cost_usd, one.candidate)
            for one in self.options
            if id(one.candidate) not in on
        ]
        left = zip(self._expected[list(self.open)].tolist(), self.open.values(), strict=True)
        return (*known, *(Point(seconds, usd, one) for (seconds, usd), one in left))

    def needed(self, *, late: bool) -> int | None:
        """The candidate that the choice depends on; late: nothing but the choice itself."""
        front = self._front()
        found = []
        try:
            found.append(self._goal.choose(front))
        except RequestError:  # the ends decide what is refused
            found += [front.fastest, front.cheapest]
        if not late:
            found += [front.fastest, front.cheapest, front.knee()]
        return next((one.plan for one in found if one.plan is not None), None)

    def widest(self) -> int | None:
        """The candidate of the front that is furthest from all that is predicted, both goals on a
        logarithmic scale."""
        points = self._front().points
        known = [one for one in points if one.plan is None]

        def far(point: Point[int | None]) -> float:
            return min(
                (
                    math.hypot(math.log(point.seconds / one.seconds), math.log(point.usd / one.usd))
                    for one in known
                ),
                default=math.inf,
            )

        left = [one for one in points if one.plan is not None]
        return max(left, key=far).plan if left else None

    def closest(self) -> int | None:
        """The candidate that is next to the front: prediction may bring it there. None: all are
        worse by a quarter in both goals."""
        numbers = list(self.open)
        front = np.array([(one.seconds, one.usd) for one in self._front().points])
        seconds, usd = self._expected[numbers].T
        worse = over_front(seconds, usd, front)
        at = int(worse.argmin())
        return numbers[at] if worse[at] < _NEAR else None

    def _front(self) -> Front[int | None]:
        """Of all that is known; plans are numbers of candidates, or None: predicted."""
        said = [(one.prediction.total_s, one.prediction.cost_usd) for one in self.options]
        numbers = [*(None for _ in said), *self.open]
        each = np.array([*said, *self._expected[list(self.open)].tolist()])
        seconds, usd = each.T
        on = undominated(seconds, usd).tolist()
        return Front(tuple(Point(float(seconds[at]), float(usd[at]), numbers[at]) for at in on))


def _like(candidate: Candidate) -> tuple[object, ...]:
    settings = candidate.settings
    alone = settings.members == 1
    way = alone or settings.algorithm, settings.schedule, Method.of(settings)
    return str(candidate.target), candidate.kind, *way


def predicted(candidate: Candidate, most_messages: float) -> Option:
    """In virtual time, or if a step has more messages by closed forms."""
    one, target = candidate, candidate.target
    asked = configuration(one.settings, one.wanted)
    check_configuration(target.profile, asked)
    step = step_messages(target.profile, asked) if asked.workers <= MOST_SIMULATED else math.inf
    if step > most_messages:
        said = predict(target.profile, asked, target.platform, target.store, most_simulated=0)
        return Option(candidate=one, prediction=said, by=CLOSED_FORMS)
    said = predict(target.profile, asked, target.platform, target.store)
    messages = int(step) * steps_gone_through(int(step))
    return Option(candidate=one, prediction=said, by=VIRTUAL_TIME, messages=messages)


def fits(option: Option) -> bool:
    """Whether it has the memory that it needs."""
    one = option.candidate
    c = configuration(one.settings, one.wanted)
    return not misfits(one.target.profile, c, option.prediction)


def least_times(front: Front[Option]) -> list[str]:
    """Returns notes where cut models run for less than a place bills: their search counts seconds.

    Args:
        front: of plans as they are predicted.
    """
    found: dict[str, float] = {}
    for point in front.points:
        one = point.plan.candidate
        prices = one.target.platform.prices
        least_s = prices.billing_min_ms / 1000 if prices is not None else 0.0
        if one.kind == PIPELINE and point.seconds < least_s:
            found[one.target.platform.name] = least_s
    return [
        f"{name} bills {least_s:g} s at least, and the search for cut models counts each second: "
        "for a run as short as this, a cut of fewer functions may be cheaper"
        for name, least_s in found.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLayer:
    """A layer, as a page draws it.

    Attributes:
        name: the layer's.
        compute_s: of a micro-batch, forward and backward, in its stage's functions.
        parameter_bytes: of all its parameters.
        output_bytes: of a sample.
    """

    name: str
    compute_s: float
    parameter_bytes: float
    output_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStage:
    """A stage, as a page draws it.

    Attributes:
        layers: numbers of its layers.
        replicas: functions that hold it.
        memory_mib: of each of them; None: not limited.
        peak_mib: predicted peak of one of them.
    """

    layers: range
    replicas: int
    memory_mib: int | None
    peak_mib: float


def cut_of(option: Option) -> tuple[tuple[CutLayer, ...], tuple[CutStage, ...]]:
    """All layers, and the stages that they make; one if the model is not cut."""
    one = option.candidate
    profile, c = one.target.profile, configuration(one.settings, one.wanted)
    samples = max(1, -(-c.batch_size // (c.members * c.micro_batches)))
    layers: list[CutLayer] = []
    stages = []
    for stage in range(c.stages):
        mine, size = stage_range(profile, c, stage), stage_size(profile, c, stage)
        stages.append(
            CutStage(
                layers=mine,
                replicas=c.members_of(stage),
                memory_mib=stage_memory_mib(c, stage),
                peak_mib=option.prediction.memory_mib[stage],
            )
        )
        layers += [
            CutLayer(
                name=profile.layers[at].name,
                compute_s=size.forward[at](samples) + size.backward[at](samples),
                parameter_bytes=float(profile.layers[at].parameters),
                output_bytes=profile.layers[at].output,
            )
            for at in mine
        ]
    return tuple(layers), tuple(stages)
