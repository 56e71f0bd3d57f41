"""A run kept in a store goes on from its URL, on a machine that has nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.life.leadership import LEASE_S
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores import open_store
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small
from tests.store.places import s3

pytestmark = pytest.mark.long

DAYFLY = Path(sys.executable).with_name("dayfly")


@pytest.fixture
def runs() -> Iterator[str]:
    """URL of a store of runs, in a bucket."""
    with s3() as store:
        yield store.url


def only(runs: str) -> str:
    """The URL of the one run in a store."""
    (folder,) = open_store(runs).folders()
    return f"{runs}/{folder}"


def told(*command: object) -> dict[str, Any]:
    """The JSON that a command prints, if it ends well."""
    done = subprocess.run(
        [DAYFLY, *map(str, command), "--json"], capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_killed_deleted_and_resumed_elsewhere_with_the_same_bits(
    runs: str, data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    faults = [Fault(COORDINATOR, 13, "step")]
    spec = {"data": data, "workers": 2, "store": runs, "checkpoint_every_s": 0.2}
    coordinator.killed(run_dir=first, faults=faults, **spec)
    shutil.rmtree(first)

    url = only(runs)
    result = told("train", "--resume", url, "--run-dir", second)
    assert (result["status"], result["workers"]) == ("done", 2)
    assert small.bits(second) == small.bits(undisturbed(2))
    history = json.loads((second / "history.json").read_text())
    assert history["epochs"] == json.loads(
        (undisturbed(2).directory / "history.json").read_text()
    )["epochs"]  # fmt: skip
    lives = [one["kind"] for one in small.events(second, "coordinator")]
    assert lives.count("begun") == 2, "the events of the first life came from the store"

    # Done: a third machine has what came of it, and the inputs are gone.
    assert told("train", "--resume", url, "--run-dir", third) == result
    assert small.bits(third) == small.bits(undisturbed(2))
    (third / "run.json").write_bytes(open_store(url).get("run.json"))
    small.change_record(third, status="stopped", result=None)
    assert told("train", "--resume", third) == result, "a copy that is out of date is no truth"
    assert "data" not in list(open_store(url).folders())
    (row,) = told("runs", runs)
    assert (row["status"], row["directory"]) == ("done", url)


def test_followed_and_stopped_from_elsewhere(runs: str, data: Path, tmp_path: Path) -> None:
    first = coordinator.start(
        run_dir=tmp_path / "first",
        data=shutil.copy(data, tmp_path),
        workers=2,
        store=runs,
        job="tests.runs.small:lasting_job",
    )
    try:
        until_s = time.monotonic() + 60
        while not (tmp_path / "first" / "events" / "worker-0.jsonl").exists():
            assert time.monotonic() < until_s
            assert first.poll() is None
            time.sleep(0.01)
        url = only(runs)
        (row,) = told("runs", runs)
        assert row["status"] == "running"
        stopped = subprocess.run(
            [DAYFLY, "stop", url], capture_output=True, text=True, timeout=100, check=False
        )
        assert stopped.stdout.strip() == f"{url} is stopped", stopped.stderr
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
    (tmp_path / "fast").touch()
    on = dayfly.resume(url, run_dir=tmp_path / "second", progress=False)
    assert on.result.status == "done"


def test_a_wrong_request_leaves_nothing(runs: str, data: Path, tmp_path: Path) -> None:
    job = small.job(data, batch_size=3)
    with pytest.raises(RequestError):
        dayfly.train(job, workers=64, store=runs, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert list(open_store(runs).list()) == []
    with pytest.raises(RequestError, match="store 'nowhere:/"):
        dayfly.train(job, store="nowhere://x", run_dir=tmp_path / "run", progress=False)


def test_what_is_no_run_is_refused(runs: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=f"{re.escape(runs)}/none' holds no run"):
        dayfly.resume(f"{runs}/none", run_dir=tmp_path / "run", progress=False)
    open_store(runs).put("evil/run.json", b'{"format": 3, "run_id": "../evil"}')
    with pytest.raises(RequestError, match="run_id"):
        dayfly.load(f"{runs}/evil")
    assert not (tmp_path / "run").exists()


def test_no_copy_is_made_in_the_place_of_the_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="itself, where its copy was to be"):
        dayfly.train(small.job(data), store=f"file://{tmp_path}/runs", progress=False)
    assert not (tmp_path / "runs").exists()
    there = FileStore(tmp_path / "runs" / "one")
    there.put("run.json", b'{"format": 3, "run_id": "one"}')
    with pytest.raises(RequestError, match="itself, where its copy was to be"):
        dayfly.load(there.url)
    assert [info.name for info in there.list()] == ["run.json"]


@pytest.mark.slow  # it waits for a lease
def test_a_paused_coordinator_is_followed_and_changes_nothing(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    runs = f"file://{tmp_path}/store"
    first = coordinator.start(
        run_dir=tmp_path / "first", data=data, workers=2, store=runs, latency_ms=50
    )
    try:
        until_s = time.monotonic() + 60
        events = tmp_path / "first" / "events" / "worker-0.jsonl"
        while not events.exists() and first.poll() is None:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        done = dayfly.resume(only(runs), run_dir=tmp_path / "second", progress=False)
        assert time.monotonic() - began_s > LEASE_S / 2
        before = {info.name: info.version for info in open_store(only(runs)).list()}
        os.kill(first.pid, signal.SIGCONT)
        _, said = first.communicate(timeout=60)
        assert first.returncode == 1, said
        assert "leads the run" in said or "is led by" in said, said
        assert {info.name: info.version for info in open_store(only(runs)).list()} == before
    finally:
        first.kill()
        first.wait()
    assert small.bits(done) == small.bits(undisturbed(2))


def test_a_copy_of_a_store_is_a_run_of_its_own(data: Path, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    spec = {"workers": 1, "store": f"file://{there}", "run_dir": tmp_path / "run"}
    dayfly.train(small.job(data, epochs=1), **spec, **small.SETTINGS)
    (place,) = there.iterdir()
    shutil.copytree(there, here)
    shutil.rmtree(there)

    url = f"file://{here / place.name}"
    run = dayfly.resume(url, run_dir=tmp_path / "run", epochs=2, progress=False)

    assert run.result.epochs == 2
    assert not there.exists(), "the former place is not written to"
    assert json.loads((here / place.name / "run.json").read_text())["store"] == url
