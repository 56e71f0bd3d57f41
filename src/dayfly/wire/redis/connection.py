"""Connections to a Redis server, one a request at a time; made anew when the server was away.

Payloads are sent and received in place, without a copy of ours. A request is repeated until it is
answered, so it must do no harm twice: it may have been carried out although no answer came.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dayfly.closing import Closing
from dayfly.errors import WireError, in_short
from dayfly.wire.redis.resp import CommandPart, ProtocolError, Reader, ReplyError, Value, command
from dayfly.wire.redis.server import RedisAddress, Secret

#: How long a server may take to accept a connection, and to go on with an answer, in seconds; to
#: this comes what it was asked to wait.
CONNECT_S = 5.0
ANSWER_S = 10.0
#: A system call takes 1024 parts at most.
_PARTS = 512
#: A time for the kernel: seconds, microseconds.
_TIME = struct.Struct("@ll")
#: Replies of a server that will be itself again in a while.
_PASSING = {"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY"}


class Passing(Exception):
    """The server does not answer, or says that it cannot just now; worth another try."""


class Connection:
    """A connection that one thread uses at a time.

    Raises OSError or Passing if the server is away, and WireError for what is of no use to try
    again: a password that is wrong, or a server that is none of Redis.
    """

    def __init__(self, address: RedisAddress, secret: Secret) -> None:
        self._address = address
        self._password, self._variable = secret.password, secret.variable
        self._socket = _connect(address)
        self._tls = isinstance(self._socket, ssl.SSLSocket)
        self.reader = Reader(self._receive)
        try:
            if not self._tls:
                # The kernel keeps the time: a socket with one of Python's asks before it transfers.
                self._socket.settimeout(None)
                self._limit(socket.SO_SNDTIMEO, ANSWER_S)
            self._allowed_s = -1.0
            self.allow(0.0)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._introduce()
        except BaseException:
            self.close()
            raise

    def send(self, parts: Sequence[CommandPart]) -> None:
        """Send commands, whose bytes are these parts one after another."""
        if self._tls:
            for part in _joined(parts):
                self._socket.sendall(part)
            return
        left = [memoryview(part) for part in parts if len(part)]
        at = 0
        while at < len(left):
            try:
                sent = self._socket.sendmsg(left[at : at + _PARTS])
            except BlockingIOError as error:
                raise TimeoutError("timed out") from error
            while at < len(left) and sent >= len(left[at]):
                sent -= len(left[at])
                at += 1
            if sent:
                left[at] = left[at][sent:]

    def allow(self, wait_s: float) -> None:
        """From now on the server may take so much longer, as it is asked to wait."""
        if wait_s == self._allowed_s:
            return
        if self._tls:
            self._socket.settimeout(ANSWER_S + wait_s)
        else:
            self._limit(socket.SO_RCVTIMEO, ANSWER_S + wait_s)
        self._allowed_s = wait_s

    def _limit(self, what: int, most_s: float) -> None:
        seconds = int(most_s)
        time = _TIME.pack(seconds, int(1e6 * (most_s - seconds)))
        self._socket.setsockopt(socket.SOL_SOCKET, what, time)

    def _receive(self, into: Sequence[memoryview], whole: bool) -> int:
        if self._tls:
            return self._socket.recv_into(into[0])
        try:
            return self._socket.recvmsg_into(into, 0, socket.MSG_WAITALL if whole else 0)[0]
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def reply(self) -> Value:
        """The next reply. An error of a server that will be well again is raised as Passing."""
        value = self.reader.value()
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        """Raise Passing for the error of a server that will be well again."""
        if isinstance(value, ReplyError) and value.code in _PASSING:
            raise Passing(self.clean(value))

    def ask(self, *commands: Sequence[bytes | str | int]) -> list[Value]:
        """Send commands in one piece, and read a reply to each. Raises WireError for an error."""
        self.send([b"".join(command(*arguments) for arguments in commands)])
        replies = [self.reader.value() for _ in commands]
        for reply in replies:
            self.check(reply)
            if isinstance(reply, ReplyError):
                raise self.refused(reply)
        return replies

    def clean(self, error: ReplyError) -> str:
        """What the server said, short, and without the password should it repeat it."""
        text = error.text if self._password is None else error.text.replace(self._password, "***")
        return text[:200]

    def refused(self, error: ReplyError) -> WireError:
        """What to say of a server's error, and what to do about it."""
        where = self._address
        match error.code:
            case "NOAUTH":
                advice = f"needs a password: give it as {self._variable} in the environment"
            case "WRONGPASS":
                advice = f"refuses the user name or the password of {self._variable}"
            case "OOM" | "EXECABORT" if "OOM" in error.text:
                advice = (
                    "has no memory left for messages: raise its maxmemory, or give a smaller "
                    "--log-budget"
                )
            case "MOVED" | "ASK" | "CROSSSLOT":
                advice = f"is one of a cluster ({self.clean(error)}): give a server by itself"
            case "NOPERM":
                advice = f"does not permit this user what is needed ({self.clean(error)})"
            case _:
                advice = f"refuses: {self.clean(error)}"
        return WireError(f"{where} {advice}")

    def stop(self) -> None:
        """End what another thread is waiting for here, with an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it."""
        with suppress(OSError):
            self._socket.close()

    def _introduce(self) -> None:
        """Say who we are and which database is meant, in one piece with the first question."""
        address, commands = self._address, []
        if self._password is not None or address.user is not None:
            user = () if address.user is None else (address.user,)
            commands.append(("AUTH", *user, self._password or ""))
        if address.db:
            commands.append(("SELECT", str(address.db)))
        commands.append(("PING",))
        self.send([b"".join(command(*arguments) for arguments in commands)])
        for arguments in commands:
            try:
                reply = self.reply()
            except (ProtocolError, EOFError) as error:
                other = "redis" if self._tls else "rediss"
                raise WireError(
                    f"{address} answers, but not as Redis does ({error}): check host and port, "
                    f"and whether it is {other}://"
                ) from error
            if isinstance(reply, ReplyError):
                raise self._unwelcome(arguments[0], reply)

    def _unwelcome(self, asked: str, error: ReplyError) -> WireError:
        if asked != "AUTH":
            return self.refused(error)
        if "without any password" in error.text or "no password is set" in error.text:
            return WireError(f"{self._address} wants no password: unset {self._variable}")
        return self.refused(ReplyError("WRONGPASS"))


