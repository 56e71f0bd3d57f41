"""The coordinator of a run of any kind: what it does around its generations of workers.

RunCoordinator  what the run's record asks for
start          check -> run.json -> run
run            generations, by a supervisor -> results -> run.json
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from dayfly.catalogue.metering import MeteredInvocation, bill, with_vcpus
from dayfly.errors import DayflyError, RequestError, RunFailed, SureToFail
from dayfly.life.control import FAR_LOOK_S, LOOK_EVERY_S, Control, Request
from dayfly.life.faults import Faults
from dayfly.life.reports import STOPPED
from dayfly.life.supervisor import Supervisor
from dayfly.life.workload import Workload
from dayfly.runs.caps import Caps
from dayfly.runs.directory import being_prepared, is_a_run_now
from dayfly.runs.event_segments import EventSegments
from dayfly.runs.following import Teller
from dayfly.runs.function_resources import in_words, vcpus_sold
from dayfly.runs.listeners import Listeners
from dayfly.runs.record import AnyRecord
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import HANDING_OVER, Result
from dayfly.runs.run_context import RunContext
from dayfly.runs.setup import Setup
from dayfly.runs.signals import Stopped
from dayfly.runs.spending import Spending
from dayfly.runs.workplace import discard, site_of
from dayfly.specs.events import Event
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan, RankPlan
from dayfly.specs.pace import MOST_SHARE
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import Site
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.base import Store, StoreError

#: Seconds before the end of its lifetime at which a coordinator stops the workers, at most: for
#: their last step, a checkpoint and the results.
HAND_OVER_S = 60.0

AnyRecorder = TypeVar("AnyRecorder", bound=Recorder)
AnyRun = TypeVar("AnyRun")


class RunCoordinator(Workload, Generic[AnyRecord, AnyRecorder, AnyRun]):
    """One coordinator's part of a run.

    inputs: names in the run's store that a run which is done needs no more. recorder_kind: of the
    recorder that `run` makes. untold: events that people are told in another way.
    """

    inputs: ClassVar[tuple[str, ...]] = ("faults",)
    recorder_kind: type[AnyRecorder]
    untold: ClassVar[tuple[type[Event], ...]] = ()
    _record: AnyRecord
    _recorder: AnyRecorder

    def __init__(self, record: AnyRecord, context: RunContext) -> None:
        self._record = record
        self._context = context
        self._home = context.home
        self._store = context.home.store
        self._display = context.request.display
        self._listeners = tuple(context.request.listeners)
        self._faults = tuple(context.request.faults)
        self._own_faults = Faults(self._faults, COORDINATOR, self._store)
        self._workplace = workplace = context.workplace
        self._signals = workplace.signals
        self._began = time.monotonic() - max(0.0, time.time() - record.began_at)
        lifetime_s = record.settings.coordinator_lifetime_s
        spare_s = 0.0 if lifetime_s is None else min(HAND_OVER_S, lifetime_s * MOST_SHARE)
        self._hand_over_s = self._began + (math.inf if lifetime_s is None else lifetime_s) - spare_s
        self._sure_to_fail = False
        self._stop_requested = False
        self._setup = self._set_up(record)
        so_far = context.so_far
        self._caps = Caps(self._setup, record.wall_s, () if so_far is None else so_far.used)

    def start(self) -> AnyRun:
        """Checks what can be checked, writes `run.json` and runs.

        Raises:
            RequestError: before any function is started.
        """
        for note in self._context.notes:
            self._display.note(note)
        before = self._context.before
        with being_prepared(self._workplace.directory):
            self.check()
            if before is not None and before.settings.channel != self._record.settings.channel:
                self._discard_channel(before.settings.channel)
            # Before anybody can find the run and ask for its stop.
            every_s = LOOK_EVERY_S if self._home.leadership is None else FAR_LOOK_S
            self._control = Control(self._store, every_s, self._record.next_request)
            self._keep_own()
        with self._signals.patiently():  # once it is written, it is a run, and ends as one
            with being_prepared(self._workplace.directory):
                self._record.save(self._store)
                is_a_run_now(self._workplace.directory)
            self._display.begun(self._record.run_id, self._workplace.directory)
            return self.run()

    def check(self) -> None:
        """Raise RequestError for what cannot be carried out; nothing was started by then.

        What is enforced in another way than asked for is said.
        """
        self._check_setup(self._record, self._setup)
        priced_as = self._setup.priced_as
        if own := priced_as.overridden:
            self._display.note(f"{priced_as.name}: your own catalogue gives {', '.join(own)}")
        self._check_channel(self._record, self._setup)

    def _check_setup(self, record: AnyRecord, setup: Setup) -> None:
        """Raise RequestError if generations cannot have this setup; say what is to be known."""
        self._check_own(record, setup)
        imitated = setup.settings.imitate
        if imitated is not None:
            for note in dict.fromkeys(in_words(kind, imitated) for kind in setup.resources):
                self._display.note(note)
        for note in (*self._workplace.platform.check(setup.specs), *self._own_notes(record, setup)):
            self._display.note(note)

    def _check_channel(self, record: AnyRecord, setup: Setup) -> None:
        """Raise RequestError if the channel of a generation cannot be made."""
        try:
            with self._workplace.fresh_channel(
                self._site(record, setup.channel_url), setup.channel
            ):
                pass
        except DayflyError as error:
            raise RequestError(f"--channel {setup.channel_url}: {error}") from error

    def run(self) -> AnyRun:
        """Runs until the run is done, stopped or failed; the directory has the results then."""
        so_far = self._context.so_far
        teller = Teller(
            self._display,
            self.untold,
            self._workplace.platform.log_place,
            stopping="; a second Ctrl-C ends it at once, without one",
            spending=Spending(self._priced, so_far.used if so_far is not None else ()),
        )
        with (
            self._signals.patiently(),
            Listeners(teller.tell, self._listeners, self._display.note) as listeners,
        ):
            return self._over(self._run(listeners))

    def _run(self, listeners: Listeners) -> Result:
        """Runs the generations and writes the results, whatever ended them.

        Raises:
            Deposed: another coordinator leads the run by now, so nothing is written.
        """
        self._recorder = recorder = self.recorder_kind(
            self._workplace.directory,
            self._record.generation,
            listeners.publish,
            self._context.so_far,
            None if self._home.leadership is None else EventSegments(self._store),
        )
        status, error = "failed", None
        try:
            recorder.begun(self._record.began_at)
            self._caps.used = recorder.used
            self._begins()
            self._kept_before = self._kept()
            ended = self._generations()
            handed_over = ended == STOPPED and not self._asked_to_end()
            status = self._handing_over() if handed_over else ended
        except (RunFailed, StoreError) as failure:
            error = str(failure)
            self._sure_to_fail = isinstance(failure, SureToFail)
        except (DayflyError, OSError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        except Stopped:
            status = "stopped"
        result = self._write_results(self._summary(status, error), recorder, listeners)
        with suppress(StoreError):  # what came of the run is written
            recorder.over()
            functions = sorted({one.function for one in recorder.used})
            generation = self._record.generation
            self._home.keep_logs(self._workplace.platform, functions, generation)
        return result

    @classmethod
    def discard_inputs(cls, store: Store) -> None:
        """Remove what a run that is done needs no more; what cannot be removed stays."""
        with suppress(StoreError):
            for name in cls.inputs:
                store.clear(name)
            store.discard_unfinished()

    def _stop_asked(self) -> bool:
        """Whether the workers are to end in order: the run is to, or this coordinator's time is up.

        Raises Deposed if another coordinator leads it by now.
        """
        self._home.check()
        while (asked := self._control.take()) is not None:
            self._hear(*asked)
        now = time.monotonic()
        if self._caps.reached is None:
            step_s = self._recorder.median_step_s or 0.0
            reached = self._caps.look(self._setup, now - self._began, step_s, now)
            if reached is not None:
                self._display.note(f"the run stops, as it comes to its --{reached}")
        return self._asked_to_end() or now > self._hand_over_s

    def _asked_to_end(self) -> bool:
        """Whether a signal, somebody through the store, or a cap asks the run to end."""
        asked = self._signals.received is not None or self._stop_requested
        return asked or self._caps.reached is not None

    def function(self, plan: GenerationPlan, rank: int) -> FunctionSpec | None:
        return self._caps.granted(self._setup, rank, time.monotonic())

    def _hear(self, number: int, request: Request) -> None:
        """Take a request that somebody left in the store."""
        if request.kind == "stop":
            self._stop_requested = True
        else:
            self._change(number, request.changes)

    def _next_request(self) -> int:
        """Number of the first request that the next coordinator is to answer."""
        return self._control.next

    def _change(self, number: int, changes: Mapping[str, Any]) -> None:
        """Answer a request for other settings from the next boundary on."""
        self._recorder.answered(
            number,
            refused=f"the run of a {self._record.kind} keeps its plan: stop it, and go on with "
            "other settings by --resume",
        )

    def _handing_over(self) -> str:
        """The status of a run that another coordinator is to go on with.

        Raises RunFailed if that one would come no further either.
        """
        lifetime_s = self._setup.settings.coordinator_lifetime_s
        if self._kept() == self._kept_before:
            raise RunFailed(
                f"the coordinator's lifetime of {lifetime_s:g} s ended before the run came any "
                "further: raise --coordinator-lifetime"
            )
        self._display.note(
            f"the coordinator's lifetime of {lifetime_s:g} s ends: it hands the run over"
        )
        return HANDING_OVER

    def _priced(self, used: Sequence[MeteredInvocation]) -> float:
        """Dollars of invocations, without what they store and send."""
        return bill(
            with_vcpus(used, vcpus_sold(self._record.settings)), self._setup.priced_as
        ).cost_usd

    @abstractmethod
    def _kept(self) -> object:
        """What the next life goes on from; it is another as soon as the run has come further."""

    @abstractmethod
    def _set_up(self, record: AnyRecord) -> Setup:
        """What generations have by the settings of a record. Raises RequestError if none can."""

    def _channel_url(self, record: AnyRecord) -> str:
        return record.settings.channel or self._workplace.own_channel

    @abstractmethod
    def _check_own(self, record: AnyRecord, setup: Setup) -> None:
        """Raise RequestError for what this kind of run cannot carry out."""

    def _keep_own(self) -> None:
        """Write what belongs to `run.json`, before it is written."""
        return None

    def _begins(self) -> None:
        """What is to happen before any function is started. Raises RunFailed."""
        return None

    def _ends(self, result: Result, listeners: Listeners) -> None:
        """What is to happen once the results are written. Raises RunFailed."""
        return None

    def _own_notes(self, record: AnyRecord, setup: Setup) -> Iterator[str]:
        """What to say of the request, of this kind of run."""
        yield from ()

    def _generations(self) -> str:
        """One after another, until one brings the run to its end; returns its status."""
        supervisor = Supervisor(
            workload=self,
            platform=self._workplace.platform,
            store=self._store,
            stop_asked=self._stop_asked,
            listener=self._recorder,
            faults=self._own_faults,
        )
        return supervisor.run()

    def plan(self) -> GenerationPlan:
        return self._plan_by(self._record, self._setup)

    def _plan_by(self, record: AnyRecord, setup: Setup) -> GenerationPlan:
        """The plan of a generation with this setup."""
        return GenerationPlan(
            number=record.generation,
            platform=setup.settings.platform,
            channel=setup.channel_url,
            store=self._store.url,
            layout=[RankPlan(spec=spec, replica=rank) for rank, spec in enumerate(setup.specs)],
        )

    def open(self, plan: GenerationPlan) -> AbstractContextManager[Channel]:
        return self._workplace.fresh_channel(
            self._site(self._record, plan.channel),
            self._setup.channel,
            note=self._display.note,
            after=self._recorder.cause,
        )

    @abstractmethod
    def _results(self, summary: Result, recorder: AnyRecorder) -> Result:
        """Write the run's results. summary: what is known of it otherwise; returned filled in."""

    @abstractmethod
    def _over(self, result: Result) -> AnyRun:
        """The run, when this life is over."""

    def _site(self, record: AnyRecord, url: str) -> Site:
        return site_of(url, self._store, record.run_id, record.generation, self._workplace.token)

    def _discard_channel(self, url: str | None) -> None:
        """Remove what an earlier life has left at another channel, if that can be done."""
        if url is not None and (left := discard(self._site(self._record, url))) is not None:
            self._display.note(left)

    def _summary(self, status: str, error: str | None) -> Result:
        """What is known of the run before its results are."""
        total_s = self._record.wall_s + time.monotonic() - self._began
        return Result(
            run_id=self._record.run_id,
            status=status,
            error=error,
            stop_reason=(self._caps.reached or "signal") if status == "stopped" else None,
            workers=self._setup.settings.workers,
            total_s=total_s,
            wall_s=total_s,
        )

    def _write_results(
        self, summary: Result, recorder: AnyRecorder, listeners: Listeners
    ) -> Result:
        """The run counts as done once `run.json` says so, after its results are written.

        What cannot be written fails the run, with the first cause; it can be resumed then.
        """
        try:
            result = self._results(summary, recorder)
            try:
                self._ends(result, listeners)
            except RunFailed as failure:
                result = replace(
                    result, status="failed", error=result.error or str(failure), stop_reason=None
                )
            self._save(result)
        except (DayflyError, OSError) as failure:
            text = summary.error or f"its results cannot be written: {failure}"
            result = replace(summary, status="failed", error=text)
            with suppress(DayflyError, OSError):
                self._save(result)
        if result.status == "done":
            self.discard_inputs(self._store)
        return result

    def _save(self, result: Result) -> None:
        record = self._record.ended(result)
        if result.status == HANDING_OVER:
            record = replace(record, next_request=self._next_request())
        record.save(self._store)
