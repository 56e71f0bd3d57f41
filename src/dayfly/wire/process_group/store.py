"""torch.distributed's key-value store through the channel: no process needs another's address.

    rank         store-ask n  ------->  the coordinator, which keeps the dictionary (`Entries`)
                 <-------  store-answer n, once there is one

The requests of a rank are numbered, and each is done once, however often it arrives. One that waits
for a key stays with the coordinator until the key comes or the time is up, so nobody asks again and
again. Each request is answered before its call returns, so what was set is seen by whoever is told.

A request is a list of fields, bytes each: the operation, how long it may wait in seconds, and its
arguments. So is an answer: `ok` and what was asked for, or why there is nothing.

    set key value | add key amount | compare key expected desired | append key value |
    delete key | set-all key value ... | count | check key ... | wait key ... | get key ...

`wait` and `get` wait until all of their keys are there. Values are bytes, never looked into, save
the numbers that `add` counts, which are decimal text as in torch's own stores.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, FOREVER, Key

Fields = Sequence[bytes]

OK, LATE, WRONG = b"ok", b"late", b"wrong"
_SIZE = struct.Struct("<Q")


def pack(fields: Fields) -> bytes:
    """As one message: each field's size, 8 bytes little-endian, and the field."""
    return b"".join(_SIZE.pack(len(field)) + field for field in fields)


def unpack(message: bytes) -> list[bytes]:
    """What `pack` got. Raises WireError if the message was not made by it."""
    fields, at = [], 0
    while at < len(message):
        begin = at + _SIZE.size
        size = _SIZE.unpack_from(message, at)[0] if begin <= len(message) else len(message)
        if begin + size > len(message):
            raise WireError(f"a store's message of {len(message)} bytes is cut short")
        fields.append(message[begin : begin + size])
        at = begin + size
    return fields


class Entries:
    """The dictionary."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def answer(self, operation: bytes, about: Fields) -> list[bytes] | None:
        """Do it, once; None if it has to wait. Raises WireError if there is no such operation."""
        values = self._values
        match operation, about:
            case ((b"get" | b"wait"), keys):
                if not all(key in values for key in keys):
                    return None
                return [OK, *(values[key] for key in keys if operation == b"get")]
            case b"check", keys:
                return [OK, b"%d" % all(key in values for key in keys)]
            case b"count", []:
                return [OK, b"%d" % len(values)]
            case b"set", [key, value]:
                values[key] = value
                return [OK]
            case b"set-all", pairs if len(pairs) % 2 == 0:
                values.update(zip(pairs[::2], pairs[1::2], strict=True))
                return [OK]
            case b"append", [key, value]:
                values[key] = values.get(key, b"") + value
                return [OK]
            case b"delete", [key]:
                return [OK, b"%d" % (values.pop(key, None) is not None)]
            case b"add", [key, amount]:
                return self._add(key, int(amount))
            case b"compare", [key, expected, desired]:
                return [OK, self._compare(key, expected, desired)]
        raise WireError(f"a store is asked for {operation!r} of {len(about)} fields, unknown to it")

    def _add(self, key: bytes, amount: int) -> list[bytes]:
        try:
            total = int(self._values.get(key, b"0")) + amount
        except ValueError:
            return [WRONG, b"what is there is no number"]
        self._values[key] = b"%d" % total
        return [OK, self._values[key]]

    def _compare(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """As torch's stores do: a key that is not there counts as empty, and is not told apart."""
        found = self._values.get(key)
        if expected == b"" if found is None else expected == found:
            self._values[key] = found = desired
        return expected if found is None else found


ASK = "store-ask"
#: How long the coordinator may take to answer what it need not wait for, in seconds, and how long
#: it waits for a request that is there: longer than a channel bears with a store that is away.
_ANSWER_S = 120.0


def is_request(key: Key) -> bool:
    """Whether a message to the coordinator is for its `StoreServer`."""
    return key.operation == ASK


def _answer_key(number: int, rank: int) -> Key:
    return Key(FOREVER, f"store-answer-{number}", COORDINATOR, rank)


class _Asker:
    """One rank's way to the dictionary, for all of its threads."""

    def __init__(self, channel: Channel, rank: int) -> None:
        self._channel = channel
        self._rank = rank
        self._numbers = itertools.count()
        # C++ holds a store without what is Python's of it, so somebody has to.
        self.clones: list[ChannelStore] = []

    def ask(self, operation: str, about: Fields, wait_s: float = 0.0) -> list[bytes]:
        """What the coordinator answers. Raises DistStoreError if the time is up."""
        number = next(self._numbers)
        request = pack([operation.encode(), repr(wait_s).encode(), *about])
        self._channel.put_bytes(Key(number, ASK, self._rank, COORDINATOR), request)
        key = _answer_key(number, self._rank)
        try:
            status, *answer = unpack(self._channel.get_bytes(key, wait_s + _ANSWER_S))
        except WaitTimeout as error:
            raise dist.DistStoreError(
                f"the coordinator has not answered {operation} of rank {self._rank}: {error}"
            ) from error
        self._channel.drop([key])
        if status == OK:
            return answer
        names = ", ".join(name.decode(errors="replace") for name in about)
        if status == LATE:
            raise dist.DistStoreError(f"wait timeout after {wait_s:g} s, keys: {names}")
        why = b" ".join(answer).decode()
        raise dist.DistStoreError(f"{operation} of {about[0].decode(errors='replace')}: {why}")