def _connect(address: RedisAddress) -> socket.socket:
    try:
        plain = socket.create_connection((address.host, address.port), CONNECT_S)
    except socket.gaierror as error:
        raise Passing(f"its name cannot be resolved: {error.strerror}") from error
    if not address.tls:
        return plain
    try:
        return _context(address).wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise WireError(
            f"{address} shows a certificate that is not trusted ({error.verify_message}): give its "
            f"authority's file as ?ca=/path in the URL, or as SSL_CERT_FILE in the environment"
        ) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        plain.close()
        raise  # it went away
    except ssl.SSLError as error:
        plain.close()
        raise WireError(f"{address} does not speak TLS: give redis:// ({error.reason})") from error
    except BaseException:
        plain.close()
        raise


def _context(address: RedisAddress) -> ssl.SSLContext:
    if address.ca is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=Path(address.ca))
    except (OSError, ssl.SSLError) as error:
        raise WireError(f"the certificates of ?ca={address.ca} cannot be read: {error}") from error


def _joined(parts: Sequence[CommandPart]) -> list[CommandPart]:
    """The same bytes with short parts put together: each part is packets of its own."""
    joined: list[CommandPart] = []
    short: list[bytes] = []
    for part in parts:
        if len(part) <= 16 * 1024:
            short.append(bytes(part))
            continue
        joined += [b"".join(short), part]
        short = []
    return [part for part in (*joined, b"".join(short)) if part]


#: How long a server may be away before the request fails, in seconds.
PATIENCE_S = 60.0
#: For how long it is borne with in silence, in seconds.
_SILENT_S = 3.0
#: Seconds before the second try and, doubled at each, before later ones; at random up to half less.
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

Result = TypeVar("Result")


class ConnectionPool(Closing):
    """Connections for all threads of a process; they are made when they are needed."""

    def __init__(self, address: RedisAddress, secret: Secret) -> None:
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
