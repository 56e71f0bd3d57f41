"""One connection to a Redis server: made, introduced, written to and read from.

Payloads are sent from where they are and received to where they belong, without a copy of ours.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dayfly.errors import WireError
from dayfly.wire.redis.address import Address, Secret
from dayfly.wire.redis.resp import Part, ProtocolError, Reader, ReplyError, Value, command

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

    def __init__(self, address: Address, secret: Secret) -> None:
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

    def send(self, parts: Sequence[Part]) -> None:
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


def _connect(address: Address) -> socket.socket:
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


def _context(address: Address) -> ssl.SSLContext:
    if address.ca is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=Path(address.ca))
    except (OSError, ssl.SSLError) as error:
        raise WireError(f"the certificates of ?ca={address.ca} cannot be read: {error}") from error


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The same bytes with short parts put together: each part is packets of its own."""
    joined: list[Part] = []
    short: list[bytes] = []
    for part in parts:
        if len(part) <= 16 * 1024:
            short.append(bytes(part))
            continue
        joined += [b"".join(short), part]
        short = []
    return [part for part in (*joined, b"".join(short)) if part]
