"""The worker of a profile: that of a run of one, which times its parts between its rounds.

    start | rounds, parts | passes | rounds, parts | passes | ... | two rounds | checkpoint | end
            quiet slot      busy     quiet slot      busy

Rounds are taken several in a row, as small ones are slower at first, after all that is not theirs.
They get half of the time. While neighbours compute (see `neighbours`) only passes are timed, to be
compared with passes in quiet slots; all else counts if it lay in a quiet one.

What is measured is in the store as soon as it is known, so that what ran out of memory is known to
have done so, and when.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import KEPT_BY_RUN
from dayfly.runs.profiling.clocks import Clocks, gpu_of
from dayfly.runs.profiling.layers import held_mib, layer_bytes_of
from dayfly.runs.profiling.neighbours import QuietTurns, Slot, end, tell
from dayfly.runs.profiling.passes import Passes, Round, TimedSteps, one_stage
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.task import Task
from dayfly.runs.worker import Worker, work
from dayfly.training.replica import AVERAGE
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store

#: Rounds at the end.
_ROUNDS = 2
#: Seconds that a row of rounds should take, and the fewest and the most rounds that it has; then
#: the rounds at its beginning that do not count, of a short row and of a long one.
_ROW_S, _SHORTEST_ROW, _LONGEST_ROW = 0.1, 4, 40
_FIRST, _FIRST_OF_MANY = 1, 3
#: Until so many rounds are timed they get two thirds of the time; and the most that count.
_WANTED_ROUNDS, _MOST_ROUNDS = 12, 1000
#: How often everything is timed, at least and at most; and rounds of a function without neighbours,
#: as these alone tell its `jitter`, at least.
_LEAST, _MOST, _LEAST_ALONE = 3, 300, 8
#: Samples are read once in so many times, as that takes long over a slow link.
_READ_EVERY = 3
#: Passes in a row in a quiet slot, the first of which does not count unless it follows such a pass.
_PASSES = 3
#: Parts of a step that are to be timed: the name of each, and what times it.
Parts: TypeAlias = Iterator[tuple[str, Callable[[], None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRequest:
    """What to time.

    Args:
        samples: of passes, the most first.
        each: which of them those passes have that neighbours are beside.
        budget_s: after which only what is missing is begun.
        name: of the measurements in the store.
        neighbours: how many functions compute beside it in turns.
    """

    samples: tuple[int, ...]
    each: int
    budget_s: float
    name: str
    neighbours: int = 0


def nothing(payload: Json, context: Context) -> Json:
    """A handler that does nothing, to see what starting one takes."""
    return {}


def main(payload: Json, context: Context) -> Json:
    """The handler; returns how long after its begin the last round was over."""
    entered = time.monotonic()
    request = TimingRequest(
        **{**payload["request"], "samples": tuple(payload["request"]["samples"])}
    )
    made: list[Watched] = []

    def make(*args: Any) -> Watched:
        made.append(Watched(*args, request=request, entered=entered))
        return made[-1]

    said = work(Task.load(payload["task"]), context, make)
    return {**said, "last_s": made[-1].last_s}


class Watched(Worker):
    """last_s: when its last round was over, from the begin of the handler."""

    def __init__(self, *args: Any, request: TimingRequest, entered: float) -> None:
        super().__init__(*args)
        self._request = request
        self._entered = entered
        self._least_rounds = _LEAST if request.neighbours else _LEAST_ALONE
        self.last_s = 0.0
        self._taken: list[Round] = []
        self._parts: dict[str, Any] = defaultdict(list)
        self._share = [0.0, 0.0]  # CPU and wall seconds of what computes throughout
        self._passing: dict[Slot, list[float]] = {slot: [] for slot in Slot}
        self._slots: QuietTurns | None = None
        self._stepped = False  # whether a round was taken, of those that count
        self._warm: Any = None  # the batch of the pass just done; None: something else came since
        self._took_s: dict[str, float] = {}  # wall seconds of each thing, the last time
        self._staged: Callable[[], float] | None = None  # the passes of a pipeline's worker
        self._protocol_of_one = cast(Bsp, self._protocol)
        (phase,) = self._protocol_of_one.phases
        worker = self._protocol_of_one.worker
        self._clocks = Clocks.of(worker.replica.device)
        self._steps = phase.steps = TimedSteps(phase.steps, self._clocks.thread)
        self._passes = Passes(
            worker.job,
            worker.replica,
            self._steps,
            self._slices.source,
            worker.epochs,
        )

    def run(self) -> str:
        """Take rounds and time their parts until the budget is spent; then end as a run does."""
        start_s = time.monotonic() - self._entered
        batches = {count: self._passes.samples(count) for count in self._request.samples}
        self._staged = self._one_stage(batches[self._request.samples[-1]])
        facts = self._facts()
        first = self._timed_round()
        assert first is not None, "the first batch is a whole one, and nobody is beside it"
        self._measure(batches)
        measured = {
            **facts,
            "start_s": start_s,
            "first": first,
            "rounds": self._taken,
            "block_steps": self._slices.block_steps,
            "state_bytes": self._state_bytes(),
            "parts": {**self._parts, "share": [self._share]},
            "passing": {slot.value: times for slot, times in self._passing.items()},
            "held_mib": {count: self._held_mib(batch) for count, batch in batches.items()},
        }
        open_store(self._task.store).put(self._request.name, json.dumps(measured).encode())
        for _ in range(_ROUNDS):
            self._take_round()
        self.last_s = time.monotonic() - self._entered
        self._write_checkpoint("done")
        self._keeping.wait()
        self.kept = KEPT_BY_RUN
        return "done"

    def _one_stage(self, batch: Any) -> Callable[[], float] | None:
        here = self._protocol_of_one.worker
        return one_stage(here.job, self._passes.layers, self._engine, self._steps.flat, batch)

    def _held_mib(self, batch: Any) -> float | None:
        """What a pass takes while it lasts; None: nobody can tell, or it is not in this memory."""
        if self._replica.device.type != "cpu":
            return None
        return held_mib(partial(self._passes.compute, batch, by_layer=False))

    def _end_epoch(self, step: int) -> None:
        """Without validation: a profile has it from the forward passes."""
        self._replica.end_epoch(None)
        self._progress.end_epoch({})

    def _measure(self, batches: Mapping[int, Any]) -> None:
        """Rounds and parts until the budget is spent, and all was timed often enough."""
        self._take_row()
        for _, part in self._each_part(batches, 0):
            part()
        # From now on everything is as it will be.
        self._stepped = False
        self._taken.clear()
        self._parts.clear()
        self._passing = {slot: [] for slot in Slot}
        self._share = [0.0, 0.0]
        store, name = open_store(self._task.store), self._request.name
        if self._request.neighbours:
            pass_s = self._took_s[f"plain {self._request.each}"]
            # Reading may take as long as it likes, over a slow way.
            longest_s = max(s for one, s in self._took_s.items() if not one.startswith("read"))
            self._slots = QuietTurns.of(time.time(), pass_s, longest_s)
            tell(store, name, self._slots)
        budget_s = self._request.budget_s
        began, spent_s = time.monotonic(), {"rounds": 0.0, "parts": 0.0}
        parts: Parts = iter(())
        times = 0
        while True:
            at = time.monotonic()
            over = at - began >= budget_s or times > _MOST
            if over and self._enough():
                break
            if self._slots is not None and at - began > 2 * budget_s + 3 * self._slots.period_s:
                self._be_alone(store)  # something is not to be had in slots
            if not self._fits(self._took_s["round"]):
                self._pass(batches[self._request.each])
            elif self._rounds_next(spent_s, over=over):
                self._take_row()
                spent_s["rounds"] += time.monotonic() - at
            elif (following := self._next_part(parts, over=over)) is not None:
                following()
                spent_s["parts"] += time.monotonic() - at
            else:
                parts, times = self._each_part(batches, times), times + 1
        self._be_alone(store)

    def _be_alone(self, store: Store) -> None:
        """Have neighbours end, and wait until they have."""
        if self._slots is None:
            return
        end(store, self._request.name)
        while not self._fits(0.0):
            time.sleep(self._slots.settle_s)
        self._slots = None

    def _rounds_next(self, spent_s: Mapping[str, float], *, over: bool) -> bool:
        """Whether it is the rounds' turn, by what both had of the time, or by what is missing."""
        most = self._least_rounds if over else _MOST_ROUNDS
        if len(self._taken) >= most or not self._may_step():
            return False
        part = 2 if len(self._taken) < _WANTED_ROUNDS else 1
        return over or spent_s["rounds"] <= part * spent_s["parts"]

    def _next_part(self, parts: Parts, *, over: bool) -> Callable[[], None] | None:
        """Returns the next part to time; None: there is none. over: leave out those that were timed
        often enough. Passes in a row never are, as they go on until neighbours have computed."""
        for name, part in parts:
            if not over or len(self._parts.get(name, ())) < _LEAST:
                return part
        return None

    def _enough(self) -> bool:
        """Whether all was timed often enough to be told."""
        rounds = len(self._taken) >= self._least_rounds or not self._may_step()
        slots = () if not self._request.neighbours else Slot if self._slots else (Slot.QUIET,)
        passes = all(len(self._passing[slot]) >= _LEAST for slot in slots)
        names = [f"{what} {n}" for n in self._request.samples for what in ("plain", "split")]
        names += ["apply"] if self._staged is None else ["apply", "staged"]
        parts = all(len(self._parts[name]) >= _LEAST for name in names)
        reads = all(self._parts[f"read {n}"] for n in self._request.samples)
        return rounds and passes and parts and reads

    def _fits(self, seconds: float) -> bool:
        """Whether so much time is left in which nobody else computes; half of a slot is enough."""
        if self._slots is None:
            return True
        now, most_s = time.time(), self._slots.room_s / 2
        return self._slots.kind(now, now + min(seconds, most_s)) is Slot.QUIET

    def _kind(self, began: float) -> Slot | None:
        """In which slot it was that began then, and ends now; what fits into none counts, too."""
        now = time.time()
        if self._slots is None or now - began > self._slots.room_s:
            return Slot.QUIET
        return self._slots.kind(began, now)

    def _take_row(self) -> None:
        """Takes rounds in a row. The first ones do not count, if there are several."""
        row: list[Round | None] = []
        began = time.perf_counter()
        while len(row) < _LONGEST_ROW and self._fits(self._took_s["round"]):
            if not self._may_step():
                break
            if len(row) >= _SHORTEST_ROW and time.perf_counter() - began > _ROW_S:
                break
            row.append(self._timed_round())
        first = 0
        if len(row) > 1:
            first = _FIRST_OF_MANY if len(row) > 2 * _FIRST_OF_MANY else _FIRST
        self._taken += [one for one in row[first:] if one is not None]

    def _may_step(self) -> bool:
        """A scheduler may refuse to go beyond the end of the job's run; two rounds are the last."""
        job, epochs = self._protocol_of_one.worker.job, self._protocol_of_one.worker.epochs
        within = self.step + 2 * _ROUNDS <= epochs.steps * job.epochs
        return within or job.scheduler is None or not self._stepped

    def _timed_round(self) -> Round | None:
        """Takes a round; returns its times, or None if they do not count.

        They do not if its batch is smaller than the first one, or if neighbours computed meanwhile.
        """
        epochs = self._protocol_of_one.worker.epochs
        whole = len(epochs.batch(self.step)) == len(epochs.batch(0))
        self._warm, at = None, time.time()
        thread, process = self._clocks.thread(), self._clocks.process()
        began = time.perf_counter()
        self._take_round()
        after = self._clocks.thread(), self._clocks.process()
        now = time.perf_counter(), *after
        self._stepped = True
        self._took_s["round"] = now[0] - began
        if not whole or self._kind(at) is not Slot.QUIET:
            return None
        parts = self._steps.compute_s, self._steps.apply_s
        return Round(now[0] - began, now[1] - thread, now[2] - process, *parts)

    def _pass(self, batch: Any) -> None:
        """One of passes in a row, to compare those beside neighbours with those without."""
        at = time.time()
        marks = self._passes.compute(batch, by_layer=False)
        kind = self._kind(at)
        if self._warm is batch and kind is not None:
            self._passing[kind].append(marks.end - marks.start)
        self._warm = batch

    def _each_part(self, batches: Mapping[int, Any], times: int) -> Parts:
        """Yields all parts; each must be done before the next is asked for."""
        if self._request.neighbours:
            yield "in a row", partial(self._pass_in_a_row, batches[self._request.each])
        for count, batch in batches.items():
            yield f"plain {count}", partial(self._time_plain, count, batch)
            yield f"split {count}", partial(self._time_split, count, batch)
            if count == self._request.samples[0]:
                yield "apply", partial(self._time_apply, batch)
        if self._staged is not None:
            yield "staged", partial(self._time, "staged", self._staged, throughout=True)
        if times % _READ_EVERY == 0:
            for count in self._request.samples:
                read = partial(self._passes.read, count)
                yield f"read {count}", partial(self._time, f"read {count}", read)

    def _time_plain(self, count: int, batch: Any) -> None:
        def sides() -> tuple[float, float, float]:
            marks = self._passes.compute(batch, by_layer=False)
            return marks.loss - marks.start, marks.end - marks.loss, marks.around_s

        self._time_pass(f"plain {count}", batch, sides)

    def _time_split(self, count: int, batch: Any) -> None:
        def sides() -> tuple[list[float], list[float]]:
            marks = self._passes.compute(batch, by_layer=True)
            return marks.forward(), marks.backward()

        self._time_pass(f"split {count}", batch, sides)

    def _time_pass(self, name: str, batch: Any, sides: Callable[[], Any]) -> None:
        """Note what a pass of this batch takes as one of a row, as in real steps."""
        self._warm_up(batch)
        self._time(name, sides, throughout=True)
        self._warm = batch

    def _time_apply(self, batch: Any) -> None:
        """Note what the optimizer's step takes, by the gradients of a pass just before."""
        self._warm_up(batch)
        self._time("apply", self._passes.apply, throughout=True)

    def _warm_up(self, batch: Any) -> None:
        """Compute a pass of this batch, unless one was the last thing done."""
        if self._warm is not batch:
            self._passes.compute(batch, by_layer=False)

    def _pass_in_a_row(self, batch: Any) -> None:
        for _ in range(_PASSES):
            self._pass(batch)

    def _time(self, name: str, measure: Callable[[], Any], *, throughout: bool = False) -> None:
        """Note what was measured, if nobody else computed.

        Args:
            throughout: whether it only computes, so that it tells how much of the CPU the function
                really gets.
        """
        self._warm, at = None, time.time()
        whole, began = self._clocks.process(), time.perf_counter()
        found = measure()
        cpu_s, wall_s = self._clocks.process() - whole, time.perf_counter() - began
        self._took_s[name] = wall_s
        if self._kind(at) is not Slot.QUIET:
            return
        self._parts[name].append(found)
        if throughout:
            self._share = [self._share[0] + cpu_s, self._share[1] + wall_s]

    def _facts(self) -> dict[str, Any]:
        """What does not depend on the function's size."""
        worker = self._protocol_of_one.worker
        source = self._slices.source
        each = max(1, min(8, self._request.samples[0] // 2, source.samples // 2))
        once, twice = self._passes.samples(each), self._passes.samples(2 * each)
        layers = layer_bytes_of(worker.job, self._passes.layers, once, twice, each)
        return {
            "layers": [asdict(layer) for layer in layers],
            "listed": self._passes.layers.listed,
            "samples": source.samples,
            "validation_samples": worker.held_out.source.samples,
            "sample_bytes": source.sample_bytes,
            "gpu": gpu_of(self._replica.device),
        }

    def _state_bytes(self) -> int:
        """Of the optimizer, once it has taken steps, and of the moving average."""
        _, tensors = self._replica.state()
        kept = ("optimizer.state.", AVERAGE)
        return sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith(kept))
