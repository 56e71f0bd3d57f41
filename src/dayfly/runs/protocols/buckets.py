"""The all-reduces of a step's flat buffer, beside the backward pass.

backward pass   |layer 9|layer 8|layer 7|layer 6| ...
bucket 0                |========|                    by a thread of its own
bucket 1                        |========|            over a link several at once
the last                                      |====|
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from dayfly.closing import Closing
from dayfly.runs.progress import LoggedSum
from dayfly.training.compression.exchange import Exchange
from dayfly.wire.engine import Engine
from dayfly.wire.schedule import Name

Stored = frozenset[Name] | None


class Buckets(Closing):
    """Sums an exchange's buffers over an engine's ranks, step by step.

    Those that may begin early do so by threads of their own, as soon as they are `ready`; the
    others in the caller's thread, or after them.
    """

    def __init__(self, engine: Engine, exchange: Exchange, number: int = 0) -> None:
        """number: of the phase of a step."""
        self._engine = engine
        self._exchange = exchange
        names = operations(len(exchange.buffers), number)
        self.sums = tuple(
            LoggedSum(engine, *each)
            for each in zip(names, exchange.buffers, exchange.packings, strict=True)
        )
        self._pool = (
            ThreadPoolExecutor(engine.at_once, thread_name_prefix="dayfly-buckets")
            if exchange.early
            else None
        )
        self._step = 0
        self._stored: Sequence[Stored] = ()
        self._coming: list[Future[None]] = []

    @property
    def needs_own(self) -> bool:
        """Whether this worker's contribution has to be computed, given what is stored."""
        return self._exchange.remembers or any(
            one.reads_buffer(some) for one, some in zip(self.sums, self._stored, strict=True)
        )

    def begin(self, step: int, stored: Sequence[Stored]) -> None:
        """Begin a step. stored: of each all-reduce, what is in the log."""
        self._step = step
        self._stored = stored

    def ready(self, number: int) -> None:
        """The gradients of a bucket are complete: begin its sum in a thread, if it is an early one.

        Args:
            number: of the bucket, which is not the last.
        """
        if number < self._exchange.early:
            self._begin(number)

    def finish(self) -> None:
        """All of the flat buffer is whole: sum the rest, and wait until all is summed."""
        for late in range(self._exchange.early, len(self._exchange.chains)):
            self._begin(late)  # all ranks begin them in the same order
        for coming in self._coming:
            coming.result()
        self._coming.clear()

    def take(self) -> None:
        """Take all sums from the log, of a step that needs no contribution."""
        for number in range(len(self.sums)):
            self._reduce(number)

    def give_up(self, error: BaseException) -> None:
        """The step failed: what still waits for peers must not keep anybody; for good."""
        self._engine.give_up(error)
        for coming in self._coming:
            coming.cancel()
        self._coming.clear()

    def _begin(self, chain: int) -> None:
        if self._pool is None:
            self._sum(chain)
        else:
            self._coming.append(self._pool.submit(self._sum, chain))

    def _sum(self, chain: int) -> None:
        for number in self._exchange.chains[chain]:
            self._exchange.contribute(number)
            self._reduce(number)

    def _reduce(self, number: int) -> None:
        one, stored = self.sums[number], self._stored[number]
        terms_P = self._exchange.terms(number)
        self._engine.all_reduce(terms_P, self._step, one.operation, stored, one.packing)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def operations(buckets: int, phase: int = 0) -> tuple[str, ...]:
    """Names of the buckets' all-reduces in keys: `grad`, or `grad-0`, `grad-1` and so on.

    Args:
        buckets: how many.
        phase: of the step; of those after the first, names begin with `grad1`, `grad2` and so on.
    """
    stem = f"grad{phase}" if phase else "grad"
    return tuple(f"{stem}-{n}" for n in range(buckets)) if buckets > 1 else (stem,)
