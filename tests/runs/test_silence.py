"""Workers that are stopped, where their platform neither tells of it nor can end them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import dayfly
from dayfly.life import silence
from dayfly.life.faults import Fault
from dayfly.life.platforms import local_call
from dayfly.life.platforms.base import PLATFORMS, Ended, Invocation, Outcome
from dayfly.life.platforms.local import LocalPlatform
from dayfly.specs import pace
from tests.run_command import scripts
from tests.runs import small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]


class Far(LocalPlatform):
    """Functions that go on whatever is asked of them, under names of their attempts.

    Attributes:
        came_back: how functions ended that had been given up.
    """

    name = "far"
    ends_stopped = False
    came_back: ClassVar[list[Ended]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._given_up: dict[str, Invocation] = {}  # by the name of the attempt
        self._invoked: dict[str, Invocation] = {}  # the latest, by function
        self._told: list[Ended] = []

    def invoke(self, invocation: Invocation) -> None:
        """The successor of a function that was stopped starts as that one comes back."""
        self._invoked[invocation.function] = invocation
        super().invoke(replace(invocation, function=_own(invocation)))
        for name in self._given_up.keys() & self._monitor._calls.keys():
            os.kill(self._monitor._calls[name]._pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        found, self._told = self._told, []
        for one in super().wait(0.0 if found else timeout_s):
            if self._given_up.pop(one.invocation.function, None) is not None:
                self.came_back.append(one)
                continue
            function = one.invocation.function.rpartition("-")[0]
            found.append(replace(one, invocation=self._invoked.pop(function)))
        return found

    def cancel(self, function: str) -> None:
        if (invocation := self._invoked.pop(function, None)) is not None:
            self._given_up[_own(invocation)] = invocation
            ended = {"outcome": Outcome.CANCELLED, "init_s": 0.0, "run_s": 0.0}
            self._told.append(Ended(invocation=invocation, **ended))

    def running(self) -> Sequence[str]:
        told = [one.invocation.function for one in self._told]
        return sorted([*self._invoked, *told])

    def close(self) -> None:
        until = time.monotonic() + 20.0
        while self._given_up and not self._closed and time.monotonic() < until:
            self.wait(0.1)
        super().close()


class HoldsTheLock:
    """A transform that lets no other thread run Python for so long, at one sample, once in a run.

    Who is ended or given up meanwhile leaves it to the next.
    """

    def __init__(self, sample: torch.Tensor, seconds: float, done: Path) -> None:
        self.sample, self.seconds, self.done = sample, seconds, done

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        here = "DAYFLY_SESSION" in os.environ and torch.equal(x, self.sample)
        if here and not self.done.exists():
            ctypes.PyDLL(None).usleep(int(self.seconds * 1e6))
            self.done.touch()
        return small.noisy(x)


def _own(invocation: Invocation) -> str:
    return f"{invocation.function}-{invocation.attempt}"


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> type[Far]:
    """The platform, and heartbeats that are not minutes apart."""
    monkeypatch.setitem(PLATFORMS._built_in, "far", Far)
    monkeypatch.setattr(local_call, "STOPPED_LOOKS", 10**9)
    monkeypatch.setattr(pace, "HEARTBEAT_LEAST_S", 0.5)
    monkeypatch.setattr(silence, "HEARTBEAT_LATE_S", 1.0)
    monkeypatch.setattr(Far, "came_back", [])
    return Far


def test_one_that_is_stopped_is_followed_and_comes_back_without_effect(
    far: type[Far], data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = dayfly.train(
        small.job(data),
        workers=2,
        run_dir=tmp_path / "run",
        platform="far",
        channel=f"dir://{tmp_path}/messages",
        faults=[Fault(1, 12, "computed", "stop")],
        **small.SETTINGS,
    )
    assert run.result.status == "done"
    assert run.result.restarts == 1
    told = small.events(run.directory, "coordinator")
    (death,) = [one for one in told if one["kind"] == "ended" and one["death"]]
    assert death["used"]["outcome"] == "silent"
    assert death["used"]["function"] == "worker-1"
    assert "a peer waited for it" in death["detail"]
    (back,) = far.came_back
    assert back.outcome is Outcome.RETURNED
    assert back.result is not None
    assert back.result["status"] == "handed over"
    assert small.bits(run) == small.bits(undisturbed(2))


def test_a_step_that_holds_pythons_lock_passes_in_the_end(
    far: type[Far], data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """Its worker cannot beat meanwhile. What follows it, and it itself, give the same bits."""
    sample = torch.from_numpy(np.load(data)["x_train"][0])
    run = dayfly.train(
        small.job(data, transform=HoldsTheLock(sample, 4.0, tmp_path / "done")),
        workers=2,
        run_dir=tmp_path / "run",
        platform="far",
        channel=f"dir://{tmp_path}/messages",
        **small.SETTINGS,
    )
    assert run.result.status == "done"
    assert (tmp_path / "done").exists()
    told = small.events(run.directory, "coordinator")
    ended = {one["used"]["outcome"] for one in told if one["kind"] == "ended" and one["death"]}
    assert ended == {"silent"}
    # One that comes back when the run is over finds its messages removed.
    told = [one.failure.kind if one.failure else one.outcome for one in far.came_back]
    assert told
    assert set(told) <= {Outcome.RETURNED, "MessagesRemoved"}
    assert small.bits(run) == small.bits(undisturbed(2))


SCRIPT = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("dayfly")
for step in range(20):
    total = torch.ones(3) * (step + dist.get_rank())
    dist.all_reduce(total)
    if step == 12 and dist.get_rank() == 1 and not os.path.exists("stopped"):
        open("stopped", "w").close()
        os.kill(os.getpid(), 19)
        time.sleep(5.0)  # it is back, and asks nothing of dayfly
        open("back", "w").close()
torch.save(total, "total.pt")
"""


@pytest.mark.slow  # the same thread sends them, and the supervisor's part is in test_supervisor.py
def test_a_rank_of_a_script_that_is_stopped_has_all_start_again(
    far: type[Far], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the generation before come back to messages that are gone, and end at once."""
    monkeypatch.chdir(tmp_path)
    given = {"platform": "far", "channel": f"dir://{tmp_path}/messages", "max_restarts": 0}
    ran = scripts.run(tmp_path, SCRIPT, workers=2, **given)
    assert ran.result.status == "done"
    assert ran.result.restarts == 1
    assert torch.load(tmp_path / "total.pt").tolist() == [39.0] * 3
    assert not (tmp_path / "back").exists(), "it wrote among the files of those who follow"
    stopped = [one for one in far.came_back if one.invocation.function == "worker-1-0"]
    assert [one.outcome for one in stopped] == [Outcome.EXITED]
    log = (ran.directory / "logs" / "worker-1-0.log").read_text()
    assert "this attempt of the script ends: " in log
