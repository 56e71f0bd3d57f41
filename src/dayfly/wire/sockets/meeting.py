"""Addresses of servers in the run's store, one record a server and generation, and their clients.

    <rendezvous>/sockets/000000/coordinator.json   host, port, who it is, world size, ...
    <rendezvous>/sockets/000000/rank-3.json        host, port, who it is

Addresses are no secrets: a server and its client prove to each other that they know the run's
token.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator
from dayfly.wire.channels.base import Namespace
from dayfly.wire.keys import COORDINATOR, party_name
from dayfly.wire.sockets.client import Address, Client
from dayfly.wire.sockets.mailboxes import Gone, Mailboxes, Result
from dayfly.wire.sockets.protocol import Unreachable
from dayfly.wire.stores.base import Store, StoreError

#: Below the rendezvous; for this user alone.
_FOLDER = "sockets"
_POLL_S = 0.02


class Meeting:
    """The records of one namespace."""

    def __init__(self, store: Store, namespace: Namespace) -> None:
        self._store = store.below(_FOLDER, private=True)
        self._namespace = namespace

    def audience(self, who: str) -> str:
        """Who a server is, as its clients have to name it."""
        return f"{self._namespace.run}/{self._namespace.generation}/{who}"

    def authenticator(self, token: str) -> Authenticator:
        """Of the namespace's messages and connections."""
        return Authenticator(token, self._namespace.run, self._namespace.generation)

    def announce(self, party: int, record: Mapping[str, Any]) -> None:
        """Leave a party's record, in place of its earlier one. Raises WireError."""
        try:
            self._store.put(self._name(party), json.dumps(dict(record)).encode())
        except StoreError as error:
            raise WireError(f"cannot leave an address in {self._store}: {error}") from error

    def find(self, party: int) -> dict[str, Any] | None:
        """A party's record, if it is there."""
        try:
            record = json.loads(self._store.get(self._name(party)))
        except (StoreError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def wait_for(self, party: int, timeout_s: float) -> dict[str, Any]:
        """As `find`, waiting for it. Raises WireError naming whom it waited for."""
        until = time.monotonic() + timeout_s
        while (record := self.find(party)) is None:
            if time.monotonic() > until:
                who = party_name(party) if party < 0 else f"rank {party}"
                raise WireError(
                    f"{who} left no address in {self._store} within {timeout_s:g} s; is it alive?"
                )
            time.sleep(_POLL_S)
        return record

    def _generations(self) -> list[int]:
        """Generations of the run that have records."""
        with suppress(StoreError):
            return [int(name) for name in self._store.folders() if name.isdigit()]
        return []

    def _records(self, generation: int) -> list[dict[str, Any]]:
        """Records of a generation."""
        found = []
        with suppress(StoreError):
            for info in self._store.list(_folder(generation)):
                with suppress(StoreError, ValueError):
                    found.append(json.loads(self._store.get(info.name)))
        return [record for record in found if isinstance(record, dict)]

    def destroy(self, token: str) -> None:
        """Tell the servers of the run, of all generations, that it is over; forget where they were.

        Those that listen no more have nothing left. Those of a coordinator with another token,
        which is dead, are left to end with its workers.
        """
        for generation in self._generations():
            secret = Authenticator(token, self._namespace.run, generation).handshake
            for record in self._records(generation):
                address = address_in(record)
                with suppress(Unreachable, Gone), Client(address, secret, COORDINATOR) as server:
                    server.destroy()
            self._store.clear(_folder(generation))

    def _name(self, party: int) -> str:
        who = f"rank-{party}" if party >= 0 else party_name(party)
        return f"{_folder(self._namespace.generation)}/{who}.json"


def _folder(generation: int) -> str:
    return f"{generation:06d}"


def address_in(record: Mapping[str, Any]) -> Address:
    """The address in a record."""
    return Address(
        host=str(record["host"]), port=int(record["port"]), audience=str(record["audience"])
    )


class Absent(WireError):
    """Who is asked is not there: not yet, not any more, or until its successor is."""


class Peers(Closing):
    """Clients of the servers of a run, for `rank`; from several threads at once."""

    def __init__(self, meeting: Meeting, token: str, rank: int) -> None:
        self._meeting = meeting
        self._token = token
        self._rank = rank
        self._lock = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._closed = False

    def ask(self, party: int, question: Callable[[Mailboxes], Result]) -> Result:
        """Ask a rank's or the coordinator's server; at its new address, if it has one.

        Raises Absent if it is not there, WireError if this end is closed, and what it answers.
        """
        client = self._clients.get(party)
        if client is not None:
            try:
                return question(client)
            except Unreachable as error:
                # Also if another thread closed the client, as there is a new address.
                fresh = self._find(party)
                if fresh is client:
                    raise Absent(f"{_who(party)} is not there any more: {error}") from error
        try:
            return question(self._find(party))
        except Unreachable as error:
            raise Absent(f"{_who(party)} is not there: {error}") from error

    def over(self) -> bool:
        """Whether the coordinator has removed all addresses, as the run is over."""
        return self._meeting.find(COORDINATOR) is None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
        for client in clients:
            client.close()

    def _find(self, party: int) -> Client:
        """The client of a party's latest address."""
        record = self._meeting.find(party)
        with self._lock:
            if self._closed:
                raise WireError("the channel is closed")
            client = self._clients.get(party)
            if record is None:
                if client is None:
                    raise Absent(f"{_who(party)} left no address yet")
                return client
            address = address_in(record)
            if client is None or client.address != address:
                if client is not None:
                    client.close()
                client = self._clients[party] = Client(address, self._token, self._rank)
            return client


def _who(party: int) -> str:
    return f"rank {party}" if party >= 0 else f"the {party_name(party)}"
