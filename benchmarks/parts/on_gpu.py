"""DDP and FSDP2 with several processes on one GPU, beside gloo where gloo can do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.parts.examples import DEVICE_EXAMPLES, DEVICE_SAMPLES
from benchmarks.parts.groups import Group
from benchmarks.parts.member import DAYFLY, Member
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.side_by_side import BOTH, Sides
from benchmarks.parts.spread import columns, framed, number, say
from benchmarks.parts.stores import Store
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session

Json = dict[str, Any]


def measure(
    session: Session,
    store: Store,
    processes: Sequence[int],
    rounds: int,
    seconds: float,
    device: str = "cuda",
) -> list[Json]:
    """A row an example and number of processes, with samples a second of all of them.

    `gloo_error` is what gloo said, where it cannot carry such tensors; None where it can.
    """
    examples = DEVICE_EXAMPLES[device]
    errors = {name: _gloo_error(session, name, min(processes)) for name in examples}
    rows = []
    for backends in (BOTH, (DAYFLY,)):
        fit = {
            name: one
            for name, one in examples.items()
            if (errors[name] is None) == (backends == BOTH)
        }
        if fit:
            with Sides(max(processes), session, store, backends) as sides:
                rows += sides.measure(fit, processes, rounds, seconds)
    for row in rows:
        row["gloo_error"] = errors[row["example"]]
        for side in BOTH:
            took_s = row.get(f"{side}_s")
            samples = DEVICE_SAMPLES[device] * row["workers"]
            row[f"{side}_samples_per_s"] = None if took_s is None else samples / took_s
    return rows


def _gloo_error(session: Session, name: str, count: int) -> str | None:
    """What gloo says to one step of an example, if it cannot."""
    with Ranks(Member, count) as ranks:
        try:
            with Group(ranks, count, session, None) as group:
                group.ask("make", name)
                group.take(name, 1)
        except RunFailed as error:
            say(f"{name} over gloo is left out: {error}")
            return str(error)
    return None


def table(rows: Sequence[Json], rounds: int) -> Table:
    """For a person."""
    made = columns(["example"], ["n", "samples/s", "gloo samples/s", "time / gloo's"])
    for row in rows:
        made.add_row(
            row["example"],
            str(row["workers"]),
            f"{row['dayfly_samples_per_s']:.4g}",
            number(row["gloo_samples_per_s"], 0),
            number(row.get("ratio"), 2),
        )
    return framed(f"several processes on one device, median of {rounds} rounds", made)
