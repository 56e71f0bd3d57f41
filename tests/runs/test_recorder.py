"""What a recorder keeps of a checkpoint that counts from now on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dayfly.life.commits import Checkpoint
from dayfly.runs import recorder
from dayfly.runs.recorder import Recorder


def recorder_of(directory: Path) -> Recorder:
    return Recorder(directory, 0, lambda source, event: None)


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
