"""What came of a simulation, and its records, which are those of a real run's workers.

Seconds count from the beginning of the run; spans and passes are milliseconds of their record, as
`runs.spans` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dayfly.planning.simulation.fleet import DEATHS, Attempt, End, Fleet
from dayfly.planning.simulation.rounds import LocalSteps, Spans, Taken
from dayfly.planning.simulation.scenario import Floats, Ints
from dayfly.planning.simulation.turns import TrafficRows, Turn

Record = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Story:
    """What happened, in seconds of the run, for its events.

    Attributes:
        coordinator: in order of time, without functions that began and ended.
        workers: of those that are watched, records as real ones report them.
    """

    coordinator: list[Record] = field(default_factory=list)
    workers: dict[int, list[Record]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A run that was simulated.

    Attributes:
        status: "done", or "failed" with the error.
        attempts: of all functions, in the order of their ends.
        steps: that were completed.
        step_s: of each step that rank 0 took.
        epochs: (number, end).
        redone_steps: steps of workers that were computed again.
        moved: by worker, (N, 4). waited_s: of each worker, for others.
        computed_s: of each worker.
    """

    status: str
    error: str | None
    steps: int
    epochs: Sequence[tuple[int, float]]
    attempts: Sequence[Attempt]
    step_s: Sequence[float]
    redone_steps: int
    rollbacks: int
    checkpoints: int
    moved: TrafficRows
    computed_s: Sequence[float]
    stragglers: Ints
    generation: int
    story: Story

    @property
    def run_s(self) -> float:
        """From the first invocation to the end of the last function."""
        return max((one.end_s for one in self.attempts), default=0.0)

    @property
    def stepped(self) -> tuple[float, float] | None:
        """When the first step began and the last step or validation ended, of the workers that are
        watched; None: there was none."""
        told = [one for records in self.story.workers.values() for one in records]
        began = [one["began"] for one in told if one["kind"] in ("step", "round")]
        ended = [one["at"] for one in told if one["kind"] in ("step", "round", "epoch")]
        return (min(began), max(ended)) if began else None

    @property
    def deaths(self) -> int:
        """Of functions, by chance or in their first step."""
        return sum(one.end in DEATHS for one in self.attempts)

    @property
    def hand_overs(self) -> int:
        """Functions that handed over to their successors."""
        return sum(one.end is End.HANDED_OVER for one in self.attempts)

    @property
    def worst(self) -> Mapping[str, float]:
        """The worker that computed longest, and how long, beside the median."""
        if not len(self.computed_s):
            return {}
        seconds = max(self.computed_s)
        rank = self.computed_s.index(seconds) if isinstance(self.computed_s, list) else 0
        return {"rank": rank, "computed_s": seconds, "median_s": median(self.computed_s)}


#: Spans that are shorter are not told, in milliseconds.
_SHORT_MS = 0.05


