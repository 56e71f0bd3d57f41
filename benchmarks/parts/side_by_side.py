"""Programs over dayfly beside the same over gloo, in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts.examples import Example
from benchmarks.parts.groups import Group, Of
from benchmarks.parts.member import DAYFLY, GLOO, Member
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.spread import columns, framed, shown, spread
from benchmarks.parts.stores import Store
from benchmarks.parts.turns import in_turns
from dayfly.closing import Closing
from dayfly.life.sessions import Session

Json = dict[str, Any]
BOTH = (DAYFLY, GLOO)


class Sides(Closing):
    """Processes for each backend; those of one sleep while the other is measured. Close it to end.

    most: processes of each backend. backends: `BOTH`, or dayfly alone, where the rows have no
    ratio.
    """

    def __init__(
        self, most: int, session: Session, store: Store, backends: Sequence[str] = BOTH
    ) -> None:
        self._session, self._store = session, store
        with ExitStack() as stack:
            self._ranks = {one: stack.enter_context(Ranks(Member, most)) for one in backends}
            self._ended = stack.pop_all()

    def measure(
        self,
        examples: Mapping[str, Example],
        processes: Sequence[int],
        rounds: int,
        seconds: float,
    ) -> list[Json]:
        """A row a number of processes and example that is for so many."""
        rows = []
        for count in processes:
            fitting = [name for name, one in examples.items() if count in one.processes]
            with ExitStack() as stack:
                groups = {
                    side: stack.enter_context(
                        Group(ranks, count, self._session, self._store if side == DAYFLY else None)
                    )
                    for side, ranks in self._ranks.items()
                    if fitting
                }
                rows += [_row(groups, count, name, rounds, seconds) for name in fitting]
        return rows

    def close(self) -> None:
        self._ended.close()


def _row(groups: Mapping[str, Group], count: int, name: str, rounds: int, seconds: float) -> Json:
    for group in groups.values():
        group.ask("make", name)
    took = in_turns(
        f"{name} on {count}",
        {side: Of(group, name) for side, group in groups.items()},
        rounds,
        seconds,
    )
    for group in groups.values():
        group.ask("drop")
    row: Json = {"example": name, "workers": count, "steps": took.steps}
    for side in groups:
        row |= {
            f"{side}_seconds": took.seconds[side],
            f"{side}_s": median(took.seconds[side]),
            f"{side}_cpu_s": median(took.cpu_seconds[side]),
        }
    if GLOO in groups:
        row |= spread("ratio", took.ratios(DAYFLY, GLOO)) | {"losses_apart": took.losses_apart}
    return row


def table(rows: Sequence[Json], heading: str, examples: Mapping[str, Example]) -> Table:
    """For a person."""
    made = columns(
        ["example"], ["n", "dayfly ms", "gloo ms", "ratio", "least to most", "cpu ms", "gloo's"]
    )
    for row in rows:
        made.add_row(
            row["example"],
            str(row["workers"]),
            f"{1e3 * row['dayfly_s']:.4g}",
            f"{1e3 * row['gloo_s']:.4g}",
            *shown(row, "ratio", 2),
            f"{1e3 * row['dayfly_cpu_s']:.4g}",
            f"{1e3 * row['gloo_cpu_s']:.4g}",
        )
    measured = {row["example"] for row in rows}
    return framed(
        heading,
        made,
        "ratio: dayfly's time / gloo's of a round; below 1, dayfly is faster",
        "cpu: processor time of a process, a step",
        *(f"{name}: {one.what}" for name, one in examples.items() if name in measured),
    )
