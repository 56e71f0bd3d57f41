"""Outputs and targets of validation on their way to one worker, the root, which has the metrics.

    rank 1   |evaluate|hand in|                 | sum of all: the metrics are in it
    root     |evaluate        |collect|metrics  | sum of all | drop what was handed in

Nothing is dropped before the metrics are stored with the sum, so whoever dies and starts again
finds what it needs: the root what was handed in, all others the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from dayfly.runs.protocols.base import Station
from dayfly.training.rows import Rows
from dayfly.wire.collectives.gather import collect, hand_in, handed_in
from dayfly.wire.execution import message_key, wait_patiently
from dayfly.wire.keys import Key
from dayfly.wire.schedule import Span


class Gathering:
    """One validation's rows on their way to `root`; all workers name the parts alike."""

    def __init__(self, station: Station, root: int, step: int) -> None:
        self._station = station
        self._root = root
        self._step = step
        self._chunk = max(1, station.channel.abilities.chunk_bytes)
        self._expected: list[Key] = []

    def hand_in(self, number: int, rows: Rows, samples: range) -> None:
        """Sends rows of some samples, this worker's part of the gathering's round `number`."""
        here = self._station
        for leaf, own in enumerate(rows.bytes_of(samples) if samples else ()):
            schedule = hand_in(here.task.rank, self._root, own.numel(), chunk=self._chunk)
            if len(schedule):
                here.engine.run(schedule, own, self._step, _operation(number, leaf))

    def collect(self, number: int, rows: Rows, parts: Mapping[int, range]) -> None:
        """Receives parts of a round. rows: of all samples. parts: each rank's samples."""
        for operation, whole, spans in self._spans(number, rows, parts):
            schedule = collect(self._root, spans, chunk=self._chunk)
            if len(schedule):
                self._station.engine.run(schedule, whole, self._step, operation)
        self.expect(number, rows, parts)

    def expect(self, number: int, rows: Rows, parts: Mapping[int, range]) -> None:
        """Notes parts of a round as messages that are to be dropped in the end."""
        for operation, _, spans in self._spans(number, rows, parts):
            names = handed_in(self._root, spans, chunk=self._chunk)
            self._expected += [message_key(self._step, operation, name) for name in names]

    def _spans(
        self, number: int, rows: Rows, parts: Mapping[int, range]
    ) -> Iterator[tuple[str, torch.Tensor, dict[int, Span]]]:
        """Of each tensor: its operation, its bytes, and where in them each rank's part is."""
        for leaf, whole in enumerate(rows.bytes_of(rows.samples)):
            row = whole.numel() // len(rows.samples)
            spans = {
                rank: Span(row * samples.start, row * samples.stop)
                for rank, samples in parts.items()
            }
            yield _operation(number, leaf), whole, spans

    def keep_form(self, rows: Rows) -> None:
        """Keeps the form of the rows for another attempt of the root."""
        key = self._form_key()
        self._station.channel.put_bytes(key, rows.form())
        self._expected.append(key)

    def take_form(self, rows: Rows) -> None:
        """Takes the form that an earlier attempt of the root kept."""
        here, key = self._station, self._form_key()
        form = wait_patiently(
            lambda some_s: here.channel.get_bytes(key, some_s),
            here.task.wait_timeout_s,
            here.engine.check,
            f"rank {here.task.rank} for the {key}",
        )
        rows.take_form(form)
        self._expected.append(key)

    def drop(self) -> None:
        """Removes what was handed in, once the metrics are stored."""
        self._station.channel.drop(self._expected)
        self._expected = []

    def _form_key(self) -> Key:
        return Key(self._step, "rows-form", self._root, self._root)


def _operation(number: int, leaf: int) -> str:
    return f"rows-{number}-{leaf}"
