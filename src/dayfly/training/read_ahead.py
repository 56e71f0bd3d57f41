"""Samples of a Dataset that are read while their function waits for the wire.

    function    |read 40-42| compute | wait for sums | apply | compute | wait for sums ...
    reader                           |43 |44 |45 |                     |46 ...

    first stage |read 0| f0 |read 1| f1 | wait | b0 | wait | b1 | wait for sums ...
    reader                              |2 |3 |     |4 |        |5 |6 ...

A Dataset may draw from the generators that the model draws from, and share with it what it likes.
So the two never run at once: the reader, a thread of its own, has its turn while the function's
thread waits, one sample after another, and leaves the generators as they were. What it did not get
to, the function reads itself. Bits do not depend on it, as each sample is drawn with its own seed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dayfly.closing import Closing
from dayfly.threads import start_thread
from dayfly.training.randomness import kept_generators

if TYPE_CHECKING:
    from dayfly.training.decoders import Key
    from dayfly.training.order import Indices
    from dayfly.training.sources import DatasetSource


@dataclass(slots=True)
class _Piece:
    """Samples of one batch of a stream, as far as they are read.

    Attributes:
        epoch: of the batch.
        numbers: of all its samples, in order.
        samples: the first of them, which are read.
        failed: whether one could not be read.
    """

    epoch: int
    numbers: list[int]
    samples: list[Any] = field(default_factory=list)
    failed: bool = False

    @property
    def to_read(self) -> list[int]:
        return self.numbers[len(self.samples) :]


class ReadAhead(Closing):
    """Reads pieces that are asked for, while the function's thread lends its turn.

    One thread asks, takes and lends.

    Args:
        source: of the samples.
        ahead: pieces that it is of use to ask for, from the one that is taken next.
    """

    cpu_s = 0.0  # the process's own, where it is counted

    def __init__(self, source: DatasetSource, ahead: int) -> None:
        self._source = source
        self.ahead = ahead
        self._coming: dict[Key, _Piece] = {}
        self._changed = threading.Condition()
        self._lent = self._reading = self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, key: Key, part: None, indices: Indices, epoch: int) -> None:
        """As `Decoders.ask`."""
        if key not in self._coming:
            self._coming[key] = _Piece(epoch, indices.tolist())

    def take(self, key: Key) -> Any:
        """As `Decoders.take`. Samples that the thread has not read yet are read by the caller."""
        piece, source = self._coming.pop(key), self._source
        rest = [source.sample(piece.epoch, number) for number in piece.to_read]
        return source.collated([*piece.samples, *rest])

    def forget(self, before: Key) -> None:
        """As `Decoders.forget`."""
        for key in [key for key in self._coming if key < before]:
            del self._coming[key]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While the caller only waits, samples are read; at the end, of the one under way."""
        self._lend()
        try:
            yield
        finally:
            self._take_back()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside `lent`: the caller has its turn meanwhile, as work came in that it waited for."""
        self._take_back()
        try:
            yield
        finally:
            self._lend()

    def _lend(self) -> None:
        if self._next() is None:
            return
        if self._thread is None:
            self._thread = start_thread(self._run, name="dayfly-ahead", failed=self._failed)
        with self._changed:
            self._lent = True
            self._changed.notify_all()

    def _take_back(self) -> None:
        with self._changed:
            self._lent = False
            self._changed.notify_all()
            while self._reading:
                self._changed.wait()

    def close(self) -> None:
        """Ends the thread. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _next(self) -> _Piece | None:
        """The first piece with samples that are not read yet and that has not failed."""
        pieces = self._coming.values()
        return next((one for one in pieces if one.to_read and not one.failed), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or (self._lent and self._next() is not None)):
                    self._changed.wait()
                if self._closed:
                    return
                self._reading = True
            with kept_generators():
                while self._lent and (piece := self._next()) is not None:
                    self._read(piece)
            with self._changed:
                self._reading = False
                self._changed.notify_all()

    def _read(self, piece: _Piece) -> None:
        """Reads a sample; one that fails does so again where the function reads it."""
        try:
            piece.samples.append(self._source.sample(piece.epoch, piece.to_read[0]))
        except Exception:
            piece.failed = True

    def _failed(self, error: BaseException) -> None:
        """The thread ended, which was shown: the function reads all itself."""
        with self._changed:
            self._reading = False
            self._changed.notify_all()
