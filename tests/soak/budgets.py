"""Runs with budgets, drawn at random: what is planned, and whether a run kept within its budget."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from dayfly.catalogue.lookup import Catalogue
from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.soak import processes
from tests.soak.one_run import Disturbance, OneRun

#: Price list of runs that name none.
_PRICES = "aws-lambda"
#: For how many seconds of all functions a budget pays: some for no start at all.
_PAID_S = (1.0, 14.0)
#: Deaths are planned in the first steps of a run, which most runs come to.
_FIRST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """A run that is to keep within a budget.

    Args:
        number: of the run.
        budget_usd: that it may cost.
        settings: of the run, with that budget.
        job: arguments of `job.job`.
        faults: deaths of workers and of the coordinator.
    """

    number: int
    budget_usd: float
    settings: Mapping[str, Any]
    job: Mapping[str, Any]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        workers, lifetime_s = self.settings["workers"], self.settings["lifetime_s"]
        return f"run {self.number}: {workers} workers of {lifetime_s:g} s, ${self.budget_usd:.6f}"


def budgets(seed: int) -> Iterator[Budget]:
    """Yields runs without end."""
    return (budget(seed, number) for number in count())


def budget(seed: int, number: int) -> Budget:
    """Returns the run of that number, which follows from the seed."""
    random = np.random.default_rng([seed, number])
    workers = int(random.integers(1, 4))
    usd_per_s = workers * _usd_per_s()
    budget_usd = float(random.uniform(*_PAID_S)) * usd_per_s
    step_s = float(random.uniform(0.05, 0.5))
    steps = random.choice(_FIRST_STEPS, int(random.integers(4)), replace=False).tolist()
    places = random.choice(["compute", "computed", "reduced", "applied"], len(steps)).tolist()
    ranks = random.integers(workers, size=len(steps)).tolist()
    faults = list(map(Fault, ranks, steps, places))
    if random.random() < 0.5:
        faults.append(Fault(COORDINATOR, int(random.integers(_FIRST_STEPS)), "step"))
    return Budget(
        number=number,
        budget_usd=budget_usd,
        settings={
            "workers": workers,
            "max_cost_usd": budget_usd,
            "lifetime_s": float(random.choice([3.0, 6.0, 900.0])),
            "checkpoint_every_s": float(random.choice([0.5, 60.0])),
            "log_budget_mib": 1,
        },
        job={"sample_s": step_s * workers / small.BATCH},
        faults=tuple(faults),
    )


def _usd_per_s() -> float:
    """Of a function without a memory limit."""
    return Catalogue().platform(_PRICES).usd_per_s(None)


class Watch(Disturbance):
    """Looks how long the functions of a run live, whatever the run says itself."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def look(self, process: subprocess.Popen[bytes], *, stepped: bool, now: float) -> None:
        for name, pid in processes.functions(process.pid).items():
            if name != "zygote":
                self._first.setdefault(pid, now)
                self._last[pid] = now

    @property
    def seen_s(self) -> float:
        """Seconds that all functions lived together, as far as they were seen."""
        return sum(last - self._first[pid] for pid, last in self._last.items())


def wrong_with(plan: Budget, one: OneRun, watch: Watch) -> str | None:
    """Returns what is wrong with a run that is over, if something is."""
    if not one.directory.exists():  # refused before anything started
        return None if "--max-cost" in one.log.read_text() else one.log.read_text()
    weights = one.directory / "weights.safetensors"
    if not weights.is_file():
        return f"it has no weights, and said: {one.log.read_text()[-500:]}"
    if not all(np.isfinite(tensor).all() for tensor in load_file(weights).values()):
        return "its weights are not finite"
    cost_usd = json.loads((one.directory / "bill.json").read_text())["cost_usd"]
    seen_usd = watch.seen_s * _usd_per_s()
    for of, usd in (("its bill says", cost_usd), ("its functions lived for", seen_usd)):
        if usd > plan.budget_usd:
            return f"{of} ${usd:.6f}, which is more than ${plan.budget_usd:.6f}"
    return None


def afforded(directory: Path) -> bool:
    """Returns whether the run took a step."""
    return bool(json.loads((directory / "history.json").read_text())["step_loss"])
