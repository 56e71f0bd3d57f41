"""Displays of a run for a person: a bar on a terminal, lines otherwise, on standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
)
from rich.text import Text

Json = Mapping[str, Any]


class Display:
    """Shows a run to a person while it goes on; by itself it shows nothing."""

    def preparing(self) -> None:
        """The request is being checked."""

    def begun(self, run_id: str, directory: Path) -> None:
        """There is a run from now on, whatever becomes of its request."""

    def started(self, done: int, steps: int, epochs: int) -> None:
        """The run begins, or goes on, after `done` of the `steps` steps of all `epochs`."""

    def spent(self, workers: int, usd: float) -> None:
        """So many functions run, and so much was spent on functions so far."""

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


class StandardError(Console):
    """The console for people. That nobody reads any more is no reason to end a run."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Say nothing from now on; rich would end the process."""
        self.quiet = True


class Lines(Display):
    """A line an epoch, and one for what happens: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, done: int, steps: int, epochs: int) -> None:
        first = f"continuing after step {done} of {steps}" if done else f"training {steps} steps"
        self._say(first)

    def epoch(self, record: Json) -> None:
        self._say(epoch_line(record))

    def note(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar(Lines):
    """A progress bar over the steps; epochs and events are lines above it.

    epoch 3/10 ━━━━━━━━ 25% 85.3 steps/s ETA 0:01:12 4 workers $0.0012 loss 0.2154
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.fields[epoch]}"),
            BarColumn(bar_width=8),
            TaskProgressColumn(),
            _Rate(),
            TextColumn("{task.fields[spent]}"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("checking the job", total=None, epoch="", spent="")
        self._steps, self._epochs = 1, 1

    def preparing(self) -> None:
        self._progress.start()

    def started(self, done: int, steps: int, epochs: int) -> None:
        self._steps, self._epochs = max(1, steps), epochs
        self._update(done, "starting functions")
        self._progress.reset(self._task, total=steps, completed=done)  # checking is no progress

    def step(self, step: int, loss: float | None) -> None:
        shown = "not a number" if loss is None else f"{loss:.4f}"
        self._update(step, f"loss {shown}")
        self._progress.update(self._task, completed=step + 1)

    def spent(self, workers: int, usd: float) -> None:
        several = "s" * (workers != 1)
        self._progress.update(self._task, spent=f"{workers} worker{several} ${usd:.4f}")

    def _update(self, step: int, text: str) -> None:
        epoch = min(self._epochs, step * self._epochs // self._steps + 1)
        self._progress.update(self._task, epoch=f"epoch {epoch}/{self._epochs}", description=text)

    def finished(self) -> None:
        self._progress.stop()


class _Rate(ProgressColumn):
    """Steps a second, and the time until the last one."""

    def render(self, task: Task) -> Text:
        speed, left = task.speed, task.time_remaining
        if not speed or left is None:
            return Text("")
        return Text(f"{speed:.3g} steps/s ETA {timedelta(seconds=int(left))}")


def epoch_line(record: Json) -> str:
    """`epoch 3: loss 0.2154, validation loss 0.1987, accuracy 96.7%`, with the job's metrics."""
    parts = [f"epoch {record['epoch']}: loss {_number(record['train_loss'])}"]
    if record.get("val_loss") is not None:
        parts.append(f"validation loss {_number(record['val_loss'])}")
    if record.get("val_accuracy") is not None:
        parts.append(f"accuracy {record['val_accuracy']:.1%}")
    known = {"epoch", "train_loss", "val_loss", "val_accuracy"}
    more = ((name, value) for name, value in record.items() if name not in known)
    parts += [f"{name} {_number(value, small=_is_rate(name))}" for name, value in more]
    return ", ".join(parts)


def _is_rate(name: str) -> bool:
    """Whether it is a learning rate."""
    return name == "lr" or name.startswith("lr-")


def _number(value: float | None, *, small: bool = False) -> str:
    """small: it may be far below 1."""
    if value is None:
        return "not a number"
    return f"{value:.3g}" if small else f"{value:.4f}"


def display_for(console: Console) -> Lines:
    """A bar on a terminal, lines elsewhere."""
    return Bar(console) if console.is_terminal else Lines(console)
