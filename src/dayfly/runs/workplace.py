"""What a life of a run needs around it: a session, a platform, signals, and its channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dayfly.credentials import channel_password
from dayfly.errors import DayflyError, RunFailed, WireError
from dayfly.life.platforms.base import (
    PLATFORMS,
    LogText,
    Opening,
    Platform,
    platform_options,
)
from dayfly.life.sessions import Session
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.signals import StopSignals
from dayfly.runs.task import RENDEZVOUS
from dayfly.wire.authentication import new_token
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.stores.base import Store


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a life needs of this machine; opened early, so that the platform warms up meanwhile.

    Attributes:
        platform: of the run as it begins here.
        token: of this coordinator, by which its run's messages are known; no store ever holds it.
    """

    session: Session
    platform: Platform
    signals: StopSignals
    directory: Path
    token: str = field(default_factory=new_token, repr=False)
    _opened: dict[tuple[str, str], Platform] = field(default_factory=dict)
    _open: Callable[[FunctionSettings], Platform] | None = None

    @classmethod
    @contextmanager
    def open(
        cls,
        directory: Path | None,
        preload: Sequence[str],
        signals: StopSignals,
        variables: Mapping[str, str],
        settings: FunctionSettings,
    ) -> Iterator[Workplace]:
        """Opens one for the run in `directory`, which gets the functions' logs.

        Args:
            directory: None: one that goes with the session.
            preload: modules that are imported once, where functions are forked.
            signals: open, from before the directory was made, so that none finds it half made.
            variables: of the environment of functions, see `runs.made_with`.
            settings: name the platform, and its options.
        """
        with ExitStack() as stack:
            session = stack.enter_context(Session.open())
            place = session.scratch("dayfly") if directory is None else directory
            opening = Opening(
                session=session, logs=place / "logs", preload=preload, variables=variables
            )

            def open_platform(of: FunctionSettings) -> Platform:
                options = platform_options(of.platform, of.platform_options)
                opened = stack.enter_context(PLATFORMS[of.platform].open(opening, options))
                opened.prepare()
                return opened

            platform = open_platform(settings)
            opened = {_place(settings): platform}
            yield cls(session, platform, signals, place, _opened=opened, _open=open_platform)
            if signals.received is None:
                platform.keep_warm()

    def platform_for(self, settings: FunctionSettings) -> Platform:
        """Returns the platform of functions with these settings, opened at its first use.

        Raises:
            RequestError: there is none, or it cannot be had here.
        """
        place = _place(settings)
        if self._open is None:
            return self.platform
        if place not in self._opened:
            self._opened[place] = self._open(settings)
        return self._opened[place]

    def log(self, function: str, after: str = "") -> LogText:
        """As `Platform.log`, on the platform that was opened last of those where it ran."""
        return self._logs(function).log(function, after)

    def log_end(self, function: str) -> str:
        """As `Platform.log_end`, there."""
        return self._logs(function).log_end(function)

    def log_place(self, function: str) -> str:
        """Returns where people find a function's log: a path or a URL."""
        return self._logs(function).log_place(function)

    def _logs(self, function: str) -> Platform:
        opened = reversed(self._opened.values())
        return next((one for one in opened if one.log_end(function)), self.platform)

    @property
    def own_channel(self) -> str:
        """URL of the channel of a run that names none: files in memory."""
        return f"file://{self.session.root}/channel"

    @contextmanager
    def fresh_channel(
        self,
        site: Site,
        plan: ChannelSpec,
        *,
        note: Callable[[str], None] | None = None,
        after: str | None = None,
    ) -> Iterator[Channel]:
        """The coordinator's end of a channel without earlier messages; removed later.

        Raises WireError if there is none to be had, or RunFailed with what was before.

        Args:
            note: told if it cannot be removed, which otherwise is an error: in a run it must not
                hide what became of that.
            after: what ended the workers of an earlier one.
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
                    site.rendezvous.clear()


def _place(settings: FunctionSettings) -> tuple[str, str]:
    """What makes two platforms the same one."""
    return settings.platform, repr(sorted(settings.platform_options.items()))


def discard(site: Site) -> str | None:
    """Remove what was left at a channel; returns what to say if that cannot be done."""
    try:
        channel_kind(site.url).remove(site)
    except DayflyError as error:
        return _stays(site, error)
    return None


def _stays(site: Site, error: DayflyError) -> str:
    return f"what is left of the run at {site.url} stays there: {error}"


#: What is added to the names of messages and addresses, by turn of a generation: what the one
#: that trains leaves is removed while the next one's are there.
_TURNS = ("", "-b")


def site_of(url: str, store: Store, run: str, generation: int, token: str, turn: int = 0) -> Site:
    """Where the channel of a generation is.

    Args:
        url: of the channel.
        store: the run's.
        run: its id.
        generation: its number.
        token: the coordinator's.
        turn: the generation's, see `GenerationPlan`.
    """
    return Site(
        url=url,
        namespace=Namespace(f"{run}{_TURNS[turn]}", generation),
        rendezvous=store.below(f"{RENDEZVOUS}{_TURNS[turn]}"),
        token=token,
        password=channel_password(os.environ),
    )
