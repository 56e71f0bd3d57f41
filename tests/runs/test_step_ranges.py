"""The ranges of steps against a set."""

from __future__ import annotations

import random

from dayfly.runs.step_ranges import StepRanges


def test_as_a_set() -> None:
    chance = random.Random(3)
    for _ in range(200):
        ranges, known = StepRanges(), set[int]()
        for _ in range(60):
            step = chance.randrange(40)
            assert ranges.add(step) == (step not in known)
            known.add(step)
        gaps = sum(step - 1 not in known for step in known)
        assert len(ranges) == gaps


def test_a_run_with_roll_backs_takes_one_range() -> None:
    ranges = StepRanges()
    again = sum(
        not ranges.add(step) for start in (0, 400, 100) for step in range(start, start + 500)
    )
    assert again == 100 + 500
    assert len(ranges) == 1