class Telling:
    """Writes a story.

    Args:
        watched: the workers whose steps are told.
    """

    def __init__(self, story: Story, fleet: Fleet, watched: Sequence[int]) -> None:
        self._story = story
        self._fleet = fleet
        self._watched = tuple(watched)
        self.generation = 0
        for rank in watched:
            story.workers[rank] = []

    def started(self, ranks: Ints) -> None:
        """Functions were invoked, and will be able to work."""
        among = set(ranks.tolist())
        fleet = self._fleet
        for rank in self._watched:
            if rank in among:
                able_s = float(fleet.able_s[rank])
                ready_s = float(fleet.invoked_s[rank] + fleet.cold_s[rank])
                self._tell(rank, able_s, "start", step=0, seconds=able_s - ready_s)

    def ended(self, rank: int, how: End, at_s: float) -> None:
        """A function ended before its work was done: what it would have told, nobody heard."""
        if rank in self._story.workers:
            records = self._story.workers[rank]
            while records and records[-1]["at"] > at_s and _of(records[-1], self._fleet, rank):
                records.pop()

    def caught_up(self, rank: int, step: int, from_s: float, seconds: float, rounds: int) -> None:
        """A worker took so many rounds from the log, until it was level in a step."""
        if rank not in self._story.workers:
            return
        each_s = seconds / rounds
        for number in range(rounds):
            began_s = from_s + number * each_s
            self._tell(
                rank,
                began_s + each_s,
                "step",
                step=step - rounds + number,
                loss=None,
                computed=False,
                began=began_s,
                step_s=each_s,
                spans=_in_ms({"download": [(began_s, began_s + each_s)]}, began_s),
            )
        self._tell(rank, from_s + seconds, "caught up", step=step)

    def round(self, turn: Turn, taken: Taken) -> None:
        """All took a round."""
        for rank in self._watched:
            if isinstance(turn.rounds, LocalSteps):
                self._local_round(turn, turn.rounds, taken, rank)
            else:
                self._step(turn, taken, rank)

    def _step(self, turn: Turn, taken: Taken, rank: int) -> None:
        began_s, ended_s = float(taken.began_N[rank]), float(taken.ended_N[rank])
        spans, passes = turn.rounds.spans(taken, rank)
        told: Record = (
            {}
            if not passes
            else {
                "passes": [
                    [what, number, *(round(1000 * (at_s - began_s), 2) for at_s in times)]
                    for what, number, *times in passes
                ]
            }
        )
        self._tell(
            rank,
            ended_s,
            "step",
            step=turn.first,
            loss=None,
            computed=True,
            began=began_s,
            step_s=ended_s - began_s,
            spans=_in_ms(spans, began_s),
            **told,
        )

    def _local_round(self, turn: Turn, rounds: LocalSteps, taken: Taken, rank: int) -> None:
        began_s, ended_s = float(taken.began_N[rank]), float(taken.ended_N[rank])
        for number, from_s, to_s in rounds.own_steps(taken, rank):
            self._tell(
                rank,
                to_s,
                "step",
                step=turn.first + number,
                loss=None,
                computed=True,
                began=from_s,
                step_s=to_s - from_s,
                spans=_in_ms({"compute": [(from_s, to_s)]}, from_s),
            )
        spans, _ = rounds.spans(taken, rank)
        self._tell(
            rank,
            ended_s,
            "round",
            step=turn.first,
            steps=rounds.steps,
            losses=[None] * rounds.steps,
            computed=bool(taken.slow_NK[rank].all()),
            began=began_s,
            round_s=ended_s - began_s,
            average_s=ended_s - float(taken.computed_N[rank]),
            spans=_in_ms(spans, began_s),
        )

    def epoch(self, turn: Turn, taken: Taken, ended_N: Floats) -> None:
        """An epoch ended, and was validated if it was time to."""
        for rank in self._watched:
            began_s, ended_s = float(taken.ended_N[rank]), float(ended_N[rank])
            spans: Spans = {}
            if turn.validation_N is not None:
                own_s = min(began_s + float(turn.validation_N[rank]), ended_s)
                spans = {"validate": [(began_s, own_s)], "wait": [(own_s, ended_s)]}
            assert turn.epoch is not None
            record: Record = {"epoch": turn.epoch + 1, "train_loss": None}
            record |= {"val_loss": None, "val_accuracy": None}
            self._tell(
                rank,
                ended_s,
                "epoch",
                record=record,
                began=began_s,
                spans=_in_ms(spans, began_s),
            )

    def checkpoint(self, step: int, ended_N: Floats, written_N: Floats, commit_s: float) -> None:
        """All write their shares beside what follows; it counts when the last is written."""
        for rank in self._watched:
            began_s, written_s = float(ended_N[rank]), float(written_N[rank])
            self._tell(
                rank,
                written_s,
                "part",
                step=step,
                parts=[],
                then=None,
                began=began_s,
                seconds=written_s - began_s,
            )
        self._story.coordinator.append(
            {"at": commit_s, "kind": "checkpoint", "step": step, "stored_bytes": 0}
        )

    def rolled_back(self, at_s: float, from_step: int, to_step: int, cause: str) -> None:
        """All go back to a checkpoint, in the next generation."""
        self.generation += 1
        self._story.coordinator.append(
            {
                "at": at_s,
                "kind": "rolled back",
                "from_step": from_step,
                "to_step": to_step,
                "redone_steps": from_step - to_step,
                "cause": cause,
            }
        )

    def _tell(self, rank: int, at_s: float, kind: str, **fields: Any) -> None:
        life = {"generation": self.generation, "attempt": int(self._fleet.attempt[rank])}
        self._story.workers[rank].append({"at": at_s, "kind": kind, **fields, **life})


def _of(record: Record, fleet: Fleet, rank: int) -> bool:
    """Whether the worker's attempt that is alive told it."""
    return bool(record["attempt"] == int(fleet.attempt[rank]))


def _in_ms(spans: Spans, origin_s: float) -> dict[str, list[list[float]]]:
    """As records have them, those that are too short left out."""
    found = {kind: list(_long(pairs, origin_s)) for kind, pairs in spans.items()}
    return {kind: pairs for kind, pairs in found.items() if pairs}


def _long(pairs: Iterable[tuple[float, float]], origin_s: float) -> Iterable[list[float]]:
    for from_s, to_s in sorted(pairs):
        start, stop = 1000 * (from_s - origin_s), 1000 * (to_s - origin_s)
        if stop - start >= _SHORT_MS:
            yield [round(start, 2), round(stop, 2)]
