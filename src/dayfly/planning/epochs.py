"""A step and an epoch, by the very schedules that a run has, in virtual time or by closed forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dayfly.batches import Batches, Rounds
from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning import data_parallel, hybrid, staged, staged_validation
from dayfly.planning.closed_form import MOST_SIMULATED, many_requests, many_step, many_validation
from dayfly.planning.configuration import Configuration
from dayfly.planning.local_rounds import local_round
from dayfly.planning.plan import Volume
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.timing import Steps, moved_by, over_periods, timed, times, together, volume
from dayfly.wire.streams import Rank

#: Operations of a simulation, about: what takes a few hundredths of a second.
_ENOUGH = 2500
#: Steps at most: the CPU's periods begin anywhere in a step, so several are looked at.
_MOST_STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some steps that all workers take, or a validation. moved: by each worker."""

    seconds: float
    moved: Sequence[StoreTraffic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """See `Prediction`. steps: of an epoch, and trained: what they take and move together.
    validation: what one takes and moves."""

    step_s: float
    breakdown: Mapping[str, float]
    step_volume: Volume
    steps: int
    trained: Part
    validation: Part

    @property
    def epoch_s(self) -> float:
        """Predicted seconds of an epoch: all its steps, and the validation after them."""
        return self.trained.seconds + self.validation.seconds

    @property
    def epoch_volume(self) -> Volume:
        """Bytes and requests of all workers together in an epoch, its validation included."""
        return volume([*self.trained.moved, *self.validation.moved])


def epoch_of(
    profile: Profile, c: Configuration, means: ChannelModel, most_simulated: int = MOST_SIMULATED
) -> Epoch:
    """Predict it. most_simulated: workers up to which all messages are gone through."""
    epochs = Batches(profile.samples, c.batch_size)
    rounds = Rounds(epochs, c.round_steps)
    full = tuple([min(c.batch_size, profile.samples)] * rounds.longest)
    whole, last = divmod(epochs.steps, rounds.longest)
    ragged = len(epochs.batch(epochs.steps - 1))
    final = (last or rounds.longest) - 1
    closing = (*full[:final], ragged)
    # Rounds, by their batches, and whether they end an epoch, where streamed sums are waited for.
    usually, ending = (full, False), (closing, c.streaming is not None)
    kinds = {usually: whole - (not last)}
    kinds[ending] = kinds.get(ending, 0) + 1
    found = {
        (batches, closes): round_of(profile, c, means, batches, most_simulated, closes=closes)
        for (batches, closes), count in kinds.items()
        if count
    }
    usual, moved = found.get(usually) or found[ending]
    steps = rounds.longest if usually in found else len(closing)
    trained = Part(
        seconds=sum(kinds[kind] * one.step_s for kind, (one, _) in found.items())
        + found[ending][0].ending_s,
        moved=[
            together(times(by[rank], kinds[kind]) for kind, (_, by) in found.items())
            for rank in range(c.workers)
        ],
    )
    return Epoch(
        step_s=usual.step_s / steps,
        breakdown={what: seconds / steps for what, seconds in usual.breakdown.items()},
        step_volume=volume(moved, steps),
        steps=epochs.steps,
        trained=trained,
        validation=validation_of(profile, c, means, most_simulated),
    )


def step_messages(profile: Profile, c: Configuration) -> int:
    """Requests for messages of a step, all workers' together, by closed forms."""
    rounds = Rounds(Batches(profile.samples, c.batch_size), c.round_steps)
    full = [min(c.batch_size, profile.samples)] * rounds.longest
    requests = many_requests(profile, c, ChannelModel.of(profile), full)
    return sum(round(count / rounds.longest) for count in requests)


def steps_gone_through(operations: int) -> int:
    """Returns how many steps virtual time goes through.

    Args:
        operations: of a step, all workers' together.
    """
    return max(1, min(_MOST_STEPS, _ENOUGH // max(1, operations)))


def round_of(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batches: tuple[int, ...],
    most_simulated: int = MOST_SIMULATED,
    *,
    closes: bool = False,
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """A round, which is a step of bsp, and what each worker moves.

    closes: whether it ends an epoch; what is streamed is waited for then.
    """
    if c.workers > most_simulated:
        return many_step(profile, c, means, batches, closes=closes)
    if c.protocol.averages:
        return local_round(profile, c, means, batches, closes=closes)
    if c.protocol.staleness:
        return hybrid.step(profile, c, means, batches[0], steps_gone_through)
    if c.cut:
        once = staged.ranks(profile, c, means, batches[0])
    else:
        once = data_parallel.ranks(profile, c, means, batches)
    moved = [moved_by(rank.streams, means) for rank in once[: c.workers]]
    operations = sum(len(stream.plan.numbers) for rank in once for stream in rank.streams)
    last = len(once[0].streams) - 1

    def steps(count: int, first: int) -> Steps:
        return timed(once, count, lambda at: at == last, means.shared, repeat=True, first=first)

    return over_periods(steps, once, steps_gone_through(operations)), moved


def validation_of(
    profile: Profile, c: Configuration, means: ChannelModel, most_simulated: int = MOST_SIMULATED
) -> Part:
    """A validation of all workers."""
    if c.workers > most_simulated and c.layout.even:
        seconds, moved = many_validation(profile, c, means)
        return Part(seconds=seconds, moved=moved)
    seconds, found = 0.0, [StoreTraffic() for _ in range(c.workers)]
    rounds: list[tuple[Sequence[Rank], Sequence[Rank], int]] = []
    if c.cut:
        for one in staged_validation.validation(profile, c, means):
            rounds.append((one.ranks, staged_validation.joining(one, means.shared), one.count))
    else:
        everybody = data_parallel.validation(profile, c, means)
        rounds.append((everybody, everybody, 1))
    for ranks, timed_by, count in rounds:
        seconds += count * timed(timed_by, 1, lambda number: False, means.shared).step_s
        each = [moved_by(rank.streams, means) for rank in ranks[: c.workers]]
        found = [together((a, times(b, count))) for a, b in zip(found, each, strict=True)]
    return Part(seconds=seconds, moved=found)
