"""`dayfly bench scaling`: its stalls are between the steps around each change."""

from __future__ import annotations

import pytest
from benchmarks.scaling import run, stalls, table

from dayfly.errors import RequestError, RunFailed
from dayfly.runs.events import Events
from dayfly.specs.events import GenerationBegun, StepTold


def step(number: int, began: float) -> StepTold:
    return StepTold(
        at=began + 0.5, began=began, step=number, loss=1.0, computed=True, step_s=0.5, spans={}
    )


BEGUN = GenerationBegun(at=0.0, number=0, first_step=0, workers=2)
CHANGED = GenerationBegun(at=2.0, number=1, first_step=2, workers=3, request=0, changes="workers 3")


def test_a_stall_is_between_the_steps_around_a_change() -> None:
    told = (step(0, 1.0), step(1, 1.5), step(2, 2.25))
    (found,) = stalls(Events(coordinator=(BEGUN, CHANGED), workers={0: told}))
    assert (found.stall_s, found.step_s) == (0.25, 0.5)


def test_a_step_that_is_done_twice_is_no_measurement() -> None:
    with pytest.raises(RunFailed, match="step 1 was computed twice"):
        stalls(Events(workers={0: (step(1, 1.0), step(1, 2.0))}))


@pytest.mark.parametrize("asked", [["--to", "2"], ["--mb", "0"], ["--changes", "0"]])
def test_what_cannot_be_measured_is_refused(asked: list[str]) -> None:
    with pytest.raises(RequestError):
        run(asked)


@pytest.mark.long
def test_a_short_one() -> None:
    result = run(["--changes", "1", "--mb", "1"])
    assert 0 < result["stall_s"] < 60
    assert result["workers"] == [2, 3]
    assert table(result).row_count == 2
