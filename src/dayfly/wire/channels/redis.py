"""The Redis channel: messages as streams of a Redis or Valkey server, which are waited for there.

A put is one request, and so is a get, which waits at the server until the message comes. Streams
stay when they are read, so a worker that starts again reads what it missed. What stands where is
told in `wire.redis.layout`, and how a server that is away for a while is borne with, in
`wire.redis.connection`.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch

from dayfly.credentials import PASSWORD_VARIABLE
from dayfly.errors import WaitTimeout, WireError, named
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import Redis
from dayfly.wire.keys import COORDINATOR, FOREVER, Key, party_name
from dayfly.wire.message import Header, Opener, as_bytes
from dayfly.wire.redis import layout
from dayfly.wire.redis.connection import Connection, ConnectionPool, Passing
from dayfly.wire.redis.layout import Bytes, Into, KeyNames, Sink, read_message
from dayfly.wire.redis.resp import ReplyError, Value
from dayfly.wire.redis.server import RedisAddress, Secret, check_server, cpu_s, read_info

#: Time between two looks of a channel whether its run is still there, in seconds; a get waits at
#: the server no longer than that.
_LOOK_EVERY_S = 1.0
#: Names in one command.
_BATCH = 1000
Result = TypeVar("Result")
SomeSink = TypeVar("SomeSink", bound=Sink)


class RedisChannel(Channel):
    """A channel over one server; `make` it once, open it anywhere."""

    abilities = Redis.abilities

    def __init__(self, pool: ConnectionPool, site: Site, life: str) -> None:
        namespace = site.namespace
        super().__init__(namespace)
        self._pool = pool
        self._by = site.authenticator
        self._where = str(pool.address)
        self._layout = KeyNames(namespace.run, namespace.generation, life)
        # Of this channel's puts, by which a put that is tried again knows what it stored itself.
        self._word = uuid.uuid4().hex[:12]
        self._puts = itertools.count()
        self._look_at_s = 0.0

    @classmethod
    def make(cls, pool: ConnectionPool, site: Site, budget_bytes: int) -> RedisChannel:
        """Look whether the server will do, and begin a life of the generation there.

        Raises WireError, also if there is one. Nothing is tried twice.
        """
        namespace = site.namespace
        life, run = uuid.uuid4().hex[:12], layout.lives_of(namespace.run)
        generation = layout.generation_name(namespace.generation)

        def begin(connection: Connection) -> bool:
            (info,) = connection.ask(("INFO",))
            check_server(pool.address, read_info(_text(info)), budget_bytes)
            made, _ = connection.ask(
                ("HSETNX", run, generation, life), ("EXPIRE", run, layout.EXPIRES_S)
            )
            return made == 1

        if not pool.ask(begin, f"beginning run {namespace.run}", patience_s=0.0):
            raise WireError(f"{pool.address} holds messages of run {namespace.run} already")
        return cls(pool, site, life)

    @classmethod
    def open(cls, pool: ConnectionPool, site: Site) -> RedisChannel:
        """Open one that was made. Raises WireError if there is none."""
        namespace = site.namespace
        run, generation = layout.lives_of(namespace.run), namespace.generation
        (life,) = pool.ask(
            lambda connection: connection.ask(("HGET", run, layout.generation_name(generation))),
            f"opening run {namespace.run}",
        )
        if life is None:
            raise WireError(
                f"{pool.address} has nothing of run {namespace.run}, generation {generation}: it "
                "is over, or the server started again and has lost it"
            )
        return cls(pool, site, _text(life))

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        """As `Channel.put`. Tried again after an outage, it knows its own message by its word."""
        sealed, word = header.seal(payload, key, self._by), f"{self._word}.{next(self._puts)}"
        put = self._layout.put(key, sealed, payload, word)

        def store(connection: Connection) -> Value:
            connection.send(put.parts)
            reader = connection.reader
            if reader.begins(put.stored):
                return layout.STORED
            replies = [reader.value() for _ in range(put.replies)]
            for reply in replies:
                connection.check(reply)
                if isinstance(reply, ReplyError):
                    raise connection.refused(reply)
            return _outcome(connection, replies[-1])

        outcome = self._ask(key, store)
        if outcome == layout.OVER:
            raise self._over(key)
        won = outcome == layout.STORED
        self.traffic.count(up=put.size if won else 0)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        opener = Opener(key, self._by)
        expected = Header(key.operation, into.dtype, tuple(into.shape))
        return self._read(key, lambda: Into(opener, expected, as_bytes(into)), timeout_s)[1]

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._read(key, lambda: Bytes(Opener(key, self._by)), timeout_s)[0].content()

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        asked = list(keys)
        there: list[Value] = []
        for some in _batches(asked):
            names = [self._layout.stream(key.mailbox, key.name) for key in some]
            there += self._commands("looking what is stored", *(("EXISTS", name) for name in names))
        self.traffic.count()
        return frozenset(key for key, found in zip(asked, there, strict=True) if found)

    def waiting(self, destination: int) -> Sequence[Key]:
        """As `Channel.waiting`. Raises WireError if the run is over, or lost by its server."""
        mailbox = f"to-{party_name(destination)}"
        names, life = self._commands(
            f"looking what waits {mailbox}",
            ("HKEYS", self._layout.mailbox(mailbox)),
            ("HGET", self._layout.lives, self._layout.noted),
        )
        if life is None or _text(life) != self._layout.life:
            raise self._over(f"messages {mailbox}")
        keys = (Key.parse(_text(name), destination) for name in _list(names))
        return sorted(key for key in keys if key is not None)

    def drop(self, keys: Iterable[Key]) -> None:
        mailboxes: dict[str, list[str]] = defaultdict(list)
        for key in keys:
            mailboxes[key.mailbox].append(key.name)
        for mailbox, names in mailboxes.items():
            self._drop(mailbox, names)

    def trim(self, before_step: int) -> None:
        end = f"{min(before_step, FOREVER):09d}"
        coordinators = f"to-{party_name(COORDINATOR)}"
        (mailboxes,) = self._commands("trimming", ("HKEYS", self._layout.mailboxes))
        for mailbox in map(_text, _list(mailboxes)):
            if mailbox == coordinators:
                continue
            (names,) = self._commands("trimming", ("HKEYS", self._layout.mailbox(mailbox)))
            # A name begins with its step, in nine digits.
            self._drop(mailbox, [name for name in map(_text, _list(names)) if name[:9] < end])

    def size_bytes(self) -> int:
        (sizes,) = self._commands("looking how much there is", ("HVALS", self._layout.mailboxes))
        return sum(int(_text(size)) for size in _list(sizes))

    def served_s(self) -> float | None:
        (told,) = self._commands("asking for its CPU time", ("INFO", "cpu"))
        return cpu_s(read_info(_text(told)))

    def destroy(self) -> None:
        remove_run(self._pool, self.namespace.run)

    def close(self) -> None:
        self._pool.close()

    def _ask(self, what: Key | str, ask: Callable[[Connection], Result]) -> Result:
        try:
            return self._pool.ask(ask, str(what))
        except WireError as error:
            raise named(what, error) from error

    def _commands(self, what: Key | str, *commands: Sequence[str | int]) -> list[Value]:
        return self._ask(what, lambda connection: connection.ask(*commands))

    def _read(
        self, key: Key, sink: Callable[[], SomeSink], timeout_s: float
    ) -> tuple[SomeSink, float]:
        """Wait for a message and read it; returns what it was read into, and when it was there."""
        stream = self._layout.stream(key.mailbox, key.name)

        def read(connection: Connection) -> tuple[SomeSink, float] | None:
            return read_message(connection, stream, wait_ms, sink())

        until = time.monotonic() + timeout_s
        while True:
            left_s = until - time.monotonic()
            wait_ms = max(0, round(1000 * min(left_s, _LOOK_EVERY_S)))
            found = self._ask(key, read)
            if found is not None:
                self.traffic.count(down=found[0].size)
                return found
            self._check_life(key)
            if time.monotonic() >= until:
                raise WaitTimeout(f"{key} did not arrive within {timeout_s:g} s at {self._where}")

    def _check_life(self, key: Key) -> None:
        """Raise WireError if the run is over, as far as the last look of any thread tells."""
        place, now_s = self._layout, time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        (life,) = self._commands(key, ("HGET", place.lives, place.noted))
        if life is None or _text(life) != place.life:
            raise self._over(key)

    def _over(self, what: Key | str) -> WireError:
        return WireError(
            f"{what}: {self._where} has nothing of run {self.namespace.run} any more: its messages "
            "were removed, or lost as the server started again without them"
        )

    def _drop(self, mailbox: str, names: Sequence[str]) -> None:
        for some in _batches(names):
            self._commands("dropping messages", self._layout.drop(mailbox, some))


class RedisFactory(ChannelFactory):
    """Makes the channels of `Redis`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        pool = _pool(site)
        try:
            return RedisChannel.make(pool, site, spec.budget_bytes)
        except BaseException:
            pool.close()
            raise

    def open(self, site: Site, reader: int) -> Channel:
        pool = _pool(site)
        try:
            return RedisChannel.open(pool, site)
        except BaseException:
            pool.close()
            raise

    def remove(self, site: Site) -> None:
        with _pool(site) as pool:
            remove_run(pool, site.namespace.run, patience_s=0.0)


