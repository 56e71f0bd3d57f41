"""The picture of one step: which step, which workers, numbers in passes, and its size."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from dayfly.runs.report import pipeline
from dayfly.runs.report.spans import StepWork
from dayfly.runs.report.stages import Stages
from tests.report.made_up import settings_of, works
from tests.report.pipelines import Made


def work(worker: int, step: int, length_ms: float, generation: int = 0) -> StepWork:
    return StepWork(
        worker=worker, key=(generation, step), began_s=100.0, length_ms=length_ms, passes=()
    )


def test_the_median_step_of_those_that_are_whole() -> None:
    told = [work(0, n, ms) for n, ms in enumerate((50.0, 10.0, 30.0, 99.0))]
    told += [work(1, n, ms) for n, ms in enumerate((5.0, 20.0, 60.0))]
    # Longest of both: 50, 20, 60. Step 3 was told by one worker only.
    assert pipeline.median_step(told) == [told[0], told[4]]
    assert pipeline.median_step([work(0, 3, 1.0, 0), work(0, 3, 2.0, 1)])[0].key == (0, 3)
    assert pipeline.median_step([]) == []


def step_of(made: Made) -> tuple[list[StepWork], Stages]:
    stages = Stages.of(settings_of(made.settings))
    assert stages is not None
    ranks = range(stages.count * stages.replicas)
    told = {rank: [made.record(100.0, 0, stages.stage_of(rank))] for rank in ranks}
    return pipeline.median_step(works(told)), stages


def drawing(chart: str) -> ET.Element:
    found = re.search(r'<svg class="drawing".*?</svg>', chart)
    assert found is not None
    return ET.fromstring(found.group())


def test_every_pass_is_drawn_where_it_was() -> None:
    made = Made(replicas=2, transfer_ms=6.0, apply_ms=8.0)
    step, stages = step_of(made)
    chart = pipeline.chart(step, stages)
    root = drawing(chart)
    rects = root.findall("rect")
    assert len(rects) == 6 * 2 * 4
    assert {one.get("class") for one in rects} == {"forward", "backward"}
    assert [one.findtext("title") for one in rects[:2]] == [
        "forward of micro-batch 0, 10 ms, stage 0, replica 0 (worker 0)",
        "forward of micro-batch 1, 10 ms, stage 0, replica 0 (worker 0)",
    ]
    assert [one.text for one in root.findall("text") if one.get("class") == "of-backward"] == (
        ["0", "1", "2", "3"] * 6
    )
    # 332 ms are as wide as the picture without its margin.
    across = float(root.get("width", "nan")) - 12
    assert [round(float(one.get("x", "nan")) / across * 332) for one in rects[:8]] == [
        *(0, 10, 20, 30),
        *(184, 224, 264, 304),
    ]
    assert [name in chart for name in ("stage 0", "replica 1", "layers 4 to 8, 2048 MiB")] == [
        True
    ] * 3
    assert "left out" not in chart


def test_no_time_is_written_over_the_right_edge() -> None:
    for apply_ms in range(0, 50, 2):
        step, stages = step_of(Made(apply_ms=float(apply_ms)))
        root = drawing(pipeline.chart(step, stages))
        times = [one for one in root.findall("text") if (one.text or "").endswith(" ms")]
        assert len(times) > 4
        for one in times:
            ends = float(one.get("x", "nan")) + 7 * len(one.text or "")
            assert ends <= float(root.get("width", "nan")), (apply_ms, one.text)


def test_replicas_are_left_out_before_there_are_too_many_passes() -> None:
    made = Made(replicas=16, micro_batches=64)
    step, stages = step_of(made)
    chart = pipeline.chart(step, stages)
    # 3 stages of 128 passes each: 7 replicas are 2688 of them.
    assert len(drawing(chart).findall("rect")) == 7 * 3 * 128 <= pipeline.MOST_PASSES
    assert "27 replicas are left out, for room." in chart


@pytest.mark.slow
@pytest.mark.long
def test_a_step_of_very_many_passes_is_still_a_small_picture() -> None:
    count = 64
    made = Made(
        forward_ms=[1.0] * count,
        backward_ms=[2.0] * count,
        micro_batches=200,
        schedule="1f1b",
        cut=tuple(range(1, count)),
    )
    chart = pipeline.chart(*step_of(made))
    assert drawing(chart).findall("rect") == []
    assert len(drawing(chart).findall("path[@class='forward']")) == count
    assert len(chart) < 1_500_000


def test_a_step_without_any_length() -> None:
    stages = Stages(cut=(1,))
    chart = pipeline.chart([work(0, 0, 0.0), work(1, 0, 0.0)], stages)
    assert "worker 1" in chart
