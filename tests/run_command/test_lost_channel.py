"""A channel that is lost in the middle of a run: what is shown is the cause, not its clean-up."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import WireError
from dayfly.runs import launch as jobs
from dayfly.runs.scripts import launch as scripts
from dayfly.runs.scripts.record import ScriptSettings
from dayfly.runs.settings import Settings
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kinds import Files
from dayfly.wire.keys import COORDINATOR, Key
from tests.run_command.scripts import Notes
from tests.runs import small

pytestmark = pytest.mark.long

LOOKS = "looking: the store has not answered"


class Store:
    """What files in memory are in these tests: they answer until all workers have begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._made = 0
        self._in_vain("destroy", "removing: the store has not answered", self._is_checked)

    def die_at_a_look(self) -> None:
        waiting = FileChannel.waiting

        def looked(channel: FileChannel, destination: int) -> Sequence[Key]:
            found = waiting(channel, destination)
            if destination == COORDINATOR and found:
                self._in_vain("create", "the store cannot be reached", lambda: True, of=Files)
                raise WireError(LOOKS)
            return found

        self._monkeypatch.setattr(FileChannel, "waiting", looked)

    def _is_checked(self) -> bool:
        """The first channel is made to see whether there can be one."""
        self._made += 1
        return self._made > 1

    def _in_vain(
        self, name: str, why: str, now: Callable[[], bool], of: type = FileChannel
    ) -> None:
        works = getattr(of, name)

        def act(*args: Any) -> Any:
            if now():
                raise WireError(why)
            return works(*args)

        self._monkeypatch.setattr(of, name, act)


def train(here: Path) -> tuple[str, str, list[str]]:
    """Status, error and notes."""
    notes = Notes()
    job = small.job(small.write_data(here), epochs=1)
    made = jobs.begin(job, Settings(workers=2), directory=here / "run", display=notes)
    return made.result.status, made.result.error or "", notes.said


def script(here: Path) -> tuple[str, str, list[str]]:
    (here / "script.py").write_text("print('ran')")
    settings, notes = ScriptSettings(workers=1), Notes()
    made = scripts.begin(
        "script.py", (), settings, directory=here / "run", display=notes, output=io.StringIO()
    )
    return made.result.status, made.result.error or "", notes.said


def of_cleaning_up(notes: Sequence[str]) -> list[str]:
    return [note for note in notes if note.startswith("what is left of the run at file:///")]


@pytest.mark.parametrize("run", [script, train])
def test_a_run_that_is_done_is_done(
    run: Callable[[Path], tuple[str, str, list[str]]], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(monkeypatch)
    status, error, notes = run(here)
    assert (status, error) == ("done", "")
    (note,) = of_cleaning_up(notes)
    assert note.endswith(" stays there: removing: the store has not answered")


@pytest.mark.parametrize(
    ("run", "replays"),
    [(script, True), (train, True), (train, False)],
    ids=["script", "train", "all-again"],
)
def test_the_failure_that_ended_it_is_what_is_shown(
    run: Callable[[Path], tuple[str, str, list[str]]],
    replays: bool,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Files, "abilities", replace(Files.abilities, replays=replays))
    Store(monkeypatch).die_at_a_look()
    status, error, notes = run(here)
    assert status == "failed"
    if run is train and replays:
        assert error == f"WireError: {LOOKS}"
    else:
        assert error == (
            f"the channel failed: WireError: {LOOKS}; and no worker could start again: "
            "the store cannot be reached"
        )
    assert len(of_cleaning_up(notes)) == 1
