"""The planners' best, predicted by a run's own schedules: what is shown, and chosen among.

    candidates   seconds and dollars by closed forms, each planner's own
         |       those that the choice depends on first, then where the front has the widest gaps,
         |       then those next to it
         v
    options      seconds, dollars and memory as `dayfly predict` has them

Virtual time goes through every message, which of many workers takes longer than a person waits. A
plan with too many for the time limit is predicted by `planning.closed_form`, and says so. How many
plans are predicted is bounded by their messages and not by a clock, and a few are predicted at a
time, however many CPUs there are, so that any machine predicts the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Self

import numpy as np

from dayfly.errors import RequestError
from dayfly.planning.choose.arrays import over_front, undominated
from dayfly.planning.choose.front import Front, Point
from dayfly.runs.choosing.candidate import PIPELINE, Candidate
from dayfly.runs.choosing.option import Option, Predicting, fits
from dayfly.runs.choosing.query import Goal
from dayfly.specs.methods import Method

#: Messages of a step that one plan may have for each second of the time limit: a thousand take
#: about 0.06 s, of a core.
MESSAGES_PER_S = 1000
#: Messages of all predicted plans for each second of the time limit, in steps and validations.
ALL_PER_S = 50_000
#: Messages of all predicted plans up to which more are predicted than were asked for, as they take
#: no time to speak of.
_SOON = 30_000
#: Making a plan's schedules and its bill takes as long as going through so many messages.
_EACH = 200
#: So many plans are predicted at a time. What one of them tells about the planner's error serves to
#: choose the next few.
_AT_ONCE = 4
#: A candidate of the front is predicted if it is further than this from all that are: a distance,
#: both goals on a logarithmic scale, so about a share.
_GAP = 0.05
#: A candidate that is worse than one of the front in both goals, but by less, may be better when it
#: is predicted.
_NEAR = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Candidates of all planners, the best of them predicted.

    Attributes:
        options: those that were predicted and fit into memory.
        open: the others, as their planners expect them.
        too_large: number of candidates whose prediction did not fit into memory.
    """

    options: tuple[Option, ...]
    open: tuple[Point[Candidate], ...]
    too_large: int

    @property
    def considered(self) -> int:
        """Number of all."""
        return len(self.options) + len(self.open) + self.too_large

    @property
    def messages(self) -> int:
        """About so many were gone through for the options."""
        return sum(_EACH + one.messages for one in self.options)

    def joined_by(self, options: Iterable[Option]) -> Self:
        """Returns these and others that were predicted, each once."""
        known = {one.candidate.run for one in self.options}
        new = {one.candidate.run: one for one in options if one.candidate.run not in known}
        return replace(
            self,
            options=(*self.options, *new.values()),
            open=tuple(one for one in self.open if one.plan.run not in new),
        )

    @property
    def front(self) -> Front[Option]:
        """Of the options."""
        return Front.of(one.point for one in self.options)

    def others(self, front: Front[Option]) -> tuple[Point[Candidate], ...]:
        """Returns all that are not on the front, as predicted or else as expected."""
        on = {id(point.plan) for point in front.points}
        return (*(one.as_other for one in self.options if id(one) not in on), *self.open)


def ranked(candidates: Sequence[Candidate], goal: Goal, *, limit_s: float, least: int) -> Ranked:
    """Predict those that matter.

    Args:
        candidates: of all planners and targets.
        goal: which of the front's plans is chosen.
        limit_s: seconds of the whole request, by which the messages of one plan, and of all that
            are predicted, may be more or fewer. Beyond these only what the choice itself needs is
            predicted.
        least: so many are predicted if there are so many, and more if they have few messages.

    Raises:
        RequestError: no plan fits into memory.
    """
    search = _Search(candidates, goal)
    with Predicting(candidates, MESSAGES_PER_S * limit_s, _AT_ONCE) as predicting:
        while search.open:
            late = search.messages >= ALL_PER_S * limit_s
            left = _AT_ONCE if search.messages < _SOON else least - len(search.options)
            few = search.next_few(0 if late else left, late=late)
            if not few:
                break
            search.learn(few, predicting.of(few))
    options = search.options
    if not options:
        raise RequestError(
            "no plan fits into the memory of its functions, when what they really hold is counted: "
            "allow larger ones with --memory, or more micro-batches"
        )
    return Ranked(options=tuple(options), open=search.still_open(), too_large=search.too_large)


