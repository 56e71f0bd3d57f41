"""What shows a run to a person while it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

Json = Mapping[str, Any]


class Display(Protocol):
    """Shows a run to a person while it goes on."""

    def preparing(self) -> None:
        """The request is being checked."""

    def begun(self, run_id: str, directory: Path) -> None:
        """There is a run from now on, whatever becomes of its request."""

    def started(self, done: int, steps: int) -> None:
        """The run begins, or goes on, after `done` of `steps` steps."""

    def step(self, step: int, loss: float | None) -> None:
        """A step is done."""

    def epoch(self, record: Json) -> None:
        """An epoch is done."""

    def note(self, text: str) -> None:
        """Something that a person wants to know happened: a death, a hand-over."""

    def finished(self) -> None:
        """The run is over."""


@contextmanager
def shown(display: Display) -> Iterator[None]:
    """While a request is checked, and its run goes on."""
    display.preparing()
    try:
        yield
    finally:
        display.finished()
