"""The usual callbacks: early stopping, weights of every n epochs, the learning rate."""

from __future__ import annotations

import math
from typing import Any

from dayfly.callbacks.base import Callback, RunView
from dayfly.callbacks.monitor import Monitor
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

#: The stop reason of `EarlyStopping`.
EARLY_STOPPING = "early-stopping"


@suggests
class EarlyStopping(Callback):
    """Ends a run, done, once a value has not improved for `patience` validations.

    Args:
        monitor: a value of the history.
        patience: validations without an improvement, from 1.
        mode: `min` or `max`; None: that of a loss or of `val_accuracy`.
        min_delta: least improvement that counts.
        optional: see `Callback`.

    Raises:
        RequestError: a value that cannot be meant.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 3,
        mode: str | None = None,
        min_delta: float = 0.0,
        *,
        optional: bool = False,
    ) -> None:
        super().__init__(optional=optional)
        self.monitor = Monitor.of(monitor, mode)
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
            raise RequestError(f"patience {patience!r}: give a number of validations from 1")
        if not isinstance(min_delta, (int, float)) or not 0 <= min_delta < math.inf:
            raise RequestError(f"min_delta {min_delta!r}: give a number from 0")
        self.patience, self.min_delta = patience, min_delta

    def __repr__(self) -> str:
        name, mode = self.monitor.name, self.monitor.mode
        return f"EarlyStopping({name!r}, {self.patience}, {mode!r}, {self.min_delta!r})"

    def on_epoch_end(self, run: RunView, record: dict[str, Any]) -> None:
        every = 1 if self.monitor.of_training else run.job.validate_every
        _, since = self.monitor.best(run.history, self.min_delta, every)
        if since >= self.patience:
            run.stop(EARLY_STOPPING)


@suggests
class ModelCheckpoint(Callback):
    """Keeps the weights of every n-th epoch, as `kept/epoch-N.safetensors`.

    The best ones are kept by `keep="best"`.

    Args:
        every_n_epochs: from 1.
        optional: see `Callback`.

    Raises:
        RequestError: `every_n_epochs` is no whole number from 1.
    """

    def __init__(self, every_n_epochs: int = 1, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        whole = isinstance(every_n_epochs, int) and not isinstance(every_n_epochs, bool)
        if not whole or every_n_epochs < 1:
            raise RequestError(f"every_n_epochs {every_n_epochs!r}: give a whole number from 1")
        self.every_n_epochs = every_n_epochs

    def on_epoch_end(self, run: RunView, record: dict[str, Any]) -> None:
        if record["epoch"] % self.every_n_epochs == 0:
            run.keep(f"epoch-{record['epoch']}")


@suggests
class ProgressBar(Callback):
    """Shows how far a run is: epoch n/N, steps a second, time left, workers and dollars so far.

    On a terminal that is the bar that is there anyway; in logs and pipes, a line every few seconds.
    `dayfly.train(progress=False)` shows nothing of either.

    Args:
        every_s: seconds between two lines, above 0.
        optional: see `Callback`.

    Raises:
        RequestError: `every_s` is no number above 0.
    """

    def __init__(self, every_s: float = 10.0, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        if not isinstance(every_s, (int, float)) or not 0 < every_s < math.inf:
            raise RequestError(f"every_s {every_s!r}: give a number of seconds above 0")
        self.every_s = every_s


@suggests
class LearningRateMonitor(Callback):
    """Has the learning rate of each epoch's last step in the history, as `lr`.

    Of an optimizer with several groups of parameters it is the first one's; the others are
    `lr-1`, `lr-2` and so on.
    """