class _Search:
    """Candidates that are open, and options that were made of others.

    messages: that those which were predicted have in what was gone through, about.

    An open one counts as its planner has it, times how far planner and prediction were apart in the
    mean of those like it: of the same target, kind, collective and schedule, alone or not, and
    micro-batches of cut models. Until one is predicted, those with other micro-batches are like it,
    and until one of these is, those at other targets.
    """

    def __init__(self, candidates: Sequence[Candidate], goal: Goal) -> None:
        self.open: dict[int, Candidate] = dict(enumerate(candidates))
        self.options: list[Option] = []
        self.too_large = 0
        self.messages = 0
        self._goal = goal
        self._like = [_like(one) for one in candidates]
        self._apart: dict[object, list[tuple[float, float]]] = {}
        self._mean: dict[object, tuple[float, float]] = {}
        #: (candidates, 2), seconds and dollars of each as its planner has it, and as expected.
        self._planned = self._expected = np.array([(one.seconds, one.usd) for one in candidates])

    def next_few(self, beyond: int, *, late: bool) -> list[int]:
        """Numbers of those to predict next, each chosen as if those before it came out as expected.

        beyond: so many, besides those that the choice depends on; late: see `_needed`.
        """
        few: list[int] = []
        while len(few) < _AT_ONCE:
            at = self._needed(few, late=late)
            if at is None and len(few) < beyond:
                at = self._widest(few)
                at = self._closest(few) if at is None else at
            if at is None:
                break
            few.append(at)
        return few

    def learn(self, few: Sequence[int], options: Sequence[Option]) -> None:
        """Take predicted candidates, unless they do not fit, and expect others as they came out."""
        for number, option in zip(few, options, strict=True):
            del self.open[number]
            self._learn(number, option)
        mean, usual = self._mean, (1.0, 1.0)
        ratio = [next(filter(None, map(mean.get, _wider(one))), usual) for one in self._like]
        self._expected = self._planned * np.array(ratio)

    def _learn(self, number: int, option: Option) -> None:
        self.messages += _EACH + option.messages
        if not fits(option):
            self.too_large += 1
            return
        self.options.append(option)
        said, candidate = option.prediction, option.candidate
        ratios = (said.total_s / candidate.seconds, said.cost_usd / candidate.usd)
        like = self._like[number]
        for of in _wider(like):
            apart = self._apart.setdefault(of, [])
            apart.append(ratios)
            seconds, usd = (geometric_mean(column) for column in zip(*apart, strict=True))
            self._mean[of] = seconds, usd

    def still_open(self) -> tuple[Point[Candidate], ...]:
        """Returns the candidates that were not predicted, with the seconds and dollars expected."""
        seconds, usd = self._expected.T.tolist()
        return tuple(Point(seconds[at], usd[at], one) for at, one in self.open.items())

    def _needed(self, chosen: Collection[int], *, late: bool) -> int | None:
        """The candidate that the choice depends on; late: nothing but the choice itself."""
        front = self._front(chosen)
        found = [self._goal.nearest(front)]
        if not late:
            found += [front.fastest, front.cheapest]
        return next((one.plan for one in found if one.plan is not None), None)

    def _widest(self, chosen: Collection[int]) -> int | None:
        """The candidate of the front that is furthest from all that is predicted, both goals on a
        logarithmic scale."""
        points = self._front(chosen).points
        known = [one for one in points if one.plan is None]

        def far(point: Point[int | None]) -> float:
            return min(
                (
                    math.hypot(math.log(point.seconds / one.seconds), math.log(point.usd / one.usd))
                    for one in known
                ),
                default=math.inf,
            )

        left = [one for one in points if one.plan is not None and far(one) > _GAP]
        return max(left, key=far).plan if left else None

    def _closest(self, chosen: Collection[int]) -> int | None:
        """The candidate that is next to the front: prediction may bring it there. None: all are
        worse by a quarter in both goals."""
        numbers = [one for one in self.open if one not in chosen]
        if not numbers:
            return None
        front = np.array([(one.seconds, one.usd) for one in self._front(chosen).points])
        seconds, usd = self._expected[numbers].T
        worse = over_front(seconds, usd, front)
        at = int(worse.argmin())
        return numbers[at] if worse[at] < _NEAR else None

    def _front(self, chosen: Collection[int]) -> Front[int | None]:
        """Of all; plans are numbers of candidates, or None: predicted, or chosen to be."""
        said = [(one.prediction.total_s, one.prediction.cost_usd) for one in self.options]
        still = list(self.open)
        numbers = [*(None for _ in said), *(None if one in chosen else one for one in still)]
        seconds, usd = np.array([*said, *self._expected[still].tolist()]).T
        on = undominated(seconds, usd).tolist()
        return Front(tuple(Point(float(seconds[at]), float(usd[at]), numbers[at]) for at in on))


def _like(candidate: Candidate) -> tuple[object, ...]:
    settings = candidate.settings
    alone = settings.members == 1
    way = alone or settings.algorithm, settings.schedule, Method.of(settings)
    # What a schedule costs beyond the equations of cuts grows with micro-batches.
    many = settings.micro_batches if candidate.kind == PIPELINE else None
    return many, str(candidate.target), candidate.kind, *way


def _wider(like: tuple[object, ...]) -> tuple[tuple[object, ...], ...]:
    """Groups that a candidate is in, the narrowest first."""
    return like, like[1:], like[2:]
