"""An endpoint for processes that `dayfly run` did not start; see `backend`.

rank 0      makes the channel, puts its address into torch's store  ...  waits for the others
others                                 open the channel             ...  say that they left

They leave when the next group of all ranks is made, which may have other ranks, or other processes;
at the latest when the process ends.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

from dayfly.credentials import channel_password
from dayfly.errors import DayflyError, RequestError
from dayfly.life.sessions import Session
from dayfly.wire.authentication import new_token
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.group import left_key
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.process_group.endpoint import Endpoint, join, leave
from dayfly.wire.stores import open_store

#: Names the channel; see docs/channels.md for the addresses.
CHANNEL = "DAYFLY_CHANNEL"
_ADDRESS = "dayfly/channel"
#: How long rank 0, which removes the channel, waits for others to be done with it, in seconds.
_LAST_S = 5.0
#: Memory is taken only as it is used; what a rank sends in a step is not known.
_BUDGET_BYTES, _AHEAD_BYTES = 4 * 2**30, 2**20


def join_alone(store: Any, rank: int, size: int) -> None:
    """Join an endpoint of this process's own, with a group that has all ranks.

    Raises RequestError for a channel's address that is none, and WireError for a channel that
    cannot be made.

    Args:
        store: torch's, of that group.
    """
    alone = _Standalone(store, rank, size)
    join(alone.endpoint)
    _open.append(alone)
    _end_at_exit()


def leave_alone() -> None:
    """Leave the endpoint that `join_alone` joined, if it did: its groups were destroyed."""
    if _open:
        leave()
        # Beside: rank 0 waits for the others, of which one may have died.
        threading.Thread(target=_open.pop().close, name="dayfly-end").start()


#: The one endpoint that is joined here, if one is.
_open: list[_Standalone] = []


@cache
def _end_at_exit() -> None:
    # Before the interpreter waits for its threads, and for those of pools, some of which may wait
    # for messages; `atexit` comes after that.
    threading._register_atexit(_end, os.getpid())  # type: ignore[attr-defined]


def _end(pid: int) -> None:
    if _open and os.getpid() == pid:  # and not in a process that was forked
        leave()
        _open.pop().close()


class _Standalone:
    """A process's endpoint."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank, self._size = rank, size
        self._stack = ExitStack()
        try:
            site = self._made() if rank == 0 else self._found()
            channel = self._stack.enter_context(channel_kind(site.url).open(site, rank))
        except BaseException:
            self._stack.close()
            raise
        self.endpoint = Endpoint(channel=channel, rank=rank, world_size=size)

    def close(self) -> None:
        """Let go of the channel; rank 0 removes it, once the others have."""
        with self._stack, suppress(DayflyError):  # the store may be gone
            self._wait_for_others()

    def _made(self) -> Site:
        try:
            session = self._stack.enter_context(Session.open())
            url = os.environ.get(CHANNEL) or f"file://{session.root}/channel"
            run = f"group-{secrets.token_hex(8)}"
            address = {"url": url, "run": run, "rendezvous": f"file://{session.root}/rendezvous"}
            address["token"] = new_token()
            site = _site(address)
            kind = channel_kind(url)
            if (directory := kind.directory(url)) is not None:
                session.record_directory(directory / run, run)
            plan = ChannelSpec(
                senders=self._size, budget_bytes=_BUDGET_BYTES, ahead_bytes=_AHEAD_BYTES
            )
            made = self._stack.enter_context(kind.create(site, plan))
            self._stack.callback(made.destroy)
        except (DayflyError, OSError) as error:
            # So that the others need not wait for it.
            self._store.set(_ADDRESS, json.dumps({"error": str(error)}))
            raise
        self._store.set(_ADDRESS, json.dumps(address))
        return site

    def _found(self) -> Site:
        address = json.loads(self._store.get(_ADDRESS))
        if "error" in address:
            raise RequestError(f"rank 0 could not make the channel: {address['error']}")
        return _site(address)

    def _wait_for_others(self) -> None:
        """Rank 0, which removes the channel, waits until they said that they are done with it."""
        until = time.monotonic() + _LAST_S
        for rank in range(1, self._size) if self._rank == 0 else ():
            channel = self.endpoint.channel
            channel.get_bytes(left_key(rank), max(0.0, until - time.monotonic()))


def _site(address: dict[str, str]) -> Site:
    return Site(
        url=address["url"],
        namespace=Namespace(address["run"], 0),
        rendezvous=open_store(address["rendezvous"]),
        token=address["token"],
        password=channel_password(os.environ),
    )
