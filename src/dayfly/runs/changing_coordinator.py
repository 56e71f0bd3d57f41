"""A coordinator whose generations follow each other while the run goes on.

    run.scale by a callback: at its boundary, where all end and others begin

    request, or lifetimes end soon -> NextPlan -> its workers warm up -> they go on
                                        |                            or: refused, and why
                                        '-> no room for both: it begins when the present one ended

What is asked for outlives this process: the record says which requests have no answer yet, and
which change was carried out last; events say what was answered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from dayfly.dataclass_json import dump
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.deaths import Deaths
from dayfly.planning.plan import Plan
from dayfly.runs.changes import Changes
from dayfly.runs.changing import NextPlan, changed_record, has_already
from dayfly.runs.coordinator import RunCoordinator
from dayfly.runs.job_record import Record
from dayfly.runs.protocols.local_sgd import PRIVATE
from dayfly.runs.recorder import Recorder
from dayfly.runs.run import Run
from dayfly.runs.run_context import RunContext
from dayfly.runs.run_plan import gone_on
from dayfly.runs.setup import Setup
from dayfly.runs.staging import recut
from dayfly.specs.events import ChangeAnswered, GenerationBegun
from dayfly.specs.generations import Change, GenerationPlan
from dayfly.specs.pace import SHORTEST_RENEWED_S
from dayfly.training.paged import paged
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel


class ChangingCoordinator(RunCoordinator[Record, Recorder, Run]):
    """One that can change the plan of its run, and renews workers before their lifetimes end."""

    _job: Job
    _plan: Plan | None
    _checkpoint: Checkpoint
    policy: Deaths

    def __init__(self, record: Record, context: RunContext) -> None:
        super().__init__(record, context)
        self._next: NextPlan | None = None
        self._decided: tuple[int, Changes] | None = None  # by callbacks, after so many steps
        self._renewable = True
        self._channels: dict[int, Channel] = {}  # by turn
        told = () if context.so_far is None else context.so_far.coordinator
        self._answered = frozenset(
            one.request
            for one in told
            if isinstance(one, GenerationBegun)
            or (isinstance(one, ChangeAnswered) and one.refused is not None)
        )
        self._carried_out = self._untold_change()  # by the generation that is to begin

    @abstractmethod
    def _policy(self) -> Deaths:
        """Of the run's present settings."""

    def _begins(self) -> None:
        self._recorder.measure(lambda: self._channels[self._turn].size_bytes())

    def plan(self) -> GenerationPlan:
        change, self._carried_out = self._carried_out, None
        return replace(super().plan(), change=change)

    @contextmanager
    def open(self, plan: GenerationPlan) -> Iterator[Channel]:
        with super().open(plan) as channel:
            self._channels[plan.turn] = channel
            yield channel

    def _next_request(self) -> int:
        change = self._change_under_way
        if change is None or change.request is None:
            return super()._next_request()
        return change.request

    def change_asked(self) -> bool:
        waits = self._next is not None and self._next.generation is None
        return waits or self._decided is not None

    def upcoming(self) -> GenerationPlan | None:
        if self._next is None or self._decided is not None:
            return None  # what callbacks decided comes between
        return self._next.generation

    def _of(self, plan: GenerationPlan) -> tuple[Record, Setup]:
        """What a generation has, of the one that trains or the next one."""
        if plan.turn != self._turn and (following := self._next) is not None:
            return following.record, following.setup
        return self._record, self._setup

    def _setup_of(self, plan: GenerationPlan) -> Setup:
        return self._of(plan)[1]

    def renew(self) -> None:
        if self._next is not None or not self._renewable:
            return
        record, setup = self._record.renewed(), self._setup
        warm = self._warmed(record, setup) if self._renews(record, setup) else None
        self._renewable = warm is not None
        if warm is not None:
            self._next = NextPlan(None, record, setup, self._plan, warm)

    def refuse(self, why: str) -> None:
        change, self._next = self._change_under_way, None
        if change is not None:
            self._answer(change, why)
        else:
            self._renewable = False  # workers of this generation hand over one by one
            self._display.note(f"successors cannot warm up, and start after lifetimes end: {why}")

    def changes(self, *, warm: bool) -> None:
        following, self._next = self._next, None
        self._store.clear(PRIVATE)  # all that the workers did is in the checkpoint
        self._renewable = True
        if warm:
            self._turn = 1 - self._turn
        if following is None or following.change is None:
            self._record = self._record.renewed()
        else:
            self._take_up(following, following.change)
        self._record.save(self._store)
        if not warm:
            self._carry_out_decided()

    def _take_up(self, following: NextPlan, change: Change) -> None:
        """Go on by another plan."""
        self._record = self._record.changed_to(following.record, change)
        self._setup = following.setup
        if self._carried_out is not None:
            words = f"{self._carried_out.words}, {change.words}"
            change = replace(self._carried_out, words=words)
        self._plan, self._carried_out = following.plan, change
        self.policy = self._policy()
        self._keep_own()
        with paged(self._workplace.directory, when=bool(self._record.settings.cut)):
            recut(self._record, self._job, self._store)
        self._checkpoint = checkpoints.latest(self._store) or self._checkpoint

    def _check_changes(self, changes: Changes) -> None:
        """Raise RequestError for changes that a callback asks for and that cannot be."""
        if not has_already(self._record, changes):
            self._set_up(self._changed(dump(changes.given))[0])

    def _note_decided(self, step: int, changes: Changes) -> None:
        """Callbacks decided these after `step` steps: they are carried out there, and once."""
        if self._record.scaled_at != step and not has_already(self._record, changes):
            self._decided = step, changes

    def _carry_out_decided(self, but: Collection[str] = ()) -> None:
        """Take up what callbacks decided at this checkpoint; at another one they are asked again.

        Args:
            but: settings that stay as they are.
        """
        decided, self._decided = self._decided, None
        if decided is None or decided[0] != self._checkpoint.step:
            return
        given = {name: value for name, value in decided[1].given.items() if name not in but}
        if not given or has_already(self._record, Changes(**given)):
            return
        try:
            following, words = self._followed_by(None, dump(given))
        except RequestError as refusal:
            raise RunFailed(f"what run.scale asked for cannot be: {refusal}") from refusal
        record = replace(following.record, scaled_at=decided[0])
        self._take_up(replace(following, record=record), Change(request=None, words=words))
        self._record.save(self._store)

    def _given_again(self) -> set[str]:
        """Returns the names of settings that were given again when the run was resumed."""
        before, now = self._context.before, self._record.settings
        if before is None:
            return set()
        names = [one.name for one in fields(now)]
        return {name for name in names if getattr(before.settings, name) != getattr(now, name)}

    def _answer(self, change: Change, refused: str) -> None:
        """Tell whoever asked for a change that it does not come about."""
        if change.request is not None:
            self._recorder.answered(change.request, refused=refused)

    @property
    def _change_under_way(self) -> Change | None:
        return None if self._next is None else self._next.change

    def _untold_change(self) -> Change | None:
        """What a coordinator that was killed has carried out, and could not tell any more."""
        change = self._record.change
        return None if change is None or change.request in self._answered else change

    def _change(self, number: int, changes: Mapping[str, Any]) -> None:
        if number in self._answered:
            return
        if (under_way := self._change_under_way) is not None:
            waits = f"{under_way.words} is under way: ask again once it has taken place"
            self._recorder.answered(number, refused=waits)
            return
        try:
            self._check_outlived(number, changes)
            following, words = self._followed_by(number, changes)
        except RequestError as refusal:
            self._recorder.answered(number, refused=str(refusal))
        else:
            self._next = following
            self._recorder.answered(number, changes=words)

    def _check_outlived(self, number: int, changes: Mapping[str, Any]) -> None:
        """Raise RequestError for a request that `--resume` has answered in another way."""
        before = self._context.before
        if before is None or not self._outlived(number):
            return
        for name in changes:
            now = getattr(self._record.settings, name, None)
            if now != getattr(before.settings, name, None):
                raise RequestError(
                    f"the run was resumed with {name} {now} after that was asked for"
                )

    def _changed(self, changes: Mapping[str, Any]) -> tuple[Record, str]:
        """The record with these changes, and these in words. Raises RequestError."""
        cut = bool(self._record.settings.cut or changes.get("cut"))
        with paged(self._workplace.directory, when=cut):
            return changed_record(self._record, changes, self._job, self._store)

    def _followed_by(self, number: int | None, changes: Mapping[str, Any]) -> tuple[NextPlan, str]:
        """What a request asks for, or callbacks, once it is checked, and in words.

        Raises RequestError if it cannot be.
        """
        plan = self._plan
        record, words = self._changed(changes)
        if record.planned is not None and plan is not None:
            plan, planned = gone_on(plan, record.planned, record.settings, self._job)
            record = replace(record, planned=planned)
        setup = self._set_up(record)
        self._check_setup(record, setup)
        if setup.channel_url != self._setup.channel_url:
            self._check_channel(record, setup, 1 - self._turn)
        change = Change(request=number, words=words)
        return NextPlan(change, record, setup, plan, self._warmed(record, setup)), words

    def _warmed(self, record: Record, setup: Setup) -> GenerationPlan | None:
        """The generation by a record, to warm up; None: there is no room beside the present one.

        Where a life is paid for before it starts, those of the present one have all the money.
        """
        if not self._beside(setup):
            return None
        here = self._workplace.platform_for(self._setup.settings)
        there = self._workplace.platform_for(setup.settings)
        try:
            there.check([*(self._setup.specs if here is there else ()), *setup.specs])
        except RequestError as refusal:
            self._display.note(f"the next workers start when these have ended: {refusal}")
            return None
        return replace(self._plan_by(record, setup), turn=1 - self._turn)

    def _beside(self, setup: Setup) -> bool:
        """Whether a generation may begin while the present one trains, if there is room for it."""
        url = setup.channel_url
        shared = url == self._setup.channel_url and not channel_kind(url).two_at_once(url)
        return self.policy.stops_in_order and not (shared or self._caps.limit_cost)

    def _renews(self, record: Record, setup: Setup) -> bool:
        """Whether successors of all workers are warm before lifetimes end."""
        lives_s = [one.lifetime_s for one in setup.specs if one.lifetime_s is not None]
        within = record.settings.protocol.hands_over_within
        long = bool(lives_s) and min(lives_s) >= SHORTEST_RENEWED_S
        return long and not within and self._beside(setup)