def remove_run(pool: ConnectionPool, run: str, patience_s: float | None = None) -> None:
    """Remove a run's messages of all generations; those who have it open are told."""
    lives, what = layout.lives_of(run), f"removing run {run}"

    def ask(*commands: Sequence[str | int]) -> list[Value]:
        return pool.ask(lambda connection: connection.ask(*commands), what, patience_s)

    (found,) = ask(("HGETALL", lives))
    noted = [_text(one) for one in _list(found)]
    for generation, life in zip(noted[::2], noted[1::2], strict=True):
        # First no more puts are taken; should this be killed, the next one still finds the rest.
        ended = f"-{life.removeprefix('-')}"
        ask(("HSET", lives, generation, ended))
        place = KeyNames(run, int(generation), ended.removeprefix("-"))
        (mailboxes,) = ask(("HKEYS", place.mailboxes))
        for mailbox in map(_text, _list(mailboxes)):
            (names,) = ask(("HKEYS", place.mailbox(mailbox)))
            for some in _batches([_text(name) for name in _list(names)]):
                ask(("UNLINK", *(place.stream(mailbox, name) for name in some)))
            ask(("UNLINK", place.mailbox(mailbox)))
        ask(("UNLINK", place.mailboxes), ("HDEL", lives, generation))


def _pool(site: Site) -> ConnectionPool:
    secret = Secret(variable=PASSWORD_VARIABLE, password=site.password)
    return ConnectionPool(RedisAddress.parse(site.url), secret)


def _outcome(connection: Connection, reply: Value) -> Value:
    """What came of a put: the last of its transaction's replies. Raises WireError for an error."""
    replies = reply if isinstance(reply, list) and reply else [None]
    outcome = replies[-1]
    if outcome == layout.UNWRITTEN:
        outcome = next((one for one in replies if isinstance(one, ReplyError)), None)
    if isinstance(outcome, ReplyError):
        connection.check(outcome)
        raise connection.refused(outcome)
    if outcome not in (layout.STORED, layout.SECOND, layout.OVER):
        raise Passing("it did not carry out a transaction")
    return outcome


def _batches(items: Sequence[Result]) -> Iterable[Sequence[Result]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise WireError(f"redis replied {type(value).__name__} where a text is due")
    return value.decode("utf-8", "replace")


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise WireError(f"redis replied {type(value).__name__} where a list is due")
    return value
