"""Whole runs over every channel, with a death in the middle: the weights are the right ones.

All collectives but the ring sum in rank order, and with two workers so does the ring; so the bits
are those of an undisturbed run over files, whatever a run talks through.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.parts.moto_server import moto_server
from benchmarks.parts.redis_server import RedisOptions, RedisServer

import dayfly
from dayfly.credentials import PASSWORD_VARIABLE
from dayfly.life.faults import Fault
from dayfly.life.reports import Report
from dayfly.runs.recorder import Recorder
from dayfly.specs.generations import GenerationPlan
from dayfly.wire import authentication
from tests.runs import small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]
SECRET = "hunter2-is-no-word-of-any-log"
#: Of the coordinator: 256 bits.
TOKEN = "5ec2e7" * 10 + "beef"


@contextmanager
def redis(patch: pytest.MonkeyPatch) -> Iterator[str]:
    patch.setenv(PASSWORD_VARIABLE, SECRET)
    with RedisServer(RedisOptions(password=SECRET)) as server:
        yield server.url


@contextmanager
def s3(patch: pytest.MonkeyPatch) -> Iterator[str]:
    with moto_server() as server:
        for name, value in (*server.environment.items(), ("AWS_SECRET_ACCESS_KEY", SECRET)):
            patch.setenv(name, value)
        server.make_bucket("bucket")
        yield "s3://bucket/some/prefix"


#: Channel, collective, more settings, and whether a death is one worker's affair.
CASES: dict[str, tuple[Any, str | None, Mapping[str, Any], bool]] = {
    "redis": (redis, None, {}, True),
    "s3": (s3, None, {}, True),
    "ps": (lambda patch: nullcontext("ps://"), None, {}, False),
    "tcp": (lambda patch: nullcontext("tcp://"), None, {}, False),
    "files-overlapped": (lambda patch: nullcontext(None), "overlapped", {}, True),
    "files-pipelined": (lambda patch: nullcontext(None), "pipelined", {"latency_ms": 1}, True),
    "files-k-reduce": (lambda patch: nullcontext(None), "k-reduce", {"aggregators": 1}, True),
}


@pytest.mark.parametrize(
    "case",
    # Over objects there is one without a death in test_stores.py.
    [pytest.param(one, marks=pytest.mark.slow if one == "s3" else ()) for one in sorted(CASES)],
)
def test_a_run_with_a_death_ends_with_the_right_weights(
    case: str,
    data: Path,
    undisturbed: Undisturbed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No secret is in what the run leaves, and none in a process list while it runs."""
    channel, collective, more, alone = CASES[case]
    monkeypatch.setattr(authentication, "secrets", SimpleNamespace(token_hex=lambda size: TOKEN))
    settings = {**small.SETTINGS, "checkpoint_every_s": 0.5, **more}
    lists = ""
    over = threading.Event()

    def look() -> None:
        nonlocal lists
        while True:  # once at least, however short the run is
            lists += subprocess.run(
                ["ps", "axo", "args"], capture_output=True, text=True, check=True
            ).stdout
            if over.wait(0.5):
                return

    with channel(monkeypatch) as url:
        looking = threading.Thread(target=look)
        looking.start()
        try:
            run = dayfly.train(
                small.job(data),
                workers=2,
                run_dir=tmp_path,
                channel=url,
                collective=collective,
                faults=[Fault(1, 11, "computed")],
                **settings,
            )
        finally:
            over.set()
            looking.join()
    assert run.result.status == "done", run.result.error
    assert run.result.restarts == 1
    assert small.bits(run) == small.bits(undisturbed(2))
    assert small.history(run)["rollbacks"] == (0 if alone else 1)
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "python" in lists
    for secret in (SECRET, TOKEN):
        assert secret.encode() not in left
        assert secret not in lists


def test_a_store_that_is_away_for_a_while_costs_that_while(
    data: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nobody in the middle of the run: not the workers, not the coordinator."""
    away_s, told = 2.0, Recorder.reported
    with RedisServer() as server:
        coming_back = threading.Timer(away_s, server.resume)

        def reported(recorder: Recorder, plan: GenerationPlan, report: Report) -> None:
            told(recorder, plan, report)
            if not coming_back.ident:  # it is the first
                server.pause()
                coming_back.start()

        monkeypatch.setattr(Recorder, "reported", reported)
        run = dayfly.train(
            small.job(data), workers=2, run_dir=tmp_path, channel=server.url, **small.SETTINGS
        )
        coming_back.join()
    assert run.result.status == "done", run.result.error
    assert run.result.restarts == 0
    assert small.bits(run) == small.bits(undisturbed(2))
    assert run.result.wall_s > away_s
