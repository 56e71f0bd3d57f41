"""From passes to bubbles, literally and for any pipeline; and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dayfly.runs.report import stages
from dayfly.runs.report.spans import Pass, StepWork, passes_of
from dayfly.runs.report.stages import Stages
from tests.report.made_up import settings_of, step_told, works
from tests.report.pipelines import Made

WHOLE = StepWork(
    worker=1,
    key=(0, 3),
    began_s=100.0,
    length_ms=100.0,
    passes=(("f", 0, 10.0, 20.0), ("f", 1, 20.0, 30.0), ("b", 0, 50.0, 70.0)),
    apply=[(90.0, 95.0)],
    up=[(30.0, 40.0), (60.0, 80.0)],
    down=[(5.0, 12.0), (38.0, 45.0)],
)


#   ms        0   10        30   40 45 50        70  80  90 95 100
#   compute       f0  f1                 b0               apply
#   up                      =====           ========
#   down        ===            =====
def test_the_bubble_of_a_step() -> None:
    assert WHOLE.idle() == [[0.0, 10.0], [30.0, 50.0], [70.0, 90.0], [95.0, 100.0]]
    assert WHOLE.bubble() == pytest.approx(0.55)
    assert WHOLE.bare_transfer_ms() == pytest.approx(5 + 15 + 10)
    assert WHOLE.taken_ms("f") == [10.0, 10.0]
    assert WHOLE.taken_ms("b") == [20.0]


def test_passes_of_records() -> None:
    record = {
        "kind": "step",
        "step": 3,
        "computed": True,
        "began": 100.0,
        "at": 101.0,
        "step_s": 0.5,
        "generation": 1,
        "passes": [["b", 0, 250.0, 500.0], ["f", 0, 0.0, 125.0], ["new", 0, 0.0, 1.0]],
        "spans": {"apply": [[500.0, 500.0]], "upload": [[0.0, 2.0], [1.0, 3.0]]},
    }
    assert list(passes_of(step_told(record))) == [
        Pass("b", 0, 100.25, 100.5),
        Pass("f", 0, 100.0, 100.125),
    ]
    (work,) = works({7: [record]})
    assert (work.worker, work.key, work.began_s, work.length_ms) == (7, (1, 3), 100.0, 500.0)
    assert work.passes == (("f", 0, 0.0, 125.0), ("b", 0, 250.0, 500.0))
    assert work.up == [(0.0, 3.0)]
    from_log = {**record, "computed": False}
    assert works({7: [from_log]}) == []
    assert len(list(passes_of(step_told(from_log)))) == 2, (
        "it sent something, so others waited for it"
    )
    del from_log["spans"]
    assert list(passes_of(step_told(from_log))) == []
    again = {**record, "step_s": 0.25}
    assert [one.length_ms for one in works({7: [record, again]})] == [500.0], "a successor"


def stages_of(made: Made) -> Stages:
    stages = Stages.of(settings_of(made.settings))
    assert stages is not None
    return stages


def works_of(made: Made) -> list[StepWork]:
    stages = range(len(made.forward_ms))
    return works({stage: [made.record(100.0, 0, stage)] for stage in stages})


@given(
    some.integers(2, 6),
    some.integers(1, 12),
    some.integers(1, 50),
    some.integers(1, 50),
    some.sampled_from(["fill-drain", "1f1b"]),
)
def test_equal_stages_and_free_transfers_have_the_ideal_bubble(
    count: int, micro_batches: int, forward_ms: int, backward_ms: int, schedule: str
) -> None:
    made = Made(
        forward_ms=[float(forward_ms)] * count,
        backward_ms=[float(backward_ms)] * count,
        micro_batches=micro_batches,
        schedule=schedule,
        cut=tuple(range(1, count)),
    )
    stages = stages_of(made)
    for work in works_of(made):
        assert work.bubble() == pytest.approx(stages.ideal_bubble)


@given(some.lists(some.integers(1, 60), min_size=2, max_size=5), some.integers(0, 30))
def test_a_step_is_computing_bare_transfer_and_waiting(ms: list[int], transfer_ms: int) -> None:
    made = Made(
        forward_ms=[float(one) for one in ms],
        backward_ms=[2.0 * one for one in ms],
        transfer_ms=float(transfer_ms),
        cut=tuple(range(1, len(ms))),
    )
    for one in stages.by_stage(works_of(made), stages_of(made)):
        whole = one.computing_ms + one.bare_transfer_ms + one.waiting_ms
        assert whole == pytest.approx(one.step_ms)
        assert one.computing_ms == pytest.approx((1 - one.bubble) * one.step_ms)
        assert one.computing_ms == pytest.approx(3 * 4 * ms[one.stage])


def test_stages_in_figures() -> None:
    made = Made(transfer_ms=6.0, apply_ms=8.0)
    times = stages.by_stage(works_of(made), stages_of(made))
    assert [(one.forward_ms, one.backward_ms, one.apply_ms) for one in times] == [
        (10.0, 20.0, 8.0),
        (20.0, 40.0, 8.0),
        (10.0, 20.0, 8.0),
    ]
    # f: 10 + 6 + 4 * 20 + 6 + 10 till the last one's; b: 20 + 6 + 4 * 40 + 6 + 20; apply 8.
    assert [one.step_ms for one in times] == [332.0] * 3
    assert [one.bubble for one in times] == pytest.approx([1 - 128 / 332, 1 - 248 / 332, 204 / 332])
    said = stages.words(times, stages_of(made))
    assert said == (
        "Stage 1 (layers 4 to 8) is the slowest: 60 ms a micro-batch, 1.5 times the mean of the "
        "stages. The bubble is 49% of a step; 33% would be ideal for 3 equal stages and 4 "
        "micro-batches."
    )
    table = stages.stage_table(times, stages_of(made))
    assert '<th scope="row">stage 1</th><td class="number">4 to 8</td>' in table
    assert '<td class="number">2048</td><td class="number">20.00</td>' in table
    assert '<tfoot><tr><th scope="row">mean</th>' in table


def test_equal_stages_have_no_bottleneck() -> None:
    made = Made(forward_ms=(10.0, 10.1, 10.0), backward_ms=(20.0, 20.0, 20.0))
    said = stages.words(stages.by_stage(works_of(made), stages_of(made)), stages_of(made))
    assert said.startswith("No stage is a bottleneck: all compute for about 30 ms a micro-batch.")


def test_a_link_that_is_slower_than_any_stage_is_named() -> None:
    made = Made(transfer_ms=100.0)
    said = stages.words(stages.by_stage(works_of(made), stages_of(made)), stages_of(made))
    assert "But the uplink of stage 1 is busy for longer than any stage computes" in said
