"""What happened in a soak, in numbers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.runs import small

#: In the order of the table; a name that does not occur counts nothing.
ROWS = (
    ("runs", "runs"),
    ("equal", "  with the bits of the undisturbed one"),
    ("deaths", "deaths, of all kinds"),
    ("function", "  functions, kill -9 from outside"),
    ("zygote", "  zygotes, kill -9 from outside"),
    ("coordinator", "  coordinators, kill -9 from outside"),
    ("injected", "  workers, at places in steps"),
    ("injected coordinator", "  coordinators, at places in steps"),
    ("lifetime", "  functions, at the end of their lifetime"),
    ("stop", "orderly stops (TERM)"),
    ("hand-over", "hand-overs"),
    ("resume", "resumes"),
    ("begun again", "runs begun again, as they had died before they were one"),
    ("restart", "restarts that the runs report"),
    ("redone", "steps whose gradient a worker computed again"),
)
DEATHS = ("function", "zygote", "coordinator", "injected", "injected coordinator", "lifetime")


@dataclass(slots=True)
class Summary:
    """Counts by the names in `ROWS`; failures: what should not have been, in words."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def deaths(self) -> int:
        """Of functions, zygotes and coordinators, whatever killed them."""
        return sum(self.counts[name] for name in DEATHS)

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
    for event in small.events(run, "coordinator"):
        if event["kind"] == "ended":
            counts["restart"] += event["death"]
            counts["lifetime"] += event["used"]["outcome"] == "lifetime"
            counts["hand-over"] += (event["result"] or {}).get("status") == "handed over"
    counts["redone"] = json.loads((run / "history.json").read_text())["redone_steps"]
    return counts
