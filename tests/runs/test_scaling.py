"""A run goes on by another plan from the next boundary between two steps, asked from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from benchmarks.scaling import stalls

import dayfly
from dayfly.errors import RequestError, RunFailed
from dayfly.life.control import Request, ask
from dayfly.life.faults import Fault
from dayfly.life.platforms.base import PLATFORMS
from dayfly.life.platforms.local import LocalPlatform
from dayfly.runs import coordinator
from dayfly.runs.changes import Changes
from dayfly.runs.events import Events
from dayfly.runs.job_record import Record
from dayfly.runs.report.reading import rebill
from dayfly.runs.steering import scale, stop
from dayfly.specs.events import Event, GenerationBegun, StepTold
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator as coordinator_process
from tests.runs import small, staged

pytestmark = pytest.mark.long

#: How long a change may take to come about.
_MOST_S = 60.0


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.05)


class Asking:
    """A listener that asks for something once a step is done; steps last until it has an answer.

    asks: is given the run's directory.
    """

    def __init__(self, directory: Path, asks: Callable[[str], Any]) -> None:
        self.directory = directory / "run"
        self.until = directory / "fast"
        self.answer: Any = None
        self._thread = threading.Thread(target=self._ask, args=(asks,))
        self._first = True

    def __call__(self, source: str, event: Event) -> None:
        if self._first and isinstance(event, StepTold):
            self._first = False
            self._thread.start()

    def _ask(self, asks: Callable[[str], Any]) -> None:
        try:
            self.answer = asks(str(self.directory))
        except (RequestError, RunFailed) as error:
            self.answer = error
        finally:
            self.until.touch()

    def train(
        self, data: Path, *, job: dict[str, Any] | None = None, step_s: float = 0.1, **more: Any
    ) -> dayfly.Run:
        slowly = small.Slowly(step_s, step_s, until=self.until)
        given = {"transform": slowly, **(job or {})}
        settings = {**small.SETTINGS, "workers": 2, **more}
        run = dayfly.train(
            small.job(data, **given), run_dir=self.directory, listeners=[self], **settings
        )
        self._thread.join()
        return run


def to(**changes: Any) -> Callable[[str], str]:
    return lambda run: scale(run, Changes(**changes), _MOST_S)


def wait_until(happened: Callable[[], bool]) -> None:
    ends = time.monotonic() + _MOST_S
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.05)


def generations(run: dayfly.Run) -> list[dict[str, Any]]:
    found = small.events(run.directory, "coordinator")
    return [event for event in found if event["kind"] == "generation"]


def test_another_channel_in_mid_run_leaves_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    channel = f"file://{tmp_path}/messages"
    asking = Asking(tmp_path, to(channel=channel, memory_mib=4096))
    run = asking.train(data)
    first, second = generations(run)
    assert 0 < second["first_step"] < small.STEPS
    assert asking.answer == f"{asking.directory} from step {second['first_step']} on: " + (
        f"--channel {channel} in place of none, --memory 4096 in place of none"
    )
    assert (first["request"], second["request"]) == (None, 0)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert small.recomputed(run.directory, 2) == set()
    assert (run.result.restarts, run.result.steps) == (0, small.STEPS)
    invoked = [
        one for one in small.events(run.directory, "coordinator") if one["kind"] == "invoked"
    ]
    assert [one["memory_mib"] for one in invoked] == [None, None, 4096, 4096]
    assert not (tmp_path / "messages").exists() or not any((tmp_path / "messages").iterdir())


class Elsewhere(LocalPlatform):
    """Another place, as far as anybody can tell."""


class Far(LocalPlatform):
    """A place that does not see this machine's files."""

    on_this_machine = False


