"""A cut model over every sort of channel, with a death; and how much its messages take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts.redis_server import RedisServer
from torch import nn

import dayfly
from dayfly.life.faults import Fault
from dayfly.runs import job_coordinator
from tests.runs import small, staged
from tests.runs.staged import Undisturbed

pytestmark = pytest.mark.long


@contextmanager
def redis() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


#: Channel, more settings, and whether a death is one worker's affair.
CASES: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "redis": (redis, {}, True),
    "tcp": (lambda: nullcontext("tcp://"), {"checkpoint_every_s": 0.2}, False),
    "slow-link": (
        lambda: nullcontext(None),
        {"uplink_mb_per_s": 20, "downlink_mb_per_s": 20, "latency_ms": 1, "schedule": "1f1b"},
        True,
    ),
}


def stored_bytes(run: dayfly.Run) -> list[int]:
    """What the channel held at each checkpoint."""
    found = small.events(run.directory, "coordinator")
    return [event["stored_bytes"] for event in found if event["kind"] == "checkpoint"]


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.slow
def test_a_death_over_other_channels(
    case: str, data: Path, undisturbed_stages: Undisturbed, tmp_path: Path
) -> None:
    channel, more, alone = CASES[case]
    with channel() as url:
        faults = [Fault(3, 11, "backward-1")]
        run = staged.train(data, tmp_path, 2, channel=url, faults=faults, **more)
    assert run.result.restarts == 1
    assert small.history(run)["rollbacks"] == (0 if alone else 1)
    assert small.bits(run) == small.bits(undisturbed_stages(2))


@pytest.mark.parametrize(
    ("channel", "replicas"),
    [
        (nullcontext, 1),
        pytest.param(redis, 2, marks=pytest.mark.slow),
        pytest.param(nullcontext, 2, marks=pytest.mark.slow),
        pytest.param(redis, 1, marks=pytest.mark.slow),
    ],
)
def test_the_log_does_not_grow(
    channel: Any, replicas: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a successor puts again what its peers had read and dropped: trimmed by the next.

    With room for one round, so that nobody is ahead of a checkpoint, however long it takes.
    """
    monkeypatch.setattr(job_coordinator, "log_rounds", lambda *_: 1)
    with channel() as url:
        faults = [Fault(2 * replicas - 1, 9, "computed"), Fault(0, 16, "applied")]
        run = staged.train(data, tmp_path, replicas, channel=url, faults=faults)
    held = stored_bytes(run)
    assert len(held) == small.STEPS
    assert max(held) <= small.SETTINGS["log_budget_mib"] * 2**20
    # Before the first death, and behind the last.
    assert max(held[18:]) <= 1.2 * max(held[:9])


def broad() -> nn.Module:
    """400 kB of activations a sample between its layers."""
    return nn.Sequential(nn.Linear(12, 100_000), nn.ReLU(), nn.Linear(100_000, 5))


def test_a_budget_that_holds_no_step_of_stages_is_refused(data: Path, tmp_path: Path) -> None:
    job = small.job(data, model=broad, optimizer=small.sgd, scheduler=None)
    # 20 samples, there and back, and two rounds of a validation's.
    with pytest.raises(dayfly.RequestError, match=r"may take 20 MiB, but a round .* takes 27 MiB"):
        dayfly.train(job, cut=(1,), log_budget_mib=20, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    run = dayfly.train(
        job, cut=(1,), log_budget_mib=40, epochs=1, run_dir=tmp_path / "run", progress=False
    )
    assert len(stored_bytes(run)) >= 3, "checkpoints were forced"
    assert max(stored_bytes(run)) <= 40 * 2**20
