"""One member of a group: the order of what it takes part in, and what becomes of it when it fails.

caller's thread     asks for its turn
lane's thread       runs the collective (`collectives`), puts results back
a stream's thread   the same for messages between two members (`p2p`)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.group import MembersChannel, group_name
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.process_group.collectives import SETTLE, Collectives, Order
from dayfly.wire.process_group.operations import DayflyWork, Staged
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
        self._asking = threading.Lock()

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
        staged: Sequence[Staged],
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

    def p2p_work(self, what: str, staged: Staged, go: Callable[..., None]) -> DayflyWork:
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
                    f"nothing came from rank {self._ranks[error.source]} within "
                    f"{self._timeout_s:g} s; is it alive, and does it take part?"
                )
            named = type(error)(f"rank {self._ranks[self.rank]}: {what}: {why}")
            named.__suppress_context__ = True  # it says all that is to be known
        self._fail(named)
        return named


def _closed(member: int) -> Key:
    """Says that a member has ended a group in order: it has read all that it will ever read."""
    return Key(0, "closed", member, COORDINATOR)


def _form(tensor: torch.Tensor) -> str:
    return f"of {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
