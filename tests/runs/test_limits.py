"""Runs whose functions are limited: every limit in one run, what is refused, and what is said."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.commits import Checkpoint, CheckpointPart
from dayfly.life.platforms import confinement
from dayfly.life.platforms.local import crowding
from dayfly.runs.function_resources import FunctionResources, resources_under
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped
from dayfly.runs.task import Task, check_task
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.shaping import Rates
from tests.runs import small

pytestmark = pytest.mark.long

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="cpu cgroups need root here")


def test_what_is_asked_for_is_what_a_function_gets() -> None:
    asked = Settings(
        memory_mib=600,
        lifetime_s=20,
        cpu_cores=0.5,
        uplink_mb_per_s=40,
        downlink_mb_per_s=70,
        latency_ms=20,
        cold_start_s=0.2,
        payload_kb=50,
    )
    limits = FunctionSpec(
        memory_mib=600, lifetime_s=20, cpu_cores=0.5, cold_start_s=0.2, payload_bytes=50_000
    )
    rates = Rates(up_bytes_per_s=40e6, down_bytes_per_s=70e6, latency_s=0.02)
    assert resources_under(asked) == FunctionResources(limits, rates)


def test_nothing_is_limited_unless_asked_for() -> None:
    assert resources_under(Settings()) == FunctionResources(FunctionSpec(), None)
    assert resources_under(Settings(latency_ms=5)).rates == Rates(latency_s=0.005)


@root_only
def test_every_limit_in_one_run(data: Path, tmp_path: Path) -> None:
    """The bits are those of a run without limits; each limit shows in what it took."""
    limits: dict[str, Any] = {
        "memory_mib": 700,
        "lifetime_s": 60,
        "cpu_cores": 0.5,
        "uplink_mb_per_s": 10,
        "downlink_mb_per_s": 10,
        "latency_ms": 20,
        "cold_start_s": 0.5,
        "payload_kb": 100,
    }
    job = small.job(data, epochs=1)
    free = dayfly.train(job, workers=2, run_dir=tmp_path / "free", **small.SETTINGS)
    held = dayfly.train(job, workers=2, run_dir=tmp_path / "held", **small.SETTINGS, **limits)
    assert small.bits(held) == small.bits(free)
    for used in json.loads((held.directory / "bill.json").read_text())["invocations"]:
        assert used["init_s"] >= 0.5
    steps = [one for one in small.events(held.directory, "worker-0") if one["kind"] == "step"]
    # A part and a sum each way: four latencies a step.
    assert median(step["reduced_s"] for step in steps) >= 0.98 * 4 * 0.02


def test_a_task_that_is_too_large_is_refused_before_anything_starts(
    data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=r"payloads of 0\.5 KB are too small.*--payload \d+ or"):
        dayfly.train(small.job(data), run_dir=tmp_path / "run", progress=False, payload_kb=0.5)
    assert not (tmp_path / "run").exists()


def task(workers: int) -> Task:
    return Task(
        run="run-1",
        token="00" * 32,
        generation=0,
        rank=0,
        attempt=0,
        stage_rank=StageRank(0, 0),
        world_size=workers,
        store="file:///run",
        channel="file:///channel",
        shipped=Shipped("0" * 64, None),
        parts=(),
        samples=100,
        steps=10,
        collective="scatter-reduce",
        aggregators=None,
        compress="none",
        decides=False,
        ended=False,
        sync="bsp",
        k=1,
        log_rounds=None,
        replays=True,
        checkpoint_every_s=60.0,
        wait_timeout_s=900.0,
        scratch="/scratch",
        checkpoint=Checkpoint(
            0, (CheckpointPart("checkpoint/000000000/part-0-of-1", 100, "0" * 32),)
        ),
        trimmed_step=0,
        checkpoint_age_s=0.0,
        faults=(),
        pieces=1,
    )


def test_the_limit_counts_what_a_task_may_grow_to() -> None:
    """A later checkpoint has a part of each worker; a successor's task must fit, too."""
    now_bytes = len(json.dumps(task(100).dump()))
    check_task(task(100), None)
    with pytest.raises(RequestError, match="too small") as refused:
        check_task(task(100), now_bytes + 1000)
    (enough_kb,) = re.findall(r"--payload (\d+)", str(refused.value))
    check_task(task(100), int(enough_kb) * 1000)
    later = Checkpoint(
        999,
        tuple(
            CheckpointPart(f"checkpoint/000000999/part-{r}-of-100", 10**9, "0" * 32)
            for r in range(100)
        ),
    )
    grown = replace(task(100), rank=99, attempt=7, checkpoint=later, trimmed_step=999)
    assert now_bytes < len(json.dumps(grown.dump())) <= int(enough_kb) * 1000


def test_the_limit_counts_what_is_each_workers_own() -> None:
    """With compression, a checkpoint has a second part of each."""
    refused: list[int] = []
    for compress in ("none", "int8"):
        with pytest.raises(RequestError) as error:
            check_task(replace(task(100), compress=compress), 100)
        refused += map(int, re.findall(r"--payload (\d+)", str(error.value)))
    plain_kb, compressed_kb = refused
    assert compressed_kb > 1.8 * plain_kb


def test_a_task_survives_json() -> None:
    shaped = replace(task(2), rates=Rates(up_bytes_per_s=1e6, latency_s=0.1))
    for one in (task(2), shaped):
        assert Task.load(json.loads(json.dumps(one.dump()))) == one


def test_too_few_cores_are_said() -> None:
    cores = len(os.sched_getaffinity(0))
    assert crowding([1.0] * cores) is None
    assert crowding([None] * 100 * cores) is None
    assert crowding([0.5, None] * cores) is None
    said = crowding([0.5] * 4 * cores)
    assert said is not None
    assert f"want {2 * cores} cores, and this machine has {cores}" in said


def test_without_cgroups_memory_is_said_and_cpu_is_refused(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As for a user who may make no cgroups."""
    monkeypatch.setattr(confinement, "find_controllers", lambda *_: {})
    job = small.job(data, epochs=1)
    with pytest.raises(RequestError, match=r"0\.5 CPUs cannot be enforced"):
        dayfly.train(job, run_dir=tmp_path / "no", cpu_cores=0.5, progress=False)
    assert not (tmp_path / "no").exists()
    dayfly.train(job, run_dir=tmp_path / "yes", memory_mib=900)
    assert "memory is limited by RLIMIT_DATA" in capsys.readouterr().err