class ChannelStore(dist.Store):  # type: ignore[name-defined,misc]  # torch types it in part
    """A store that all ranks of a generation share, for any of their threads.

    As torch's own stores: keys are text; values are bytes, or text that becomes bytes; a wait that
    takes longer than the timeout raises DistStoreError. Raises WireError if the channel fails.

    torch calls it from C++ too, and finds nothing there once Python has let go of it: keep it.
    """

    def __init__(self, channel: Channel, rank: int, *, asker: _Asker | None = None) -> None:
        super().__init__()
        self._asker = asker or _Asker(channel, rank)
        self._channel, self._rank = channel, rank

    def set(self, key: str, value: str | bytes) -> None:
        """Stores a value, in place of an earlier one."""
        self._asker.ask("set", [key.encode(), _raw(value)])

    def get(self, key: str) -> bytes:
        """The value, once it is there."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values, once they are all there."""
        return self._asker.ask("get", _names(keys), self.timeout.total_seconds())

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Until all keys are there.

        Args:
            timeout: in place of the store's own.
        """
        limit = self.timeout if timeout is None else timeout
        self._asker.ask("wait", _names(keys), limit.total_seconds())

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there now."""
        return self._asker.ask("check", _names(keys)) == [b"1"]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 where there is none; returns the sum. It is kept as decimal text."""
        return int(self._asker.ask("add", [key.encode(), b"%d" % amount])[0])

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Store the desired value if the expected one is there, or none and none is expected.

        Returns what is there then; what was expected, if nothing is.
        """
        about = [key.encode(), _raw(expected_value), _raw(desired_value)]
        return self._asker.ask("compare", about)[0]

    def append(self, key: str, value: str | bytes) -> None:
        """Put a value behind what is there."""
        self._asker.ask("append", [key.encode(), _raw(value)])

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Store a value each, all at once."""
        pairs = zip(_names(keys), map(_raw, values), strict=True)
        self._asker.ask("set-all", list(itertools.chain.from_iterable(pairs)))

    def delete_key(self, key: str) -> bool:
        """Remove a value; whether there was one."""
        return self._asker.ask("delete", [key.encode()]) == [b"1"]

    def num_keys(self) -> int:
        """How many values there are."""
        return int(self._asker.ask("count", [])[0])

    # C++ looks for these two under its own names.
    deleteKey = delete_key
    getNumKeys = num_keys

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get` and `multi_set`: yes."""
        return True

    def clone(self) -> ChannelStore:
        """The same dictionary, with a timeout of its own."""
        clone = ChannelStore(self._channel, self._rank, asker=self._asker)
        clone.set_timeout(self.timeout)
        self._asker.clones.append(clone)
        return clone


@dataclass(frozen=True, slots=True)
class _Waiting:
    key: Key
    operation: bytes
    about: Fields
    until_s: float


class StoreServer:
    """The coordinator's end: the dictionary of one generation. One thread calls it."""

    def __init__(self, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self._channel = channel
        self._clock = clock
        self._entries = Entries()
        self._waiting: list[_Waiting] = []
        self._list_next_s = clock()
        # Of each rank, the requests that were taken: all below a number, and some above.
        self._taken: dict[int, tuple[int, set[int]]] = defaultdict(lambda: (0, set()))

    def serve_once(self, keys: Iterable[Key] | None = None) -> None:
        """Do what is asked for by now, and answer what can be answered.

        Raises WireError.

        Args:
            keys: of the messages that wait for the coordinator, if they were listed already; None:
                they are listed here, no more often than that is cheap.
        """
        if keys is None and self._clock() >= self._list_next_s:
            self._list_next_s = self._clock() + self._channel.abilities.list_every_s
            keys = self._channel.waiting(COORDINATOR)
        requests = [key for key in keys or () if is_request(key)]
        self._waiting += [self._read(key) for key in requests if self._is_new(key)]
        if requests:
            self._channel.drop(requests)
        while self._answer_some():
            pass

    def _read(self, key: Key) -> _Waiting:
        operation, wait_s, *about = unpack(self._channel.get_bytes(key, _ANSWER_S))
        return _Waiting(key, operation, about, self._clock() + float(wait_s))

    def _is_new(self, key: Key) -> bool:
        below, above = self._taken[key.source]
        if key.step < below or key.step in above:
            return False
        above.add(key.step)
        while below in above:
            above.remove(below)
            below += 1
        self._taken[key.source] = below, above
        return True

    def _answer_some(self) -> bool:
        """Whether there were answers: what they changed may be what others wait for."""
        asked, self._waiting = self._waiting, []
        for one in asked:
            answer = self._entries.answer(one.operation, one.about)
            if answer is None and self._clock() >= one.until_s:
                answer = [LATE]
            if answer is None:
                self._waiting.append(one)
            else:
                self._channel.put_bytes(_answer_key(one.key.step, one.key.source), pack(answer))
        return len(self._waiting) < len(asked)


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _names(keys: list[str]) -> list[bytes]:
    return [key.encode() for key in keys]
