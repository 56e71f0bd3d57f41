"""One member of a group: the order of what it takes part in, and what becomes of it when it fails.

caller's thread     asks for its turn
lane's thread       runs the collective (`collectives`), puts results back
a stream's thread   the same for messages between two members (`p2p`)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.group import MembersChannel, group_name
from dayfly.wire.execution import wait_patiently
from dayfly.wire.keys import COORDINATOR, EVERYONE, Key
from dayfly.wire.process_group.collectives import SETTLE, Collectives, Order
from dayfly.wire.process_group.operations import DayflyWork, StagedTensor
from dayfly.wire.process_group.p2p import PointToPoint

#: Collectives at once over a link, where they fill each other's gaps; in memory, one.
_LANES_OVER_LINK = 4
#: After so many bytes or broadcasts in a lane, in which members do not meet, they do.
_BROADCAST_BYTES, _BROADCASTS = 8 * 2**20, 32
#: How long what is under way has to come to its end when a group is destroyed, in seconds.
_LAST_S = 5.0


class Member:
    """What `DayflyGroup` stands on.

    An operation that fails fails all that come after it, as members would be out of step.

    Args:
        world: the channel of all ranks, which stays open.
        name: torch's, the same at all members.
        ranks: of the members in the world.
        rank: this one's in the group.
        whole_world: whether all ranks are members.
        incarnation: see `members.group_name`.
        timeout_s: how long to wait for a message of another member.
    """

    def __init__(
        self,
        world: Channel,
        name: str,
        ranks: Sequence[int],
        rank: int,
        *,
        whole_world: bool = True,
        incarnation: int = 0,
        timeout_s: float,
    ) -> None:
        self.name, self.rank, self.size = name, rank, len(ranks)
        self._ranks, self._timeout_s = tuple(ranks), timeout_s
        self.closed = False
        self.coalesced: list[DayflyWork] | None = None
        self._members = "" if whole_world else f" (ranks {', '.join(map(str, ranks))} of the world)"
        self._failure: BaseException | None = None
        short = group_name(name, ranks, incarnation)
        channel = self._channel = MembersChannel(
            world,
            short,
            ranks,
            rank,
            whole_world=whole_world,
            timeout_s=timeout_s,
            check=self._check,
        )
        lanes = 1 if channel.immediate else _LANES_OVER_LINK
        self._order = Order(lanes, name, self._fail)
        self.collectives = Collectives(
            channel, rank, self.size, timeout_s=timeout_s, lanes=lanes, at_server=whole_world
        )
        self.p2p = PointToPoint(
            MembersChannel(world, short, ranks, rank, whole_world=whole_world),
            rank,
            self.size,
            timeout_s=timeout_s,
            check=self._check,
        )
        self._broadcast = [(0, 0)] * lanes
        self._monitored = 0
        self._asking = threading.Lock()

    @property
    def timeout_s(self) -> float:
        """How long to wait for a message of another member."""
        return self._timeout_s

    def set_timeout(self, timeout_s: float) -> None:
        """Wait so long from now on."""
        self._timeout_s = timeout_s
        self.collectives.set_timeout(timeout_s)
        self.p2p.set_timeout(timeout_s)

    def monitored_barrier(self, timeout_s: float, *, every_rank: bool) -> None:
        """Wait until all members came here, as they told the first one.

            member 1   came ------.        .-> all came
            member 0   ------------> reads '                 within `timeout_s`
            member 2   (nothing)             or names member 2

        Args:
            every_rank: name all members that did not come, not the first alone.

        Raises:
            WireError: at the first member, with the ranks that did not come; at others, as the
                first one did not say that all came.
        """
        number, self._monitored = self._monitored, self._monitored + 1
        until, mine = time.monotonic() + timeout_s, self._ranks[self.rank]
        if self.rank:
            self._channel.put_bytes(_came(number, self.rank), b"")
            try:
                self._await(_all_came(number), until)
            except WaitTimeout as error:
                raise WireError(
                    f"Rank {mine} successfully reached monitoredBarrier, but received errors while "
                    f"waiting for send/recv from rank {self._ranks[0]}. Please check rank "
                    f"{self._ranks[0]} logs for faulty rank."
                ) from error
            return
        shown = f"{1000 * timeout_s:g} ms"
        if timeout_s <= 0:
            raise WireError(f"Rank {mine} timed out in monitoredBarrier after {shown}.")
        missing = []
        for member in range(1, self.size):
            try:
                self._await(_came(number, member), until)
            except WaitTimeout:
                missing.append(self._ranks[member])
                if not every_rank:
                    break
        if missing:
            ranks = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            raise WireError(f"{ranks} failed to pass monitoredBarrier in {shown}")
        self._channel.drop([_came(number, member) for member in range(1, self.size)])
        self._channel.put_bytes(_all_came(number), b"")

    def _await(self, key: Key, until: float) -> None:
        """Read a note, by a moment of `time.monotonic()`."""

        def read(some_s: float) -> bytes:
            return self._channel.get_bytes(key, some_s)

        wait_patiently(read, max(0.0, until - time.monotonic()), self._check, str(key))

    @property
    def number(self) -> int:
        """Of the next collective."""
        return self._order.number

    def abort(self) -> None:
        """End what is under way, with an error."""
        self._fail(WireError("the group was aborted"))
        self.close()

    def close(self) -> None:
        """Let what is under way come to its end, for a moment; then give it up. End all threads."""
        ended = self._order.close(_LAST_S)
        clean = ended and self._failure is None
        self._fail(WireError("the group was destroyed"))  # also what waits for room
        if not ended:
            self._order.close(None)
        self.p2p.close()
        self.collectives.close()
        if clean and not self.closed and self.collectives.left:
            with suppress(WireError):  # the store may be gone
                self._channel.put_bytes(_closed(self.rank), b"")
        self.closed = True

    def tidy(self) -> bool:
        """Drop what stayed after the end, once all members have ended; whether nothing stays."""
        left = self.collectives.left
        if left:
            ends = {_closed(member) for member in range(self.size)}
            if self._channel.stored(ends) != ends:
                return False
            self._channel.drop(left)
        return True

    def collective(
        self,
        what: str,
        staged: Sequence[StagedTensor],
        value: Sequence[torch.Tensor],
        run: Callable[[int], None],
        *,
        meet: bool = True,
        stays_bytes: int | None = None,
    ) -> DayflyWork:
        """Have it run in its turn.

        Args:
            meet: whether all members know afterwards that all have begun it.
            stays_bytes: what it leaves in the channel, if they do not, until they have met; None:
                nothing.
        """
        form = f" {_form(staged[0].tensor)}" if staged else ""
        work = DayflyWork(f"{what}{form}{self._members}", value)

        def job(number: int) -> None:
            try:
                self._check()
                run(number)
                for one in staged:
                    one.put_back()
            except BaseException as error:
                work.finish(self._failed(f"{work.what}, collective number {number}", error))
            else:
                work.finish(None)

        with self._asking:
            self._order.add(job, *self._then_settle(meet, stays_bytes))
        return self._noted(work)

    def _then_settle(self, meet: bool, stays_bytes: int | None) -> list[Callable[[int], None]]:
        """A barrier after the collective that is about to be added, if too much stays."""
        lane = self._order.number % self._order.lanes
        if meet:
            self._broadcast[lane] = 0, 0
        if meet or stays_bytes is None:
            return []
        nbytes, times = self._broadcast[lane]
        nbytes, times = nbytes + stays_bytes, times + 1
        full = nbytes >= _BROADCAST_BYTES or times >= _BROADCASTS
        self._broadcast[lane] = (0, 0) if full else (nbytes, times)
        return [self._settle] if full else []

    def _settle(self, number: int) -> None:
        try:
            self._check()
            self.collectives.barrier(number, SETTLE)
        except BaseException as error:
            self._failed("waiting for all to have read what was broadcast", error)

    def p2p_work(self, what: str, staged: StagedTensor, go: Callable[..., None]) -> DayflyWork:
        """Have one of the messages' operations run: `go(flat, done=)`."""
        work = DayflyWork(f"{what} {_form(staged.tensor)}{self._members}", [staged.tensor])

        def done(error: BaseException | None, source: int = -1) -> None:
            if error is not None:
                work.finish(self._failed(work.what, error))
                return
            staged.put_back()
            work.finish(None, source)

        self._check()
        go(staged.flat(), done=done)
        return self._noted(work)

    def _noted(self, work: DayflyWork) -> DayflyWork:
        if self.coalesced is not None:
            self.coalesced.append(work)
        return work

    def _check(self) -> None:
        """Raise if the group is of no use any more."""
        if self._failure is not None:
            raise WireError(f"given up, as the group failed before: {self._failure}")

    def _fail(self, error: BaseException) -> None:
        """All that is under way, and all that comes, fails."""
        if self._failure is None:
            self._failure = error
            self.collectives.give_up(error)

    def _failed(self, what: str, error: BaseException) -> BaseException:
        """The group has failed; returns the error, with what it happened to."""
        named = error
        if isinstance(error, WireError):
            why = str(error)
            if isinstance(error, WaitTimeout) and error.source is not None:
                why = (
                    f"Timed out waiting: nothing came from rank {self._ranks[error.source]} within "
                    f"{self._timeout_s:g} s; is it alive, and does it take part?"
                )
            named = type(error)(f"rank {self._ranks[self.rank]}: {what}: {why}")
            named.__suppress_context__ = True  # it says all that is to be known
        self._fail(named)
        return named


def _closed(member: int) -> Key:
    """Says that a member has ended a group in order: it has read all that it will ever read."""
    return Key(0, "closed", member, COORDINATOR)


def _came(number: int, member: int) -> Key:
    return Key(number, "monitored-came", member, 0)


def _all_came(number: int) -> Key:
    return Key(number, "monitored-all-came", 0, EVERYONE)


def _form(tensor: torch.Tensor) -> str:
    return f"of {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
