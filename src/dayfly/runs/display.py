"""Displays of a run for a person: a bar on a terminal, lines otherwise, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

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

    def started(self, done: int, steps: int | None, epochs: int | None, ended: int = 0) -> None:
        """The run begins, or goes on, after `done` of the `steps` steps of all `epochs`.

        Of a script's loop nobody knows the steps, nor always the epochs: None. `ended` of them
        are over.
        """

    def steps(self, steps: int) -> None:
        """The run has so many steps from now on, as its batches have another size."""

    def spent(self, workers: int, usd: float) -> None:
        """So many functions run, and so much was spent on functions so far."""

    def bar(self, every_s: float) -> None:
        """The job asks for a progress bar; where there is none, for a line every `every_s`."""

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


@dataclass(slots=True)
class Standing:
    """Where a run stands.

    Attributes:
        steps, epochs: of the whole run; None: nobody knows.
        ended: epochs that were told of, after `at_end` steps: those of a loop are estimated by it.
        done: completed steps.
        first: completed steps when this life of the run began, `began_s`, in seconds of a clock.
        loss: of the last step, in words.
        spent: functions that run, and dollars so far, in words.
    """

    steps: int | None = None
    epochs: int | None = None
    ended: int = 0
    at_end: int = 0
    done: int = 0
    first: int = 0
    began_s: float = 0.0
    loss: str = ""
    spent: str = ""

    @property
    def epoch(self) -> str:
        """`epoch 3/10`; of a loop whose epochs nobody knows, `step 41`."""
        if self.epochs is None:
            return f"step {self.done}" if self.done else ""
        number = self.ended + 1
        if self.steps is not None:
            number = self.done * self.epochs // max(1, self.steps) + 1
        return f"epoch {min(self.epochs, number)}/{self.epochs}"

    @property
    def total(self) -> int | None:
        """Steps of the whole run, as far as they can be told from the epochs that ended."""
        if self.steps is None and self.epochs is not None and self.at_end:
            return self.at_end * self.epochs // self.ended
        return self.steps

    def end_epoch(self, number: int) -> None:
        """An epoch ended with the steps that are done."""
        self.ended, self.at_end = number, self.done

    def words(self, now_s: float) -> str:
        """`epoch 3/10 25% 85.3 steps/s ETA 0:01:12 4 workers $0.0012 loss 0.2154`."""
        taken = self.done - self.first
        speed = taken / max(1e-9, now_s - self.began_s)
        steps = self.total
        known = taken and steps is not None
        left_s = max(0, (steps or 0) - self.done) / speed if known else None
        share = "" if steps is None else f"{100 * self.done // max(1, steps)}%"
        speed = speed if taken else 0.0
        return " ".join(
            filter(None, (self.epoch, share, pace(speed, left_s), self.spent, self.loss))
        )


def pace(speed: float | None, left_s: float | None) -> str:
    """`85.3 steps/s ETA 0:01:12`; what of it is known.

    Args:
        speed: steps a second.
        left_s: seconds until the last step.
    """
    if not speed:
        return ""
    left = "" if left_s is None else f" ETA {timedelta(seconds=int(left_s))}"
    return f"{speed:.3g} steps/s{left}"


class Lines(Display):
    """A line an epoch, and one for what happens: for logs and pipes.

    Args:
        console: on which they are printed.
        now: a clock in seconds that never goes back.
    """

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._standing = Standing()
        self._every_s: float | None = None
        self._said_s = 0.0

    def bar(self, every_s: float) -> None:
        self._every_s = every_s

    def started(self, done: int, steps: int | None, epochs: int | None, ended: int = 0) -> None:
        of = "" if steps is None else f" of {steps}"
        what = "a loop" if epochs is None else f"a loop of {epochs} epochs"
        what = what if steps is None else f"{steps} steps"
        self._begin(done, steps, epochs, ended)
        self._say(f"continuing after step {done}{of}" if done else f"training {what}")

    def _begin(self, done: int, steps: int | None, epochs: int | None, ended: int) -> None:
        began_s = self._said_s = self._now()
        self._standing = Standing(steps, epochs, ended, done=done, first=done, began_s=began_s)

    def steps(self, steps: int) -> None:
        self._standing.steps = steps

    def spent(self, workers: int, usd: float) -> None:
        self._standing.spent = f"{workers} worker{'s' * (workers != 1)} ${usd:.4f}"

    def step(self, step: int, loss: float | None) -> None:
        self._note(step, loss)
        now = self._now()
        if self._every_s is not None and now >= self._said_s + self._every_s:
            self._said_s = now
            self._say(self._standing.words(now))

    def _note(self, step: int, loss: float | None) -> None:
        self._standing.done = step + 1
        self._standing.loss = f"loss {_number(loss)}"

    def epoch(self, record: Json) -> None:
        self._standing.end_epoch(record["epoch"])
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

    def preparing(self) -> None:
        self._progress.start()

    def started(self, done: int, steps: int | None, epochs: int | None, ended: int = 0) -> None:
        self._begin(done, steps, epochs, ended)
        self._standing.loss = "starting functions"
        self._progress.reset(self._task, total=steps, completed=done)  # checking is no progress
        self._update()

    def step(self, step: int, loss: float | None) -> None:
        self._note(step, loss)
        self._update()

    def steps(self, steps: int) -> None:
        super().steps(steps)
        self._progress.update(self._task, total=steps)

    def spent(self, workers: int, usd: float) -> None:
        super().spent(workers, usd)
        self._update()

    def _update(self) -> None:
        now = self._standing
        self._progress.update(
            self._task,
            total=now.total,
            completed=now.done,
            epoch=now.epoch,
            spent=now.spent,
            description=now.loss,
        )

    def finished(self) -> None:
        self._progress.stop()


class LoopBar(Bar):
    """The same of a script: the bar is `shown` once its loop takes steps, and not before."""

    shown = False

    def preparing(self) -> None:
        return None

    def started(self, done: int, steps: int | None, epochs: int | None, ended: int = 0) -> None:
        super().started(done, steps, epochs, ended)
        self.shown = True
        self._progress.start()

    def above(self, text: str) -> None:
        """Prints lines, in which functions may have set colours, above the bar."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def finished(self) -> None:
        self.shown = False
        super().finished()


class _Rate(ProgressColumn):
    """Steps a second, and the time until the last one."""

    def render(self, task: Task) -> Text:
        return Text(pace(task.speed, task.time_remaining))


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


def display_for(console: Console, bar: type[Bar] = Bar) -> Lines:
    """A bar on a terminal, of this kind; lines elsewhere."""
    return bar(console) if console.is_terminal else Lines(console)


class AboveBar:
    """Output of functions on a terminal, which a bar there makes room for.

    Args:
        stream: to which it is written as long as there is no bar, and if it is no terminal.
        display: may show a bar.
    """

    def __init__(self, stream: TextIO, display: Display) -> None:
        self._stream = stream
        self._bar = display if isinstance(display, LoopBar) and stream.isatty() else None

    @property
    def encoding(self) -> str | None:
        """Of the stream."""
        return self._stream.encoding

    def write(self, text: str) -> None:
        """Writes whole lines."""
        if self._bar is None or not self._bar.shown:
            self._stream.write(text)
        else:
            self._bar.above(text.removesuffix("\n"))

    def flush(self) -> None:
        """Flushes the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()
