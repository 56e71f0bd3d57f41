"""The coordinator of a run of any kind: what it does around its generations of workers.

RunCoordinator  what the run's record asks for
start          check -> run.json -> run
run            generations, by a supervisor -> results -> run.json
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from dayfly.errors import DayflyError, RequestError, RunFailed, SureToFail
from dayfly.life.control import FAR_LOOK_S, LOOK_EVERY_S, Control, Request
from dayfly.life.faults import Faults
from dayfly.life.platforms.base import Platform
from dayfly.life.reports import STOPPED
from dayfly.life.supervisor import Supervisor
from dayfly.life.workload import Workload
from dayfly.runs.caps import Caps
from dayfly.runs.directory import being_prepared, is_a_run_now
from dayfly.runs.event_segments import EventSegments
from dayfly.runs.following import Teller
from dayfly.runs.function_resources import in_words
from dayfly.runs.listeners import Listeners
from dayfly.runs.record import AnyRecord
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import HANDING_OVER, Result
from dayfly.runs.run_context import RunContext
from dayfly.runs.setup import Setup
from dayfly.runs.signals import Stopped
from dayfly.runs.spending import Spending
from dayfly.runs.tariffs import billed, tariff_of
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
        self._turn = 0  # of the generation that trains
        self._setup = self._set_up(record)
        used = () if context.so_far is None else context.so_far.used
        self._caps = Caps.of(self._setup, record, context.before, used)

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
            if before is not None:
                self._discard_channel(self._setup.channel_url, turn=1)
            # Before anybody can find the run and ask for its stop.
            every_s = LOOK_EVERY_S if self._home.leadership is None else FAR_LOOK_S
            self._control = Control(self._store, every_s, self._record.next_request)
            self._record = replace(self._record, next_request=self._control.next)
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
        self._check_channel(self._record, self._setup, self._turn)

    def _check_setup(self, record: AnyRecord, setup: Setup) -> None:
        """Raise RequestError if generations cannot have this setup; say what is to be known."""
        self._check_own(record, setup)
        imitated = setup.settings.imitate
        if imitated is not None:
            for note in dict.fromkeys(in_words(kind, imitated) for kind in setup.resources):
                self._display.note(note)
        platform = self._workplace.platform_for(setup.settings)
        for note in (*platform.check(setup.specs), *self._own_notes(record, setup)):
            self._display.note(note)

    def _check_channel(self, record: AnyRecord, setup: Setup, turn: int) -> None:
        """Raise RequestError if the channel of a generation cannot be made."""
        try:
            site = self._site(setup.channel_url, record.generation, turn)
            with self._workplace.fresh_channel(site, setup.channel):
                pass
        except DayflyError as error:
            raise RequestError(f"--channel {setup.channel_url}: {error}") from error

    def run(self) -> AnyRun:
        """Runs until the run is done, stopped or failed; the directory has the results then."""
        so_far = self._context.so_far
        teller = Teller(
            self._display,
            self.untold,
            self._workplace.log_place,
            stopping="; a second Ctrl-C ends it at once, without one",
            spending=Spending(
                lambda used: billed(used, self._record.settings).cost_usd,
                so_far.used if so_far is not None else (),
            ),
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
            self._home.keep_logs(self._workplace, functions, self._record.generation)
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
        return self._caps.granted(self._setup, plan, rank, time.monotonic())

    def _outlived(self, number: int) -> bool:
        """Whether a request was left for a coordinator that was killed."""
        before, began_at = self._context.before, self._control.began_at
        return before is not None and before.status == "running" and number < began_at

    def _hear(self, number: int, request: Request) -> None:
        """Take a request that somebody left in the store."""
        if request.kind == "stop":
            # One that was killed has stopped: who goes on with the run does not want that again.
            self._stop_requested = self._stop_requested or not self._outlived(number)
        else:
            self._change(number, request.changes)

    def _next_request(self) -> int:
        """Number of the first request that the next coordinator is to answer."""
        return self._control.next

    def _change(self, number: int, changes: Mapping[str, Any]) -> None:
        """Answer a request for other settings from the next boundary on."""
        kept = f"the run of a {self._record.kind} keeps its plan: stop it, and go on by --resume"
        self._recorder.answered(number, refused=kept)

    def _handing_over(self) -> str:
        """The status of a run that another coordinator is to go on with.

        Raises RunFailed if that one would come no further either.
        """
        life = f"the coordinator's lifetime of {self._setup.settings.coordinator_lifetime_s:g} s"
        if self._kept() == self._kept_before:
            raise RunFailed(
                f"{life} ended before the run came any further: raise --coordinator-lifetime"
            )
        self._display.note(f"{life} ends: it hands the run over")
        return HANDING_OVER

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
        """Yields notes for the user that this kind of run has on its request."""
        yield from ()

    def _generations(self) -> str:
        """Runs one generation after another until the run ends; returns its status."""
        return Supervisor(
            workload=self,
            store=self._store,
            stop_asked=self._stop_asked,
            listener=self._recorder,
            faults=self._own_faults,
        ).run()

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
            tariff=tariff_of(setup.settings),
            turn=self._turn,
        )

    def platform(self, plan: GenerationPlan) -> Platform:
        return self._workplace.platform_for(self._setup_of(plan).settings)

    def open(self, plan: GenerationPlan) -> AbstractContextManager[Channel]:
        site = self._site(plan.channel, plan.number, plan.turn)
        after = self._recorder.cause if plan.turn == self._turn else None
        spec = self._setup_of(plan).channel
        return self._workplace.fresh_channel(site, spec, note=self._display.note, after=after)

    def _setup_of(self, plan: GenerationPlan) -> Setup:
        """What a generation has that was planned here."""
        return self._setup

    @abstractmethod
    def _results(self, summary: Result, recorder: AnyRecorder) -> Result:
        """Write the run's results. summary: what is known of it otherwise; returned filled in."""

    @abstractmethod
    def _over(self, result: Result) -> AnyRun:
        """The run, when this life is over."""

    def _site(self, url: str, number: int, turn: int = 0) -> Site:
        run, token = self._record.run_id, self._workplace.token
        return site_of(url, self._store, run, number, token, turn)

    def _discard_channel(self, url: str | None, turn: int = 0) -> None:
        """Remove what an earlier life has left at a channel, if that can be done."""
        left = None if url is None else discard(self._site(url, self._record.generation, turn))
        if left is not None:
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
