"""Files that an earlier version of dayfly wrote stay readable, and mean what they meant.

`recorded/` was written by the version of 2026-11-23: two workers trained for ten steps (`job`), did
so by a plan (`planned`), ran a script on one (`script`), and were simulated (`simulated`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.life import checkpoints
from dayfly.planning.plan import Plan
from dayfly.planning.profile import dump_profile, read_profile
from dayfly.runs.events import Events
from dayfly.runs.job_record import Record
from dayfly.runs.plans import configuration_of
from dayfly.runs.record_kinds import read_any
from dayfly.runs.report import write_report
from dayfly.runs.report.comparison import compared_in
from dayfly.runs.report.reading import read_bill, read_history, rebill
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.wire.stores.files import FileStore
from tests.reading.damage import RECORDED, copied


@pytest.mark.parametrize("run", ["job", "planned", "script", "simulated"])
def test_a_run_is_shown_and_billed_as_it_was(run: str, tmp_path: Path) -> None:
    directory = copied(run, tmp_path)
    page = write_report(directory).read_text()
    assert "aws-lambda" in page
    billed, now = read_bill(directory), rebill(directory)
    assert billed is not None
    assert now.cost_usd == pytest.approx(billed["cost_usd"])
    assert len(now.invocations) == (1 if run == "script" else 2)
    assert read_history(directory) is not None


def test_a_job_can_be_taken_up() -> None:
    record = Record.load(RECORDED / "job")
    assert record.settings.workers == 2
    assert record.parts[0].x.object == "data/x_train.npy"
    store = FileStore(RECORDED / "job")
    committed = checkpoints.latest(store)
    assert committed is not None
    assert committed.step == 10
    tree, tensors = checkpoints.read(store, committed)
    assert {"replica", "progress"} <= tree.keys()
    assert any(tensor.shape == (8, 6) for tensor in tensors.values())
    events = Events.read(RECORDED / "job" / "events")
    assert [used.outcome for used in events.used] == ["returned", "returned"]
    assert events.cut_lines == 0


def test_a_record_says_whether_it_was_changed(tmp_path: Path) -> None:
    """Of an earlier version nobody knows."""
    file = tmp_path / "run.json"
    file.write_bytes((RECORDED / "job" / "run.json").read_bytes().replace(b"tiny", b"tinier"))
    record = Record.load(tmp_path)
    record.save(FileStore(tmp_path))
    assert Record.load(tmp_path) == record
    file.write_bytes(file.read_bytes().replace(b"tinier", b"tiny"))
    for read in (Record.load, read_any):
        with pytest.raises(RequestError, match=r"run.json was changed after it was written"):
            read(tmp_path)


def test_a_script_can_be_started_again() -> None:
    record = ScriptRecord.load(RECORDED / "script")
    assert Path(record.script.file).name == "script.py"
    assert record.args[:2] == ("--workers", "2")


def _within(old: Any, new: Any) -> bool:
    """Whether all of an old file is in a new one, which may have more keys."""
    if isinstance(old, dict):
        return all(key in new and _within(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_within, old, new))
    return bool(old == new)


def test_a_plan_and_a_profile() -> None:
    profile = read_profile(RECORDED / "profile.json")
    assert [size.memory_mib for size in profile.sizes] == [1024, 2048]
    assert _within(_tree("profile.json"), dump_profile(profile))
    plan = Plan.read(RECORDED / "plan.json")
    assert configuration_of(plan).workers == 2
    assert plan.prediction is not None
    assert plan.prediction.total_s == plan.prediction.run_s > 0
    assert plan.prediction.interval is None
    assert compared_in(RECORDED / "planned") is not None


def test_a_commit_without_a_digest_of_the_whole_is_read(tmp_path: Path) -> None:
    """As versions before it wrote them; its step still has to be that of its parts."""
    directory = Path(shutil.copytree(RECORDED / "job", tmp_path / "job"))
    file = directory / "checkpoint" / "latest.json"
    tree = json.loads(file.read_text())
    del tree["whole"]
    file.write_text(json.dumps(tree))
    committed = checkpoints.latest(FileStore(directory))
    assert committed is not None
    assert committed.step == 10
    file.write_text(json.dumps(tree | {"step": 7}))
    with pytest.raises(checkpoints.CheckpointError, match="step is 7, but checkpoint/000000010/"):
        checkpoints.latest(FileStore(directory))


def test_a_step_that_was_changed_is_found_by_the_digest(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(RECORDED / "job", tmp_path / "job"))
    file = directory / "checkpoint" / "latest.json"
    file.write_text(file.read_text().replace("10", "62").replace("0000000062", "0000000010"))
    with pytest.raises(checkpoints.CheckpointError, match=r"latest\.json: it was changed"):
        checkpoints.latest(FileStore(directory))


def _tree(name: str) -> dict[str, object]:
    tree: dict[str, object] = json.loads((RECORDED / name).read_text())
    return tree
