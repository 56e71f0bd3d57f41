"""The base of channels over a store that neither waits nor notifies: it is asked repeatedly.

Object stores and DynamoDB bill by the request, so each is thought about:

    get       asks for its key, never lists: when `patience` says so. A wait that goes on over
              several calls is one wait: a call asks at least once, unless an earlier call of the
              wait did.
    waiting   lists: for the coordinator alone, at most every `LIST_EVERY_S` while nothing else
              happens.
    drop      removes in the background, many with one request; whoever asks for a dropped key by
              the same channel waits for that.
    the run   is there as long as its marker is. Who puts or waits looks for it every
              `LOOK_EVERY_S`; if it is gone, so is the run: what was put since the last look is
              removed again.
    outages   a store that does not answer, or says it has too much to do, is asked again for a
              minute, ever more slowly. A put whose answer was lost may find its own message: False,
              then.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import torch

from dayfly.closing import Closing
from dayfly.errors import DayflyError, MessagesRemoved, WaitTimeout, WireError, named
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import Site
from dayfly.wire.channels.patience import ChannelWaits, Turns
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, SERVER, Key, party_name
from dayfly.wire.message import Header, Incoming, Opener, receive_tensor
from dayfly.wire.outages import FIRST_ANSWER_S, Retry, Trouble


class Drops(Closing):
    """What is to be removed.

    While one request is on its way, the next one's messages come together.

    Args:
        delete: removes messages at the store, in a thread of its own.
    """

    def __init__(self, delete: Callable[[Sequence[Key]], None]) -> None:
        self._delete = delete
        self._changed = threading.Condition()
        self._pending: dict[Key, None] = {}
        self._busy = False
        self._error: BaseException | None = None
        self._pool: ThreadPoolExecutor | None = None

    def add(self, keys: Iterable[Key]) -> None:
        """Remove these soon. Raises what hindered an earlier removal."""
        with self._changed:
            self._raise()
            self._pending.update(dict.fromkeys(keys))
            if self._pending and not self._busy:
                self._busy = True
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, thread_name_prefix="dayfly-drops")
                self._pool.submit(self._sweep)

    def settle(self, keys: Iterable[Key] | None = None) -> None:
        """Waits until these messages are removed; None: all that are pending."""
        if not self._pending and self._error is None:
            return
        wanted = None if keys is None else list(keys)

        def settled() -> bool:
            if wanted is None:
                return not self._pending
            return not any(key in self._pending for key in wanted)

        with self._changed:
            self._changed.wait_for(settled)
            self._raise()

    def close(self) -> None:
        """Wait for the removals that are under way, and end the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _sweep(self) -> None:
        while True:
            with self._changed:
                batch = list(self._pending)
                if not batch:
                    self._busy = False
                    return
            try:
                self._delete(batch)
            except BaseException as error:
                with self._changed:
                    self._error = error
            with self._changed:
                for key in batch:
                    self._pending.pop(key, None)
                self._changed.notify_all()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


Result = TypeVar("Result")

#: Seconds between two looks whether the run is still there: a request each, of putting workers.
LOOK_EVERY_S = 5.0
_NAMED = {f"to-{party_name(party)}": party for party in (EVERYONE, COORDINATOR, SERVER)}


class Vanished(Exception):
    """A message was removed while it was read."""


def destination_of(mailbox: str) -> int | None:
    """Whose mailbox it is, such as 3 of `to-3`; None if it is no mailbox."""
    number = mailbox.removeprefix("to-")
    return int(number) if number.isdecimal() else _NAMED.get(mailbox)


def ready(channel: PolledChannel, prepare: Callable[[], object]) -> PolledChannel:
    """The channel, made or found by `prepare`; closed if that fails."""
    try:
        prepare()
    except BaseException:
        channel.close()
        raise
    return channel


