"""Turns of quiet and busy time, and how many functions have room beside one."""

from __future__ import annotations

import pytest

from dayfly.runs.profiling.neighbours import QuietTurns, Slot, count_beside

#: Quiet for 4 s, of which the first one does not count, then busy for 2 s.
SLOTS = QuietTurns(begin=100.0, quiet_s=4.0, busy_s=2.0, settle_s=1.0)


@pytest.mark.parametrize(
    ("began", "ended", "kind"),
    [
        (101.0, 104.0, Slot.QUIET),
        (101.5, 101.6, Slot.QUIET),
        (100.5, 101.5, None),  # neighbours may be at their last pass
        (103.5, 104.5, None),
        (104.0, 106.0, Slot.BUSY),
        (105.5, 106.5, None),
        (107.0, 110.0, Slot.QUIET),
        (103.0, 109.0, None),
    ],
)
def test_what_lies_in_one_slot(began: float, ended: float, kind: Slot | None) -> None:
    assert SLOTS.kind(began, ended) is kind


def test_when_neighbours_compute() -> None:
    assert SLOTS.until_busy_s(100.0) == 4.0
    assert SLOTS.until_busy_s(103.5) == 0.5
    assert SLOTS.until_busy_s(105.0) == 0.0
    assert SLOTS.until_busy_s(106.0) == 4.0


def test_slots_have_room_for_what_is_timed() -> None:
    short, long = QuietTurns.of(0.0, 0.01, 0.02), QuietTurns.of(0.0, 1.0, 2.0)
    assert [short.room_s, short.busy_s] == pytest.approx([1.0, 0.3])
    assert [long.room_s, long.busy_s, long.settle_s] == pytest.approx([10.0, 6.0, 1.5])


@pytest.mark.parametrize(
    ("cpu_cores", "machine_cores", "count"),
    [
        (0.25, 2, 5),
        (0.5, 2, 2),
        (0.75, 2, 1),
        (1.0, 2, 0),  # two would leave nothing
        (None, 2, 0),
        (None, 4, 2),
        (0.25, 16, 6),
        (6.0, 4, 0),
    ],
)
def test_as_many_neighbours_as_have_room(
    cpu_cores: float | None, machine_cores: int, count: int
) -> None:
    assert count_beside(cpu_cores, machine_cores) == count
