"""What happened in a soak, in numbers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dayfly.training.order import Epochs
from dayfly.wire.leaves import leaves_of
from tests.runs import small
from tests.soak.plan import LEAVES

#: In the order of the table; a name that does not occur counts nothing.
ROWS = (
    ("runs", "runs"),
    ("equal", "  with the bits of the undisturbed one"),
    ("within", "  within their budget, and with weights"),
    ("afforded", "    after a step at least"),
    ("refused", "  refused, as their budget pays for no start"),
    ("all", "  with a resize, a move, an outage, and deaths of workers and coordinators"),
    ("events", "events, one after another in one run"),
    ("deaths", "deaths, of all kinds"),
    ("function", "  functions, kill -9 from outside"),
    ("zygote", "  zygotes, kill -9 from outside"),
    ("coordinator", "  coordinators, kill -9 from outside"),
    ("injected", "  workers, at fault points"),
    ("injected coordinator", "  coordinators, at fault points"),
    ("lifetime", "  functions, at the end of their lifetime"),
    ("stop", "orderly stops (TERM)"),
    ("asked", "requests for another plan: channel, memory, with virtual workers their number"),
    ("change", "changes of the plan that took place"),
    ("resize", "  of the number of workers"),
    ("move", "  of the channel"),
    ("outage", "outages of Redis"),
    ("hand-over", "hand-overs of single workers"),
    ("renewal", "hand-overs to successors of all workers, who were warm"),
    ("resume", "resumes"),
    ("begun again", "runs begun again, as they had died before they were one"),
    ("restart", "restarts that the runs report"),
    ("redone", "steps whose gradient a worker computed again"),
)
DEATHS = ("function", "zygote", "coordinator", "injected", "injected coordinator", "lifetime")
#: What a run has all of, each in one of its forms.
_ALL = (
    *(("resize",), ("move",), ("outage",)),
    *(("function", "injected"), ("coordinator", "injected coordinator")),
)


@dataclass(slots=True)
class Summary:
    """Counts by the names in `ROWS`; failures: what should not have been, in words."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def deaths(self) -> int:
        """Of functions, zygotes and coordinators, whatever killed them."""
        return sum(self.counts[name] for name in DEATHS)

    @property
    def has_all(self) -> bool:
        """Whether everything happened that is done to runs: in one, if these are one's counts."""
        return all(any(self.counts[name] for name in names) for names in _ALL)

    def add(self, other: Summary) -> None:
        """Count what another one counted, too."""
        self.counts += other.counts
        self.failures += other.failures

    def table(self) -> str:
        """For people, a line a row."""
        counts = {**self.counts, "deaths": self.deaths}
        lines = [f"{counts.get(name, 0):6}  {text}" for name, text in ROWS]
        return "\n".join([*lines, *self.failures])


def of_run(run: Path) -> Counter[str]:
    """What the directory of a run that is done tells."""
    counts: Counter[str] = Counter()
    workers = None
    for event in small.events(run, "coordinator"):
        if event["kind"] == "ended":
            counts["restart"] += event["death"]
            counts["lifetime"] += event["used"]["outcome"] == "lifetime"
            counts["hand-over"] += (event["result"] or {}).get("status") == "handed over"
        elif event["kind"] == "generation":
            counts["change"] += event["request"] is not None
            counts["resize"] += event["workers"] != (workers or event["workers"])
            counts["move"] += "--channel" in (event.get("changes") or "")
            workers = event["workers"]
    counts["redone"] = json.loads((run / "history.json").read_text())["redone_steps"]
    return counts


def first_difference(run: Path, other: Path, steps_an_epoch: int) -> tuple[str, range] | None:
    """Returns what differs first between two runs, by their histories, and in which steps; None:
    nothing does."""
    one, two = (json.loads((each / "history.json").read_text()) for each in (run, other))
    for step, losses in enumerate(zip(one["step_loss"], two["step_loss"], strict=False)):
        if losses[0] != losses[1] and None not in losses:  # a killed worker's report may be lost
            return f"the loss of step {step} differs: {losses}", range(step, step + 1)
    for number, records in enumerate(zip(one["epochs"], two["epochs"], strict=False)):
        if records[0] != records[1]:
            steps = range(number * steps_an_epoch, (number + 1) * steps_an_epoch)
            return f"epoch {number + 1} differs: {records}", steps
    return None


def not_once(run: Path) -> str | None:
    """Whether an epoch has a sample twice, or lacks one, by the steps that workers told of.

    A killed worker's last report may be lost; a step that any worker took has all contributions.
    """
    told = {
        event["step"]
        for file in (run / "events").glob("worker-*.jsonl")
        for event in small.events(run, file.stem)
        if event["kind"] == "step"
    }
    begun = [one for one in small.events(run, "coordinator") if one["kind"] == "generation"]
    first_steps = [one["first_step"] for one in begun]
    trained = small.STEPS_AN_EPOCH * small.BATCH
    epochs = Epochs(trained, small.BATCH, seed=0)
    whole = json.loads((run / "history.json").read_text())
    seen: dict[int, Counter[int]] = {}
    for step in range(len(whole["epochs"]) * small.STEPS_AN_EPOCH):
        workers = [
            one["workers"] for one, first in zip(begun, first_steps, strict=True) if first <= step
        ][-1]
        if step not in told:
            return f"no worker told of step {step}"
        for rank in range(workers):
            leaves = leaves_of(rank, workers, LEAVES)
            (its,) = epochs.slices(range(step, step + 1), leaves.start, LEAVES, len(leaves))
            seen.setdefault(epochs.epoch(step), Counter()).update(its.tolist())
    wrong = [epoch for epoch, its in seen.items() if its != Counter(range(trained))]
    return f"epochs {wrong} do not have each sample once" if wrong else None