def test_another_platform_with_its_own_prices_leaves_the_same_bits_and_the_bill_has_both(
    data: Path,
    tmp_path: Path,
    undisturbed: Callable[[int], dayfly.Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {**PLATFORMS._built_in, "elsewhere": Elsewhere, "far": Far}
    monkeypatch.setattr(PLATFORMS, "_built_in", places)

    def both(run: str) -> str:
        with pytest.raises(RequestError, match=r"cannot reach the run.s data in .* --store"):
            scale(run, Changes(platform="far"), _MOST_S)
        changes = Changes(platform="elsewhere", imitate="alibaba-fc", memory_mib=2048)
        return scale(run, changes, _MOST_S)

    run = Asking(tmp_path, both).train(data)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert run.result.price_list == "aws-lambda and alibaba-fc"
    rows = run.bill["invocations"]
    assert [row["price_list"] for row in rows] == ["aws-lambda"] * 2 + ["alibaba-fc"] * 2
    assert run.bill["cost_usd"] == pytest.approx(sum(row["cost_usd"] for row in rows))
    assert rebill(run.directory).cost_usd == pytest.approx(run.bill["cost_usd"])
    assert rebill(run.directory, "cloud-run").price_list == "cloud-run"


def test_more_workers_take_each_sample_once(data: Path, tmp_path: Path) -> None:
    """Without dropout and batch statistics, whose numbers depend on the slices."""
    plain = {"model": small.plain_model}
    asking = Asking(tmp_path, to(workers=3))
    run = asking.train(data, job=plain)
    assert run.result.workers == 3
    assert [one["workers"] for one in generations(run)] == [2, 3]
    other = dayfly.train(
        small.job(data, **plain), workers=1, run_dir=tmp_path / "other", **small.SETTINGS
    )
    ours, theirs = (
        safetensors.torch.load_file(one.directory / "weights.safetensors") for one in (run, other)
    )
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)
    assert [one["epoch"] for one in run.history] == [1, 2, 3]
    boundary = generations(run)[1]["first_step"]
    steps = [
        [
            one["step"]
            for one in small.events(run.directory, f"worker-{rank}")
            if one["kind"] == "step"
        ]
        for rank in range(3)
    ]
    assert steps == [[*range(small.STEPS)]] * 2 + [[*range(boundary, small.STEPS)]]
    resumed = dayfly.resume(run.directory, epochs=small.EPOCHS + 1, progress=False)
    assert resumed.result.workers == 3, "a run that goes on keeps its plan"


def test_a_cold_start_is_over_before_the_workers_end(data: Path, tmp_path: Path) -> None:
    cold_s = 2.0
    run = Asking(tmp_path, to(workers=3)).train(data, cold_start_s=cold_s)
    assert len(stalls(Events.read(run.directory / "events"))) == 1
    told = small.events(run.directory, "coordinator")
    ended = [one for one in told if one["kind"] == "ended"]
    invoked_s = [
        one["at"] for one in told if one["kind"] == "invoked" and "successor" in one["function"]
    ]
    over_s = [one["at"] for one in ended if "worker" in one["used"]["function"]]
    assert min(over_s) > max(invoked_s) + cold_s
    assert {one["used"]["function"] for one in ended} == {
        *(f"worker-{rank}" for rank in range(2)),
        *(f"successor-{rank}" for rank in range(3)),
    }
    assert all(one["used"]["init_s"] >= cold_s for one in ended), "the cold start is billed"


@pytest.mark.slow  # it waits for lifetimes; warm successors at a change are tested above
def test_successors_of_all_are_there_before_their_lifetimes_end(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    reference = undisturbed(2)  # first, so that functions start from a warm zygote
    run = dayfly.train(
        small.job(data, transform=small.Slowly(0.55, 0.55)),
        workers=2,
        lifetime_s=14.0,  # under load, workers of shorter lives hand over one by one
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert small.bits(run) == small.bits(reference)
    assert len(generations(run)) >= 2
    ended = [one for one in small.events(run.directory, "coordinator") if one["kind"] == "ended"]
    assert {one["result"]["status"] for one in ended} == {"stopped", "done"}, "nobody was late"
    assert run.result.restarts == 0
    assert small.recomputed(run.directory, 2) == set()


class Damaging(torch.optim.Adam):
    """Loads its state with one wrong bit in the process that removes a file first."""

    there: Path

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if "DAYFLY_SESSION" in os.environ:  # in a function
            with suppress(FileNotFoundError):
                self.there.unlink()
                first = next(iter(self.state.values()))["exp_avg"]
                first.view(torch.int32).view(-1)[0] ^= 1


def damaging(there: Path, parameters: Any) -> torch.optim.Optimizer:
    optimizer = Damaging(parameters, lr=0.01)
    optimizer.there = there
    return optimizer


def test_a_newcomer_with_a_wrong_bit_fails_the_run_which_goes_on_from_its_checkpoint(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    there = tmp_path / "there"

    def asks(run: str) -> str:
        there.touch()
        return scale(run, Changes(memory_mib=4096), _MOST_S)

    asking = Asking(tmp_path, asks)
    wrong = r"worker (\d) loaded another state before step (\d+) than worker \d computed"
    with pytest.raises(RunFailed, match=wrong) as failed:
        asking.train(data, job={"optimizer": partial(damaging, there)})
    asking._thread.join()
    assert not there.exists()
    found = re.search(wrong, str(failed.value))
    assert found is not None
    assert asking.answer.startswith(f"{asking.directory} from step {found[2]} on: --memory 4096")
    run = dayfly.resume(asking.directory, progress=False)
    assert small.bits(run) == small.bits(undisturbed(2))


def test_what_a_coordinator_has_accepted_is_carried_out_by_the_next_one_if_it_is_killed(
    data: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    here = shutil.copy(data, tmp_path)
    process = coordinator_process.start(
        data=here,
        run_dir=directory,
        workers=2,
        job="tests.runs.small:slow_job",
        faults=[Fault(COORDINATOR, 0, "warming")],
    )
    asked: list[str] = []
    try:
        wait_until((directory / "events" / "worker-0.jsonl").exists)
        with pytest.raises(RunFailed, match=r"--resume .* carries it out"):
            asked.append(scale(str(directory), Changes(workers=3), _MOST_S))
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "by the fault"
    stopping = ask(FileStore(directory), Request(kind="stop"))

    def hear(source: str, event: Event) -> None:
        if isinstance(event, GenerationBegun) and event.request == 0:
            (tmp_path / "fast").touch()

    run = dayfly.resume(directory, progress=False, listeners=[hear])
    assert stopping == 1
    assert run.result.status == "done", "who goes on does not want what was asked before"
    assert run.result.workers == 3
    assert [one["request"] for one in generations(run)] == [None, None, 0]
    again = dayfly.resume(directory, epochs=small.EPOCHS + 1, progress=False)
    assert [one["request"] for one in generations(again)] == [None, None, 0, None]


def test_a_resume_with_other_settings_outdoes_what_was_asked_before(
    data: Path, tmp_path: Path
) -> None:
    """The coordinator is killed before it looks; then --workers says something else."""
    directory = tmp_path / "run"
    first = Asking(tmp_path, lambda run: stop(run, _MOST_S)).train(data)
    assert first.result.status == "stopped"
    store = FileStore(directory)
    record = replace(Record.load(directory), status="running", next_request=1)
    record.save(store)
    assert ask(store, Request(kind="scale", changes={"workers": 3})) == 1
    run = dayfly.resume(directory, workers=1, progress=False)
    assert run.result.workers == 1
    (answer,) = [one for one in small.events(directory, "coordinator") if one["kind"] == "change"]
    assert answer["refused"] == "the run was resumed with workers 1 after that was asked for"


def test_another_cut_in_mid_run_leaves_the_same_bits(data: Path, tmp_path: Path) -> None:
    """No bit depends on where a model is cut."""
    undisturbed = staged.train(data, tmp_path / "undisturbed", 1)
    asking = Asking(tmp_path, to(cut=(3,), schedule="1f1b"))
    run = asking.train(data, **{**staged.SETTINGS, "workers": 3})
    assert [one["workers"] for one in generations(run)] == [3, 2]
    assert small.bits(run) == small.bits(undisturbed)


def test_what_cannot_be_is_refused_and_the_run_goes_on_as_it_was(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"workers": 0}, "--workers 0: give 1 to 10000"),
        ({"workers": 2}, "the run has these settings already"),
        ({"workers": 30}, "a batch of 20 cannot be shared by 30 workers"),
        ({"collective": "push-pull"}, "needs a channel that sums"),
        ({"channel": "redis://127.0.0.1:1/0"}, "--channel redis://127.0.0.1:1/0: "),
        ({"cut": (1, 9)}, "--cut 1,9: the model has 5 layers"),
        ({"sync": "local-sgd", "k": 4, "cut": (3,)}, "local-sgd cannot have --cut"),
        ({"sync": "local-sgd", "k": 4, "fragments": 2}, "give --sync local-sgd --k N --outer"),
        (
            {"sync": "local-sgd", "k": 4, "outer": "nesterov", "fragments": 4},
            "--fragments 4 are more than the model's 3 layers",
        ),
    ]
    said: list[str] = []

    def asks(run: str) -> None:
        for changes, _ in refused:
            with pytest.raises(RequestError) as caught:
                to(**changes)(run)
            said.append(str(caught.value))

    run = Asking(tmp_path, asks).train(data)
    assert len(said) == len(refused)
    for text, (_, words) in zip(said, refused, strict=True):
        assert words in text
    assert len(generations(run)) == 1
    assert small.bits(run) == small.bits(undisturbed(2))


def test_a_run_that_stops_answers_what_it_was_asked_before(data: Path, tmp_path: Path) -> None:
    def both(run: str) -> list[str]:
        answers: list[str] = []

        def change() -> None:
            try:
                answers.append(scale(run, Changes(workers=3), _MOST_S))
            except (RequestError, RunFailed) as error:
                answers.append(str(error))

        other = threading.Thread(target=change)
        other.start()
        answers.append(stop(run, _MOST_S))
        other.join()
        return answers

    asking = Asking(tmp_path, both)
    run = asking.train(data)
    assert run.result.status == "stopped"
    assert len(asking.answer) == 2, "both have an answer, whichever was heard first"
    with pytest.raises(RequestError, match="only a run under way changes its plan"):
        scale(str(asking.directory), Changes(workers=3), 1.0)


def test_nothing_to_change_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(RequestError, match="nothing is to change"):
        Changes()
    with pytest.raises(RequestError, match="ftp"):
        Changes(channel="ftp://somewhere")


def test_shares_may_change_and_another_number_of_workers_needs_them_anew(
    data: Path, tmp_path: Path
) -> None:
    """Each sample is taken once, whoever takes it."""
    said: list[str] = []

    def asks(run: str) -> str:
        with pytest.raises(RequestError) as caught:
            scale(run, Changes(workers=3), _MOST_S)
        said.append(str(caught.value))
        return scale(run, Changes(shares=(1, 2, 1), each_memory_mib=(2048, 4096, 2048)), _MOST_S)

    asking = Asking(tmp_path, asks)
    run = asking.train(data, shares=(3, 1), job={"model": small.plain_model})
    assert "--workers 3: --shares 3,1 is of 2 workers: give --shares anew, too" in said[0]
    words = "--memory 2048,4096,2048 in place of none, --shares 1,2,1 in place of 3,1"
    assert all(one in asking.answer for one in words.split(", "))
    assert "--workers 3 in place of 2" in asking.answer
    assert (run.result.steps, run.result.workers) == (small.STEPS, 3)
    alone = dayfly.train(
        small.job(data, model=small.plain_model), run_dir=tmp_path / "alone", **small.SETTINGS
    )
    assert small.history(run)["step_loss"] == pytest.approx(
        small.history(alone)["step_loss"], abs=1e-5
    )
