"""What a life of a run needs around it: a session, a platform, signals, and its channel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dayfly.credentials import channel_password
from dayfly.errors import DayflyError, RequestError, RunFailed, WireError
from dayfly.life.platforms.base import Limits
from dayfly.life.platforms.gpus import check_gpus
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.platforms.memory_limits import check_machine, machine_mib
from dayfly.life.sessions import Session
from dayfly.runs.signals import StopSignals
from dayfly.runs.task import RENDEZVOUS
from dayfly.wire.authentication import new_token
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import Plan, Site
from dayfly.wire.store import FileStore


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a life needs of this machine; opened early, so that the platform warms up meanwhile.

    token: of this coordinator, by which its run's messages are known; no store ever holds it.
    """

    session: Session
    platform: LocalPlatform
    signals: StopSignals
    directory: Path
    token: str = field(default_factory=new_token, repr=False)

    @classmethod
    @contextmanager
    def open(
        cls,
        directory: Path | None,
        preload: Sequence[str],
        signals: StopSignals,
        variables: Mapping[str, str],
    ) -> Iterator[Workplace]:
        """Opens one for the run in `directory`, which gets the functions' logs.

        Args:
            directory: None: one that goes with the session.
            preload: modules that are imported once, where functions are forked.
            signals: open, from before the directory was made, so that none finds it half made.
            variables: of the environment of functions, see `runs.made_with`.
        """
        with ExitStack() as stack:
            session = stack.enter_context(Session.open())
            place = session.scratch("dayfly") if directory is None else directory
            platform = LocalPlatform(session, place / "logs", preload=preload, variables=variables)
            stack.enter_context(platform).warm_up()
            yield cls(session, platform, signals, place)
            if signals.received is None:
                platform.keep_zygote()

    @property
    def own_channel(self) -> str:
        """URL of the channel of a run that names none: files in memory."""
        return f"file://{self.session.root}/channel"

    def check(self, limits: Limits, workers: int = 1) -> str | None:
        """Raise RequestError for limits that so many functions cannot have here; starts none.

        Returns what to say of a limit that is kept in another way than asked for.
        """
        if limits.gpu_share is not None:
            check_gpus(limits.gpu_share, workers, len(self.platform.gpu_names()))
        memory_mib = limits.memory_mib
        if memory_mib is not None:
            check_machine(memory_mib, machine_mib())
        if memory_mib is not None and memory_mib < (least := self.platform.least_memory_mib()):
            raise RequestError(
                f"functions of {memory_mib} MiB are too small: one with PyTorch in it needs at "
                f"least {least} MiB here: raise --memory, or --stage-memory of that stage"
            )
        self.platform.check(limits)
        if memory_mib is None or self.platform.memory_by_cgroup:
            return None
        return (
            "memory is limited by RLIMIT_DATA, as this user may make no cgroups: an allocation "
            "beyond the limit fails, and each child of a function has the limit for itself"
        )

    @contextmanager
    def fresh_channel(
        self,
        site: Site,
        plan: Plan,
        *,
        note: Callable[[str], None] | None = None,
        after: str | None = None,
    ) -> Iterator[Channel]:
        """The coordinator's end of a channel without earlier messages; removed later.

        note: told if it cannot be removed, which otherwise is an error: in a run it must not hide
        what became of that. after: what ended the workers of an earlier one. Raises WireError if
        there is none to be had, or RunFailed with what was before.
        """
        kind = channel_kind(site.url)
        if (directory := kind.directory(site.url)) is not None:
            run = site.namespace.run
            self.session.record_directory(directory / run, run)
        try:
            kind.remove(site)
            made = kind.create(site, plan)
        except WireError as error:
            if after is None:
                raise
            raise RunFailed(f"{after}; and no worker could start again: {error}") from error
        with made as channel:
            try:
                yield channel
            finally:
                try:
                    channel.destroy()
                except DayflyError as error:
                    if note is None:
                        raise
                    note(_stays(site, error))
                finally:
                    shutil.rmtree(site.rendezvous.root, ignore_errors=True)


def discard(site: Site) -> str | None:
    """Remove what was left at a channel; returns what to say if that cannot be done."""
    try:
        channel_kind(site.url).remove(site)
    except DayflyError as error:
        return _stays(site, error)
    return None


def _stays(site: Site, error: DayflyError) -> str:
    return f"what is left of the run at {site.url} stays there: {error}"


def site_of(url: str, store: FileStore, run: str, generation: int, token: str) -> Site:
    """Where the channel of a generation is. store: the run's. token: the coordinator's."""
    return Site(
        url=url,
        namespace=Namespace(run, generation),
        rendezvous=store.below(RENDEZVOUS),
        token=token,
        password=channel_password(os.environ),
    )
