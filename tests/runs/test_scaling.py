"""A run goes on by another plan from the next boundary between two steps, asked from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import dayfly
from dayfly.errors import RequestError, RunFailed
from dayfly.runs import coordinator
from dayfly.runs.changes import Changes
from dayfly.runs.steering import scale, stop
from dayfly.specs.events import Event, StepTold
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

    def train(self, data: Path, *, job: dict[str, Any] | None = None, **more: Any) -> dayfly.Run:
        slowly = small.Slowly(0.1, 0.1, until=self.until)
        given = {"transform": slowly, **(job or {})}
        settings = {**small.SETTINGS, "workers": 2, **more}
        run = dayfly.train(
            small.job(data, **given), run_dir=self.directory, listeners=[self], **settings
        )
        self._thread.join()
        return run


def to(**changes: Any) -> Callable[[str], str]:
    return lambda run: scale(run, Changes(**changes), _MOST_S)


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
        f"channel {channel} in place of none, memory_mib 4096 in place of none"
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
