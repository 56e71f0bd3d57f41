"""Who leads a run: one coordinator at a time, of whatever machines.

    head.json    {"term": 3, "leader": "6f…", "where": "process 17 on host", "lease_s": 120.0, …}

    first     take term 3 --- renew --- renew --- (stopped for minutes) --------- renew: refused
    second                                        waits a lease --- take term 4 --- renew --- …

A coordinator takes the next term by compare and swap, and renews it twice a lease. Another takes
over once the term was released, its process is known to be gone, or it was not renewed for a lease
by the other's own clock: no machine reads the clock of another. A leader writes through
`led_store.LedStore`, by which one that has lost its term changes nothing any more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

from dayfly.closing import Closing
from dayfly.dataclass_json import Range, dump, read
from dayfly.errors import RequestError
from dayfly.json_files import parse
from dayfly.life.platforms.processes import started_at
from dayfly.wire.stores.base import ObjectMissing, Store, StoreError, Version

HEAD = "head.json"
#: Seconds for which a term holds after its last renewal. Renewals are puts, at 5e-6 dollars over
#: S3: one a minute is 1% of the price of a function of 512 MiB on AWS Lambda.
LEASE_S = 120.0
#: Renewals in a lease.
_RENEWALS = 2
#: Seconds between two looks at a term that another coordinator may still renew, at most.
_LOOK_S = 2.0
#: How often a coordinator that loses the race for a term tries the next one.
_TRIES = 5


class Deposed(Exception):
    """Another coordinator leads the run by now; its bearer writes nothing any more.

    No DayflyError: what goes on after those may not go on after this.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`head.json`.

    Attributes:
        term: counts from 1; each leader has its own.
        leader: a token of the coordinator.
        where: its process and host, for people.
        process: by which processes of the same machine know it; see `_this_process`.
        lease_s: seconds without a renewal after which another may take the next term.
        renewals: of this term.
        released: whether its leader has ended in order.
    """

    term: Annotated[int, Range(1, 10**9)]
    leader: str
    where: str
    process: str
    lease_s: Annotated[float, Range(0.01, 3600)]
    renewals: int = 0
    released: bool = False


class Leadership(Closing):
    """A term that this process leads a run for; renewed by a thread until it is closed.

    Args:
        store: the run's.
        head: as it was taken.
        version: of its object.
    """

    def __init__(self, store: Store, head: Head, version: Version) -> None:
        self._store = store
        self._head = head
        self._version = version
        self._renewed_s = _now_s()
        self._lost: str | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._renewer = threading.Thread(target=self._keep, name="dayfly-leader", daemon=True)
        self._renewer.start()

    @classmethod
    def take(
        cls, store: Store, *, lease_s: float = LEASE_S, note: Callable[[str], None] | None = None
    ) -> Self:
        """Takes the next term of a run, after the one before it has ended.

        Args:
            store: the run's.
            lease_s: of the new term.
            note: told once if there is a lease to be waited for.

        Raises:
            RequestError: another coordinator leads the run, or took the term first each time.
        """
        for _ in range(_TRIES):
            before = _read(store)
            if before is None:
                term, version = 1, None
            else:
                head, version = before
                term = head.term + 1
                _wait_for_end(store, head, note)
            mine = Head(
                term=term,
                leader=uuid.uuid4().hex,
                where=f"process {os.getpid()} on {socket.gethostname()}",
                process=_this_process(),
                lease_s=lease_s,
            )
            data = _text(mine)
            taken = (
                store.put_new(HEAD, data) if version is None else store.put_if(HEAD, data, version)
            )
            if taken is not None:
                return cls(store, mine, taken)
        raise RequestError(f"other coordinators took the run in {store} each time: try again")

    @property
    def term(self) -> int:
        """Which one it is."""
        return self._head.term

    def check(self, *, renew: bool = False) -> None:
        """Raises Deposed if the term is over.

        It asks the store only if the lease has run out by this machine's clock, as after a pause.

        Args:
            renew: ask in any case. Nobody else can take the next term for a lease from then on.
        """
        with self._changing:
            if self._lost is None and (renew or _now_s() - self._renewed_s > self._head.lease_s):
                self._renew()
            if self._lost is not None:
                raise Deposed(
                    f"the run in {self._store} is led by {self._lost} by now, as this coordinator "
                    f"was not heard of for {self._head.lease_s:g} s: nothing is written any more"
                )

    def close(self) -> None:
        """Releases the term, so that the next coordinator need not wait for a lease."""
        self._closed.set()
        self._renewer.join()
        with self._changing:
            if self._lost is None and not self._head.released:
                with suppress(StoreError):
                    self._put(replace(self._head, released=True))

    def _keep(self) -> None:
        while not self._closed.wait(self._head.lease_s / _RENEWALS):
            with self._changing, suppress(StoreError):
                if self._lost is None:
                    self._renew()

    def _renew(self) -> None:
        self._put(replace(self._head, renewals=self._head.renewals + 1))

    def _put(self, head: Head) -> None:
        """Writes the head, if it is this leader's still. Raises StoreError if nobody can tell."""
        began_s = _now_s()
        version = self._store.put_if(HEAD, _text(head), self._version)
        if version is None:
            found = _read(self._store)
            if found is not None and found[0].leader == head.leader:
                # An earlier put of this leader had won, and its answer was lost. It may be old.
                head = replace(head, renewals=found[0].renewals + 1)
                version = self._store.put_if(HEAD, _text(head), found[1])
                found = None if version is not None else _read(self._store)
        if version is None:
            self._lost = "nobody" if found is None else f"{found[0].where} (term {found[0].term})"
            return
        self._head, self._version, self._renewed_s = head, version, began_s


