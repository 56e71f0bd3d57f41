"""Others' servers, by who they are: their addresses are in the run's store, and may change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.wire.keys import COORDINATOR, party_name
from dayfly.wire.sockets.client import Client
from dayfly.wire.sockets.meeting import Meeting, address_in
from dayfly.wire.sockets.protocol import Unreachable

Result = TypeVar("Result")


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

    def ask(self, party: int, question: Callable[[Client], Result]) -> Result:
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
