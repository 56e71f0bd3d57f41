"""Connections to one server, one a request at a time; they are made anew when it was away.

A request is asked until it is answered, so it must do no harm twice. What it was asked for may have
been done although no answer came.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from dayfly.closing import Closing
from dayfly.errors import WireError, in_short
from dayfly.wire.redis.address import Address, Secret
from dayfly.wire.redis.connection import Connection, Passing
from dayfly.wire.redis.resp import ProtocolError

#: How long a server may be away before the request fails, in seconds.
PATIENCE_S = 60.0
#: For how long it is borne with in silence, in seconds.
_SILENT_S = 3.0
#: Seconds before the second try and, doubled at each, before later ones; at random up to half less.
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

Result = TypeVar("Result")


class Pool(Closing):
    """Connections for all threads of a process; they are made when they are needed."""

    def __init__(self, address: Address, secret: Secret) -> None:
        self.address = address
        self._secret = secret
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False
        self._lost = False  # whether the last request was given up
        self._told_away = False
        self._answered_s = float("-inf")
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Pool({self.address})"

    def ask(
        self, ask: Callable[[Connection], Result], what: str, patience_s: float | None = None
    ) -> Result:
        """Do something with a connection, again while the server is away.

        what: for errors, as in "dropping messages". patience_s: how long to try; None:
        `PATIENCE_S`. Once that was in vain for one request, the others try once, until one is
        answered. Raises WireError for a request that was in vain, and what `ask` raises.
        """
        patience_s = PATIENCE_S if patience_s is None else patience_s
        away_since: float | None = None
        pause_s = _PAUSE_S
        connection = self._take(what)
        while True:
            asked = time.monotonic()
            try:
                connection = connection or self._connect(what)
                result = ask(connection)
            except (OSError, EOFError, Passing) as error:
                self._discard(connection)
                connection = None
                self._check_open(what)
                away_since = asked if away_since is None else away_since
                if self._lost or time.monotonic() - away_since >= patience_s:
                    self._lost = True
                    raise self._given_up(what, patience_s, error) from error
                if time.monotonic() - away_since >= _SILENT_S:
                    why = in_short(error)
                    said = f"does not answer ({why}); trying for {patience_s:g} s"
                    self._tell(True, said, asked)
                time.sleep(random.uniform(pause_s / 2, pause_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except ProtocolError as error:
                self._discard(connection)
                raise WireError(
                    f"{what}: {self.address} does not answer as Redis: {error}"
                ) from error
            except BaseException:
                # What is left of its answer would be taken for the next one's.
                self._discard(connection)
                raise
            else:
                self._give_back(connection)
                self._lost = False
                self._tell(False, "answers again", asked)
                return result

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            connection.stop()

    def _tell(self, away: bool, what: str, asked_s: float) -> None:
        """Say that the server is away, or back, if that is news: by default on standard error.

        asked_s: when it was asked. Who heard nothing may come to say so after somebody else was
        answered, who asked no earlier: that is no news any more.
        """
        with self._lock:
            if away and asked_s < self._answered_s:
                return
            if not away:
                self._answered_s = time.monotonic()
            news, self._told_away = away is not self._told_away, away
        if news:
            logging.getLogger(__name__).warning("dayfly: %s %s", self.address, what)

    def _take(self, what: str) -> Connection | None:
        """One that is there, if any is."""
        if os.getpid() != self._pid:
            raise WireError(f"{what}: the channel at {self.address} was opened by another process")
        with self._lock:
            connection = self._idle.pop() if self._idle else None
            if connection is not None:
                self._busy.add(connection)
        if connection is None:
            self._check_open(what)
        return connection

    def _connect(self, what: str) -> Connection:
        connection = Connection(self.address, self._secret)
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise self._closed_error(what)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: Connection | None) -> None:
        if connection is not None:
            with self._lock:
                self._busy.discard(connection)
            connection.close()

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise self._closed_error(what)

    def _closed_error(self, what: str) -> WireError:
        return WireError(f"{what}: the channel at {self.address} is closed")

    def _given_up(self, what: str, patience_s: float, error: BaseException) -> WireError:
        if not patience_s:
            spoken = "redis" if self.address.tls else "rediss"
            return WireError(
                f"{self.address} cannot be reached ({in_short(error)}): check that it runs there, "
                f"that this machine may connect to it, and whether it is {spoken}://"
            )
        return WireError(
            f"{what}: {self.address} has not answered for {patience_s:g} s "
            f"(the last try: {in_short(error)})"
        )
