"""What came of a run, as its JSON line says it, and results as files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from dayfly.dataclass_json import Matches, Real, dump
from dayfly.wire.stores.base import Store

#: How a run is, or ended.
Status = Annotated[
    str,
    Matches(
        "running|done|stopped|failed|handing over|simulated",
        "running, done, stopped, failed or handing over",
    ),
]
#: Of a run whose coordinator came to the end of its lifetime: another one is to go on with it.
HANDING_OVER = "handing over"
#: Reasons for a stop: a cap that is reached.
MAX_COST, MAX_TIME = "max-cost", "max-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run, as its JSON line has it. None: never measured.

    Attributes:
        run_id: None if nothing began.
        status: running, done, stopped, failed, handing over or simulated.
        error: why it failed, else None.
        epochs: passes over the data that were completed.
        steps: steps that were completed.
        workers: functions at once, at the end.
        restarts: deaths; planned hand-overs are not counted.
        train_loss: of the last epoch.
        val_loss: of the last epoch.
        val_accuracy: of the last epoch, 0 to 1.
        startup_s: start-up time: from the command to the first step, over all lives of the
            coordinator. None: a script's steps are its own, or an earlier version ran it.
        train_s: training time: from the first step of each life to the end of its last step, or of
            its last validation. None as above.
        total_s: total time: from the command to its end, over all lives of the coordinator.
        wall_s: deprecated name of total_s.
        step_s: the median step.
        billed_s: billed seconds of all functions.
        gb_s: GB-seconds of all functions.
        cost_usd: dollars under `price_list`.
        price_list: the platform whose prices count.
        bytes_up: of all workers' messages.
        bytes_down: of all workers' messages.
        requests: of all workers to the channel.
        predicted_step_s: None without a plan.
        predicted_cost_usd: None without a plan.
        stop_reason: what ended it before its last epoch: `target-accuracy`, `target-loss`,
            `early-stopping`, `max-cost`, `max-time` or what a callback gave; `signal`, if somebody
            asked for it; else None.
        best_epoch: whose weights were kept as the best; None: none was to be kept.
        virtual_workers: leaves of a batch; None: its bits depend on the number of workers.
    """

    run_id: str | None
    status: Status
    error: str | None = None
    epochs: int = 0
    steps: int = 0
    workers: int = 0
    restarts: int = 0
    train_loss: Real | None = None
    val_loss: Real | None = None
    val_accuracy: float | None = None
    startup_s: float | None = None
    train_s: float | None = None
    total_s: float = 0.0
    wall_s: float = 0.0
    step_s: float | None = None
    billed_s: float = 0.0
    gb_s: float = 0.0
    cost_usd: float = 0.0
    price_list: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    requests: int = 0
    predicted_step_s: float | None = None
    predicted_cost_usd: float | None = None
    stop_reason: str | None = None
    best_epoch: int | None = None
    virtual_workers: int | None = None

    def __post_init__(self) -> None:
        if not self.total_s:  # an earlier version wrote it
            object.__setattr__(self, "total_s", self.wall_s)

    @property
    def has_weights(self) -> bool:
        """Whether it ended as it was asked to, done or at a cap, and so leaves its weights."""
        return self.status == "done" or self.stop_reason in (MAX_COST, MAX_TIME)

    def line(self) -> str:
        """The JSON object, on one line."""
        return json.dumps(dump(self), allow_nan=False)


def write_json(store: Store, name: str, tree: Any) -> None:
    """Write a result for people and programs to read; numbers that are none become null."""
    store.put(name, json.dumps(dump(tree), indent=1, allow_nan=False).encode())
