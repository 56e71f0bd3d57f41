"""The page's section on a pipeline: its stages, its bubble, and the picture of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from dayfly.runs.report import bubbles, gantt
from dayfly.runs.report.markup import text
from dayfly.runs.report.passes import Work, works
from dayfly.runs.report.reading import RunFiles
from dayfly.runs.report.stages import Stages


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A run whose model was cut. works: what its workers told of their steps, so far."""

    stages: Stages
    works: Sequence[Work]

    @classmethod
    def of(cls, run: RunFiles) -> Self | None:
        """None if the model was not cut.

        Where the settings leave the number of micro-batches to the job, the passes tell it. Workers
        of an earlier life that had more of them are left out.
        """
        stages = Stages.of(run.record.settings)
        if stages is None:
            return None
        now = stages.count * stages.replicas
        told = works({rank: of for rank, of in run.events.workers.items() if rank < now})
        if not stages.micro_batches:
            numbers = [number for work in told for _, number, _, _ in work.passes]
            stages = replace(stages, micro_batches=max(numbers, default=0) + 1)
        return cls(stages, told)

    def words(self) -> str | None:
        """Which stage is the slowest, and the bubble; None before a step was told."""
        times = bubbles.by_stage(self.works, self.stages)
        return bubbles.words(times, self.stages) if times else None

    def tiles(self) -> list[tuple[str, str, str]]:
        """The form, and the bubble beside the ideal one."""
        form, _, more = self.stages.form().partition(", ")
        tiles = [("pipeline", form, more)]
        if times := bubbles.by_stage(self.works, self.stages):
            ideal = f"of a step; {self.stages.ideal_bubble:.1%} is ideal"
            tiles.append(("bubble", f"{bubbles.mean_bubble(times):.1%}", ideal))
        return tiles

    def section(self) -> str:
        """Words, the picture of the median step, and a table by stage."""
        times = bubbles.by_stage(self.works, self.stages)
        if not times:
            content = '<p class="note">No step has been reported yet.</p>'
        else:
            content = (
                f"<p>{text(bubbles.words(times, self.stages))}</p>"
                f"{gantt.chart(gantt.median_step(self.works), self.stages)}"
                f"{bubbles.stage_table(times, self.stages)}"
                f'<p class="note">{_NOTE}</p>'
            )
        return (
            '<section aria-labelledby="pipeline-title"><h2 id="pipeline-title">Pipeline</h2>'
            f"{content}</section>\n\n"
        )


_NOTE = (
    "The bubble is the share of a step in which a worker neither computes a pass nor applies the "
    "sum. In it, bare transfer is when something of the worker&#x27;s goes up or down, waiting is "
    "the rest. Ideal: (K &minus; 1) / (M + K &minus; 1) for K equal stages and M micro-batches, of "
    "fill-drain and 1F1B (GPipe, section 2.3). Steps taken from the log do not count."
)
