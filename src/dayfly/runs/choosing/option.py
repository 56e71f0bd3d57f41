"""A predicted candidate: its prediction, its words in tables, and its cut for drawings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from dayfly.closing import Closing
from dayfly.errors import RequestError
from dayfly.planning.checks import check_configuration
from dayfly.planning.choose.forked import Forks, each
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.closed_form import MOST_SIMULATED
from dayfly.planning.configuration import stage_memory_mib, stage_range, stage_size
from dayfly.planning.epochs import step_messages, steps_gone_through
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.memory import misfits
from dayfly.planning.plan import Plan, Prediction
from dayfly.planning.predict import predict
from dayfly.runs.choosing.candidate import (
    K_REDUCE,
    PIPELINE,
    Candidate,
    by_closed_forms,
    learning,
)
from dayfly.runs.plans import configuration, plan_of
from dayfly.runs.settings import Settings
from dayfly.wire.pipelines.orders import FILL_DRAIN

VIRTUAL_TIME, CLOSED_FORMS = "virtual time", "closed forms"


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

    @property
    def as_other(self) -> Point[Candidate]:
        """Beside a front, where its prediction is not shown."""
        return Point(self.prediction.total_s, self.prediction.cost_usd, self.candidate)


def shorthand(settings: Settings) -> str:
    """Returns functions, memory and collective of a plan, such as `4 of 2048 MiB, ring`."""
    k = "" if settings.aggregators is None else f" K={settings.aggregators}"
    sums = settings.members > 1 and not settings.protocol.staleness
    summed = f", {settings.algorithm}{k}" if sums else ""
    if settings.shares:
        summed += f", shares {' and '.join(map(str, dict.fromkeys(settings.shares)))}"
    micro = settings.micro_batches or 1
    micros = f", {micro} micro-batches" if micro > 1 else ""
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
    replicas = "" if each == "1" else f" x {each}"
    return f"{settings.stages} stages{replicas} of {memory} MiB{has}{micros}{summed}"


def predicted(candidate: Candidate, most_messages: float) -> Option:
    """Returns the candidate with its prediction.

    Args:
        most_messages: that a step may have to be predicted in virtual time; if it has more, it is
            by closed forms.

    Raises:
        RequestError: it cannot be run.
    """
    return _option(candidate, _said(most_messages, candidate))


class KnownPredictions:
    """Predicts candidates, each once.

    Args:
        most_messages: as of `predicted`.
        options: that were predicted before.
    """

    def __init__(self, most_messages: float, options: Iterable[Option] = ()) -> None:
        self._most_messages = most_messages
        self._known: dict[object, Option | RequestError] = {
            one.candidate.run: one for one in options
        }

    def each(self, candidates: Sequence[Candidate | RequestError]) -> list[Option | RequestError]:
        """Returns each with its prediction, or why it cannot be run; in parallel.

        Args:
            candidates: or why there is none, which is returned as it is.
        """
        runs = [one if isinstance(one, RequestError) else one.run for one in candidates]
        new = {
            run: one
            for run, one in zip(runs, candidates, strict=True)
            if isinstance(one, Candidate) and run not in self._known
        }
        made = each(partial(_said_or_why, self._most_messages), [*new.values()])
        for (run, candidate), one in zip(new.items(), made, strict=True):
            known = one if isinstance(one, RequestError) else _option(candidate, one)
            self._known[run] = known
        return [one if isinstance(one, RequestError) else self._known[one] for one in runs]


def _said_or_why(
    most_messages: float, candidate: Candidate
) -> tuple[Prediction, str, int] | RequestError:
    try:
        return _said(most_messages, candidate)
    except RequestError as refusal:
        return refusal


class Predicting(Closing):
    """Predicts candidates, several in parallel (`forked`).

    Args:
        candidates: all that may be predicted.
        most_messages: as of `predicted`.
        at_once: the most numbers that `of` is given at a time.
    """

    def __init__(self, candidates: Sequence[Candidate], most_messages: float, at_once: int) -> None:
        self._candidates = candidates
        self._forks = Forks(partial(_said, most_messages), candidates, at_once)

    def of(self, numbers: Sequence[int]) -> list[Option]:
        """Returns candidates with their predictions.

        Args:
            numbers: of the candidates, by their place among all.

        Raises:
            RequestError: one of them cannot be run.
        """
        said = self._forks.of(numbers)
        return [_option(self._candidates[at], one) for at, one in zip(numbers, said, strict=True)]

    def close(self) -> None:
        """Ends the processes that predict."""
        self._forks.close()


def _option(candidate: Candidate, said: tuple[Prediction, str, int]) -> Option:
    prediction, by, messages = said
    return Option(candidate=candidate, prediction=prediction, by=by, messages=messages)


def _said(most_messages: float, candidate: Candidate) -> tuple[Prediction, str, int]:
    """Prediction, how it was made, and the number of messages that virtual time handled for it."""
    target = candidate.target
    asked = configuration(candidate.settings, candidate.wanted)
    check_configuration(target.profile, asked)
    step = step_messages(target.profile, asked) if asked.workers <= MOST_SIMULATED else math.inf
    if step > most_messages:
        return by_closed_forms(candidate), CLOSED_FORMS, 0
    said = predict(target.profile, asked, target.platform, target.store)
    return said, VIRTUAL_TIME, int(step) * steps_gone_through(int(step))


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
