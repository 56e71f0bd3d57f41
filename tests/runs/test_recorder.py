"""What a recorder keeps: commits of checkpoints, and which steps were computed."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dayfly.life.commits import Checkpoint
from dayfly.runs import recorder
from dayfly.runs.recorder import Recorder, StepRanges


def recorder_of(directory: Path) -> Recorder:
    return Recorder(directory, lambda source, event: None)


def test_each_commit_is_one_event_with_what_the_channel_held(tmp_path: Path) -> None:
    kept, held = recorder_of(tmp_path), [7, 3]
    kept.committed(Checkpoint(4, ()))
    kept.measure(lambda: held.pop(0))
    for step in (8, 12):
        kept.committed(Checkpoint(step, ()))
    lines = (tmp_path / "events" / "coordinator.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [{**event, "at": None} for event in events] == [
        {"at": None, "kind": "checkpoint", "step": step, "stored_bytes": stored}
        for step, stored in ((4, 0), (8, 7), (12, 3))
    ]
    assert kept.stored_bytes == 7, "the most that it held at a checkpoint"


def test_a_checkpoint_is_as_old_as_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now, time=time.time)
    monkeypatch.setattr(recorder, "time", clock)
    kept = recorder_of(tmp_path)
    clock.now = 105.0
    assert kept.checkpoint_age_s == 5.0
    kept.committed(Checkpoint(4, ()))
    clock.now = 107.0
    assert kept.checkpoint_age_s == 2.0


def test_step_ranges_are_a_set() -> None:
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