def leader_of(store: Store) -> Head | None:
    """Who leads a run, as far as its store tells; None: nobody did, or it was released."""
    found = _read(store)
    return None if found is None or found[0].released else found[0]


class LeaderWatch:
    """Who leads a run, for somebody who looks again and again, on whatever machine.

    Args:
        store: the run's.
        now: a clock in seconds that stands still while this machine sleeps.
    """

    def __init__(self, store: Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._head: Head | None = None
        self._seen_s = 0.0

    def look(self) -> Head | None:
        """Returns the leader; None: nobody leads, or nobody was heard of for a lease."""
        head = leader_of(self._store)
        if head != self._head:
            self._head, self._seen_s = head, self._now()
        if head is None or is_gone(head) or self._now() - self._seen_s > head.lease_s:
            return None
        return head


def is_gone(head: Head) -> bool:
    """Whether a leader's process was one of this machine, and is not any more."""
    machine, _, process = head.process.rpartition("/")
    here, _, _ = _this_process().rpartition("/")
    pid, _, began = process.partition(".")
    return machine == here and pid.isdigit() and str(started_at(int(pid))) != began


def _wait_for_end(store: Store, head: Head, note: Callable[[str], None] | None) -> None:
    """Returns once a term can be taken over. Raises RequestError if it is renewed meanwhile."""
    if head.released or is_gone(head):
        return
    if note is not None:
        note(
            f"{head.where} led this run last, and may still: waiting up to {head.lease_s:g} s to "
            "see whether it does"
        )
    began_s = _now_s()
    while (left_s := began_s + head.lease_s - _now_s()) > 0:
        time.sleep(min(left_s, _LOOK_S, head.lease_s / _RENEWALS))
        found = _read(store)
        if found is None or found[0].released:
            return
        if found[0] != head:
            raise RequestError(
                f"the run in {store} is being run by {found[0].where}: stop it by dayfly stop, or "
                "wait for its end"
            )


def _read(store: Store) -> tuple[Head, Version] | None:
    try:
        data, version = store.get_versioned(HEAD)
    except ObjectMissing:
        return None
    origin = f"{store}/{HEAD}"
    remedy = f"make sure that no coordinator runs it, and remove {HEAD}"
    return read(Head, parse(data, origin, remedy), origin, remedy=remedy), version


def _text(head: Head) -> bytes:
    return json.dumps(dump(head)).encode()


def _this_process() -> str:
    """What no other process has: the machine's boot and namespace, the id, and when it began."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    pid = os.getpid()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{pid}.{started_at(pid)}"


def _now_s() -> float:
    """A clock that goes on while the machine sleeps, and never goes back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