class PolledChannel(Channel):
    """A channel over a store that is asked.

    Args:
        place: what errors call it.
    """

    def __init__(self, site: Site, place: str) -> None:
        super().__init__(site.namespace)
        self._by = site.authenticator
        self.look_every_s = LOOK_EVERY_S
        self._place = place
        self._patience = ChannelWaits()
        self._retry = Retry(self._trouble, lambda text, _: WireError(text), f": {place}")
        self._insist = self._retry.insist
        self._drops = Drops(lambda keys: self._insist("a drop", lambda: self._delete(keys)))
        self._lock = threading.Lock()
        self._look_at_s = time.monotonic() + self.look_every_s  # it was there when this was opened
        self._recent: list[Key] = []
        self._gone = False
        self._turns = Turns()

    # What a store is to do. All may raise its own errors, which `_trouble` explains.

    @abstractmethod
    def _trouble(self, error: Exception) -> Trouble | None:
        """What one of the store's errors comes to; None if it is none of its errors."""

    @abstractmethod
    def _create(self, key: Key, head: bytes, payload: memoryview) -> tuple[bool, int]:
        """Store a message if there is none; whether it was stored, and the requests."""

    @abstractmethod
    def _fetch(self, key: Key) -> Incoming | None:
        """The message of a key, if it is there. Raises Vanished, also while pieces come."""

    @abstractmethod
    def _look(self, keys: Sequence[Key]) -> tuple[frozenset[Key], int]:
        """Those of the keys that are there, and the requests that it took."""

    @abstractmethod
    def _list(self, destination: int | None) -> Iterator[tuple[Key, int]]:
        """Messages to a reader, or all, with their bytes."""

    @abstractmethod
    def _delete(self, keys: Sequence[Key]) -> None:
        """Remove messages; those that are not there are passed over."""

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether the run's marker is there."""

    @abstractmethod
    def _remove_run(self) -> None:
        """Remove all generations of the run: markers first, then messages until there are none."""

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        head = header.seal(payload, key, self._by)
        self._refuse_if_gone(key)
        self._drops.settle([key])
        won, requests = self._insist(key, lambda: self._create(key, head, payload))
        self.traffic.count(up=HEADER_BYTES + payload.nbytes if won else 0, requests=requests)
        self._patience.known(key)
        with self._lock:
            self._recent.append(key)
        self._check_open(key)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        opener = Opener(key, self._by)
        return self._receive(
            key, timeout_s, lambda incoming: receive_tensor(incoming, into, opener)
        )[1]

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        opener = Opener(key, self._by)
        return self._receive(
            key, timeout_s, lambda incoming: opener.plain(b"".join(incoming.pieces))
        )[0]

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return frozenset()
        self._drops.settle(wanted)
        found, requests = self._insist(wanted[0], lambda: self._look(wanted))
        self.traffic.count(requests=requests)
        for key in found:
            self._patience.known(key)
        return found

    def waiting(self, destination: int) -> Sequence[Key]:
        self._drops.settle()
        found = sorted(key for key, _ in self._all(destination))
        self.traffic.count()
        for key in found:
            self._patience.known(key)
        return found

    def drop(self, keys: Iterable[Key]) -> None:
        self._drops.add(keys)

    def trim(self, before_step: int) -> None:
        self._drops.settle()
        before_step = min(before_step, FOREVER)
        old = [
            key
            for key, _ in self._all(None)
            if key.step < before_step and key.destination != COORDINATOR
        ]
        if old:
            self._insist("a trim", lambda: self._delete(old))

    def size_bytes(self) -> int:
        self._drops.settle()
        return sum(size for _, size in self._all(None))

    def destroy(self) -> None:
        self._gone = True
        self._drops.settle()
        self._insist("the end of the run", self._remove_run)
        with self._lock:
            self._recent.clear()

    def remove(self) -> None:
        """`destroy`, for what is left of a run: does not wait long for the store."""
        self._insist("looking for earlier messages of the run", self._remove_run, FIRST_ANSWER_S)

    def close(self) -> None:
        self._drops.close()
        with self._lock:
            recent, self._recent = self._recent, []
        # Whoever comes here because the store is gone has no use for another error.
        with suppress(DayflyError):
            if recent and not self._insist("the end of a worker", self._is_open, 0.0):
                self._take_back(recent)

    def wake(self) -> None:
        self._turns.wake()

    def _receive(
        self, key: Key, timeout_s: float, use: Callable[[Incoming], Result]
    ) -> tuple[Result, float]:
        """Wait for a message and use it. Returns what `use` did, and when the message was there."""
        self._drops.settle([key])
        until_s = time.monotonic() + timeout_s
        wait = self._patience.wait(key)
        trouble: Trouble | None = None
        with self._turns.line_up(key.source) as turn:
            while True:
                behind = not turn.first
                next_s = wait.behind_s if behind else wait.next_s
                if next_s > until_s and wait.tried_s is None:
                    next_s = until_s
                turn.sleep_until(min(next_s, until_s), behind=behind)
                if next_s <= time.monotonic():
                    self._patience.trying(wait)
                    try:
                        if (result := self._try(key, use)) is not None:
                            self._patience.came(key, wait)
                            return result
                        trouble = None
                    except Exception as error:
                        trouble = self._retry.trouble(key, error, self._retry.outage)
                    self._patience.missed(wait)
                    self._check_open(key)
                if time.monotonic() >= until_s or turn.woken:
                    why = f": {trouble.text}" if trouble is not None else ""
                    raise WaitTimeout(
                        f"{key} did not arrive within {timeout_s:g} s at {self._place}{why}"
                    )

    def _making(self, act: Callable[[], Result]) -> Result:
        """Acts while the channel is made: a store that does not answer is given up soon."""
        return self._insist("making the channel", act, FIRST_ANSWER_S)

    def _try(self, key: Key, use: Callable[[Incoming], Result]) -> tuple[Result, float] | None:
        """Ask for a message once, and use it if it is there."""
        try:
            incoming = self._fetch(key)
            there_s = time.monotonic()
            self._retry.outage.answered()
            if incoming is None:
                self.traffic.count()
                return None
            result = use(incoming)
        except Vanished:
            self.traffic.count()
            return None
        except WireError as error:
            raise named(key, error) from error
        self.traffic.count(down=incoming.size, requests=incoming.requests)
        return result, there_s

    def _all(self, destination: int | None) -> list[tuple[Key, int]]:
        return self._insist("a listing", lambda: list(self._list(destination)))

    def _refuse_if_gone(self, what: Key | str) -> None:
        if self._gone:
            raise MessagesRemoved(f"{what}: the run's messages at {self._place} were removed")

    def _check_open(self, key: Key) -> None:
        """Look for the marker if it is time to. Raises WireError if the run is over."""
        self._refuse_if_gone(key)
        with self._lock:
            if (now_s := time.monotonic()) < self._look_at_s:
                return
            self._look_at_s = now_s + self.look_every_s
            recent, self._recent = self._recent, []
        if not self._insist(key, self._is_open):
            self._gone = True
            self._take_back(recent)
            self._refuse_if_gone(key)

    def _take_back(self, recent: Sequence[Key]) -> None:
        """Remove what came too late for a run that is over."""
        if recent:
            self._insist("messages after the end", lambda: self._delete(recent))
