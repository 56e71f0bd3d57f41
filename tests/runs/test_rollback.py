"""Where nothing is kept to catch up from, all go back to the run checkpoint, to the same bits."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dayfly
from dayfly.errors import WireError
from dayfly.life import ends
from dayfly.life.faults import Fault
from dayfly.runs.log_budget import RoundBytes, channel_plan, log_rounds
from dayfly.runs.recorder import Recorder
from dayfly.runs.settings import Settings
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kinds import Files
from dayfly.wire.keys import COORDINATOR, Key
from tests.runs import coordinator, small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]
#: Often: what is redone is little then.
OFTEN: dict[str, Any] = {"checkpoint_every_s": 0.05, "progress": False}


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator takes files for a channel that cannot replay, and tells the workers so."""
    monkeypatch.setattr(Files, "abilities", replace(Files.abilities, replays=False))


def of_kind(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [e for e in small.events(directory, "coordinator") if e["kind"] == kind]


def check_rollbacks(run: dayfly.Run, deaths: int, workers: int) -> None:
    """So many deaths, each with a rollback, in a generation of its own; nobody else died."""
    assert run.result.restarts == deaths
    assert small.history(run)["rollbacks"] == deaths
    assert json.loads((run.directory / "run.json").read_text())["generation"] == deaths
    back = of_kind(run.directory, "rolled back")
    begun = of_kind(run.directory, "generation")
    assert [(e["number"], e["workers"]) for e in begun] == [
        (number, workers) for number in range(deaths + 1)
    ]
    assert [e["first_step"] for e in begun] == [0, *(e["to_step"] for e in back)]
    assert all(e["from_step"] - e["to_step"] == e["redone_steps"] >= 0 for e in back)
    assert all("was killed from outside" in e["cause"] for e in back)
    outcomes = [e["used"]["outcome"] for e in of_kind(run.directory, "ended")]
    assert outcomes.count("killed") == deaths
    assert outcomes.count("returned") >= workers, "some had done their last step before a rollback"
    assert len(outcomes) == workers * (deaths + 1), "every function was metered"
    told = {record["generation"] for record in small.events(run.directory, "worker-0")}
    # Who was ended soon had said nothing yet.
    assert deaths in told
    assert told <= set(range(deaths + 1))


def test_deaths_at_any_place_leave_the_same_bits(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    faults = [
        Fault(1, 5, "grad-reduce"),
        Fault(0, 13, "applied", "zygote"),
        Fault(1, small.STEPS - 1, "epoch"),
    ]
    run = dayfly.train(small.job(data), workers=2, run_dir=tmp_path, faults=faults, **OFTEN)
    assert small.bits(run) == small.bits(undisturbed(2))
    check_rollbacks(run, len(faults), 2)


def test_deaths_within_the_rounds_of_local_sgd(data: Path, tmp_path: Path) -> None:
    """A worker that kept its own state in a later round must not go on from there."""
    job, how = small.job(data, epochs=2), {"workers": 2, "sync": "local-sgd", "k": 4}
    reference = dayfly.train(job, run_dir=tmp_path / "undisturbed", progress=False, **how)
    faults = [
        Fault(0, 1, "stepped"),
        Fault(1, small.STEPS_AN_EPOCH + 2, "stepped"),
        Fault(1, 2 * small.STEPS_AN_EPOCH - 1, "reduced"),
    ]
    # Workers keep their own state after every step; only the first one wishes for checkpoints.
    more = {**OFTEN, "checkpoint_every_s": 1e-4}
    run = dayfly.train(job, run_dir=tmp_path / "run", faults=faults, **how, **more)
    assert small.bits(run) == small.bits(reference)
    check_rollbacks(run, len(faults), 2)


@pytest.mark.parametrize(
    "how",
    [{"sync": "bsp"}, pytest.param({"sync": "local-sgd", "k": "epoch"}, marks=pytest.mark.slow)],
    ids=str,
)
def test_hand_overs_repeat_no_step(how: dict[str, Any], data: Path, tmp_path: Path) -> None:
    """The checkpoint made for one counts first; within a round, each keeps its own state.

    A life has time for 4.5 s of steps: 2 s, and then half a second each.
    """
    job = small.job(data, epochs=1)
    reference = dayfly.train(job, workers=2, run_dir=tmp_path / "r", progress=False, **how)
    run = dayfly.train(
        replace(job, transform=small.Slowly(2.0, 0.5)),
        workers=2,
        lifetime_s=9.0,
        run_dir=tmp_path / "run",
        progress=False,
        **how,
    )
    assert small.bits(run) == small.bits(reference)
    assert run.result.restarts == 0, "neither hand-overs nor who was killed for them are deaths"
    kept: list[str | None] = []
    redone: list[int] = []
    for event in small.events(run.directory, "coordinator"):
        if event["kind"] == "ended":
            kept.append((event["result"] or {"kept": "killed"})["kept"])
        elif event["kind"] == "rolled back":
            assert "handed over" in event["cause"]
            # Who waits in vain for a slow peer, on a busy machine, hands over without either.
            if None not in kept and (how["sync"] == "bsp" or "killed" not in kept):
                redone.append(event["redone_steps"])
            kept.clear()
    assert redone
    assert not any(redone)
    if len(redone) == small.history(run)["rollbacks"]:
        assert not small.recomputed(run.directory, 2)


class Mistaken(nn.Module):
    """One worker's wire fails, always the same one's; then the user's mistake strikes the other."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.inner = small.plain_model()
        self.directory = directory

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and "DAYFLY_SESSION" in os.environ:  # in a function
            roles = Path(self.directory)
            noticed, who = roles / "noticed", roles / "who"
            mine = f"{float(x.sum())!r}"
            try:
                with who.open("x") as file:
                    file.write(mine)
            except FileExistsError:
                while not who.read_text():
                    os.sched_yield()
            if who.read_text() == mine:
                noticed.touch()
                raise WireError("the neighbour is gone")
            while not noticed.exists():
                os.sched_yield()
            noticed.unlink()
            raise ArithmeticError("the user's own mistake")
        return self.inner(x)


def test_errors_of_the_wire_beside_a_death_are_its_consequences(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "CAUSE_S", 60.0)  # the machine may be busy
    roles, directory = str(tmp_path), tmp_path / "run"
    job = small.job(data, model=lambda: Mistaken(roles))
    with pytest.raises(dayfly.RunFailed, match=r"raised ArithmeticError: .*, twice at "):
        dayfly.train(job, workers=2, run_dir=directory, progress=False)
    ended = of_kind(directory, "ended")
    deaths = [e for e in ended if e["death"]]
    assert {e["error"] for e in deaths} == {"ArithmeticError: the user's own mistake"}
    assert len({e["used"]["function"] for e in deaths}) == 1
    assert len(deaths) == 2
    assert len(ended) == 4
    assert len(of_kind(directory, "rolled back")) == 1


def test_a_channel_that_fails_is_made_anew(
    data: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a parameter server that was killed; here the coordinator's third look fails."""
    looks, look = iter(range(10**9)), FileChannel.waiting

    def waiting(channel: FileChannel, destination: int) -> Sequence[Key]:
        if next(looks) == 2:
            raise WireError("the server is gone")
        return look(channel, destination)

    monkeypatch.setattr(FileChannel, "waiting", waiting)
    run = dayfly.train(small.job(data), workers=2, run_dir=tmp_path, progress=False)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert run.result.restarts == 0
    (back,) = of_kind(tmp_path, "rolled back")
    assert back["cause"] == "the channel failed: WireError: the server is gone"


def resumed(directory: Path) -> tuple[dayfly.Run, set[int]]:
    """The run gone on with, and the generations whose workers were heard of."""
    run = dayfly.resume(directory, progress=False)
    return run, {record["generation"] for record in small.events(directory, "worker-0")}


def test_a_coordinator_killed_in_a_rollback(
    data: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    steps = range(small.STEPS)  # whichever checkpoint it is
    faults = [Fault(1, 12, "computed"), *(Fault(COORDINATOR, s, "roll back") for s in steps)]
    coordinator.killed(data=data, run_dir=tmp_path, workers=2, forgetful=True, faults=faults)
    run, generations = resumed(tmp_path)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert generations == {0, 1}


def test_ctrl_c_in_a_rollback(
    data: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two rollbacks, which go back to the beginning: the run stops there.

    It goes on in a generation above them; what was redone is counted over both lives.
    """
    told = Recorder.rolled_back

    def rolled_back(recorder: Recorder, *args: Any) -> None:
        told(recorder, *args)
        if recorder.rollbacks == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Recorder, "rolled_back", rolled_back)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    faults = [Fault(0, 4, "reduced"), Fault(1, 2 * small.STEPS_AN_EPOCH, "computed")]
    try:
        with pytest.raises(KeyboardInterrupt):
            dayfly.train(
                small.job(data), workers=2, run_dir=tmp_path, faults=faults, progress=False
            )
    finally:
        signal.signal(signal.SIGINT, heard)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "stopped"
    run, generations = resumed(tmp_path)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert generations - {0} == {1, 3}, "the first may have ended before it said anything"
    assert run.result.restarts == 2
    history = small.history(run)
    assert history["rollbacks"] == 2
    assert [event["to_step"] for event in of_kind(tmp_path, "rolled back")] == [0, 0]
    # Reports of an epoch go at once, so the first is known to have been done, by both workers.
    assert of_kind(tmp_path, "rolled back")[1]["redone_steps"] >= small.STEPS_AN_EPOCH
    assert history["redone_steps"] >= 2 * small.STEPS_AN_EPOCH


def test_nothing_is_logged_but_a_round_must_fit() -> None:
    settings = Settings(workers=3, channel="file:///tmp/nowhere", log_budget_mib=10)
    little, much = (RoundBytes.of_sums(nbytes, 3) for nbytes in (1000, 2**22))
    plan = channel_plan(settings, "file:///tmp/nowhere", little)
    assert log_rounds(settings, "file:///tmp/nowhere", plan, little) is None
    with pytest.raises(dayfly.RequestError, match=r"may take 10 MiB.*--log-budget"):
        log_rounds(settings, "file:///tmp/nowhere", plan, much)
