"""A worker's heartbeats: signs of life, told while a peer waits for it and while it waits itself.

    this worker waits for a peer          a heartbeat that names the peer
    it is asked (`reports.asked`)         a heartbeat
    it is fenced (`reports.fenced`)       it ends: another attempt follows it
    it stood still, and is back           it asks at once: all may have gone on without it

A thread looks at all this twice a heartbeat. It asks the channel only while the worker waits, or in
a round that takes longer than half a heartbeat; so where rounds are short it costs nothing. A
script without `dayfly.parallel` has no rounds that are known, and asks throughout. What is made of
heartbeats is in `silence`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dayfly.closing import Closing
from dayfly.errors import Forged, MessagesRemoved, WaitTimeout, WireError
from dayfly.life.reports import BEAT, Reporter, asked, fenced
from dayfly.threads import start_thread
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.wrapped import WatchedChannel
from dayfly.wire.keys import SERVER


class Fenced(Exception):
    """Raised in an attempt that was taken for dead: its successor goes on from the run's state."""


class Heartbeats(Closing):
    """One attempt's heartbeats. Close it to end its thread.

    Args:
        channel: of its generation.
        reporter: that sends heartbeats.
        rank, attempt, world_size: of the worker, and of its generation.
        every_s: between two heartbeats; None: there are none.
        begin: starts the thread; else somebody calls `look`.
        over: called in the thread, with the reason, as soon as `check` would raise; it may end the
            process. For work that does not ask by `check`.

    Attributes:
        sent: whether there are any.
        channel: through which the worker is to wait for its peers.
    """

    def __init__(
        self,
        channel: Channel,
        reporter: Reporter,
        rank: int,
        attempt: int,
        world_size: int,
        every_s: float | None,
        *,
        begin: bool = True,
        over: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.sent = every_s is not None
        self._watched = WatchedChannel(channel)
        self.channel = self._watched if self.sent else channel
        self._reporter = reporter
        self._asked, self._fence = asked(rank, attempt), fenced(rank, attempt)
        self._others = frozenset(range(world_size)) - {rank}
        self._look_s = (every_s or 0.0) / 2
        self._quiet_looks = 0
        self._looked_at = self._round_at = time.monotonic()
        self._fenced = False
        self._failure: BaseException | None = None
        self._over = over
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if self.sent and begin:
            self._thread = start_thread(self._run, name="dayfly-heartbeats", failed=self._fail)

    def round_ends(self) -> None:
        """The worker has exchanged what a peer may wait for."""
        self._round_at = time.monotonic()

    def check(self) -> None:
        """Ends what the worker does if that is of no use any more.

        Raises:
            Fenced: another attempt follows this one.
            WireError: heartbeats cannot be sent.
        """
        if self._fenced:
            raise Fenced
        if self._failure is not None:
            raise WireError("heartbeats cannot be sent any more") from self._failure

    def look(self) -> None:
        """Sends a heartbeat if one is due, or finds that this attempt is fenced.

        Raises:
            WireError: the generation's messages were removed, or the channel fails.
        """
        before, self._looked_at = self._looked_at, time.monotonic()
        if self._looked_at - before > 2 * self._look_s and self._followed():
            self._fenced = True
            return
        waits = self._waited_for()
        in_round_s = time.monotonic() - self._round_at
        if not waits and (in_round_s < self._look_s or not self.channel.told(self._asked)):
            self._quiet_looks = 0
        elif self.channel.told(self._fence):
            self._fenced = True
        elif self._quiet_looks:
            self._quiet_looks = 0  # half a heartbeat after the last one
        else:
            self._reporter.add(BEAT, urgent=True, waits=sorted(waits))
            self._quiet_looks = 1

    def close(self) -> None:
        """Ends the thread, once a heartbeat that is on its way was sent."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _waited_for(self) -> frozenset[int]:
        found = self._watched.waited_for(self._look_s)
        return self._others if SERVER in found else found & self._others

    def _followed(self) -> bool:
        """Whether another attempt follows this one. Unlike `told`, raises for removed messages."""
        try:
            self.channel.get_bytes(self._fence, 0.0)
        except (WaitTimeout, Forged):
            return False
        return True

    def _run(self) -> None:
        while not self._closing.wait(self._look_s):
            try:
                self.look()
            except WireError as error:
                self._fail(error)
                # A store that is away for now may be back before anybody needs it again.
                return self._over(str(error)) if isinstance(error, MessagesRemoved) else None
            if self._fenced:
                return self._over("it was taken for dead, and another one follows it")

    def _fail(self, error: BaseException) -> None:
        self._failure = error
