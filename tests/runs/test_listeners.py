"""Listeners hear all that happens in a run, and never hold it up."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life import control
from dayfly.life.faults import Fault
from dayfly.runs import coordinator, listeners
from dayfly.runs.directory import is_a_run_now
from dayfly.runs.display import Display
from dayfly.runs.listeners import Listener, Listeners, chosen
from dayfly.runs.scripts import launch as scripts
from dayfly.runs.scripts.record import ScriptSettings
from dayfly.specs.events import Begun, Committed, Ended, EpochTold, Event, Over, StepTold, Stopping
from dayfly.wire.stores.files import FileStore
from tests.runs import small

EVENT = Stopping(at=1.0)


def nothing(source: str, event: Event) -> None:
    return None


def test_each_hears_all_in_order_before_the_run_is_over() -> None:
    heard: list[tuple[str, Event]] = []
    at_once: list[str] = []
    notes: list[str] = []
    told = [("coordinator", EVENT), ("worker-1", Stopping(at=2.0)), ("worker-0", EVENT)]
    with Listeners(
        lambda source, _: at_once.append(source),
        [lambda *one: heard.append(one), nothing],
        notes.append,
    ) as some:
        for source, event in told:
            some.publish(source, event)
        assert at_once == [source for source, _ in told], "the display, at once"
    assert (heard, notes) == (told, [])


@pytest.mark.parametrize("raised", [ValueError("no such table"), SystemExit(3)])
def test_one_that_fails_is_heard_of_and_disturbs_nobody(raised: BaseException) -> None:
    heard: list[Event] = []
    notes: list[str] = []

    def broken(source: str, event: Event) -> None:
        raise raised

    with Listeners(nothing, [broken, lambda _, event: heard.append(event)], notes.append) as some:
        for _ in range(3):
            some.publish("coordinator", EVENT)
    assert heard == [EVENT] * 3
    (note,) = notes
    words = f"{type(raised).__name__}: {raised}"
    assert note == f"listener broken failed, and heard nothing from then on: {words}"


@pytest.mark.parametrize("events", [10, 3])  # with three there is room for the end beside them
def test_one_that_hangs_holds_nobody_up_and_what_it_missed_is_counted(
    events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_MOST", 4)
    monkeypatch.setattr(listeners, "_END_S", 0.05)
    goes_on, has_one = threading.Event(), threading.Event()
    notes: list[str] = []

    def stuck(source: str, event: Event) -> None:
        has_one.set()
        goes_on.wait()

    try:
        with Listeners(nothing, [stuck], notes.append) as some:
            some.publish("coordinator", EVENT)
            assert has_one.wait(60)
            for _ in range(events):
                some.publish("coordinator", EVENT)
    finally:
        goes_on.set()
    assert notes == [f"listener stuck was too slow: it missed {events} events"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nobody", "listener 'nobody' is not known: install the package"),
        (7, "a listener is a function"),
    ],
)
def test_what_is_none_is_refused(given: Listener | str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        chosen([given])


@pytest.mark.long
def test_a_run_tells_what_its_event_files_have(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    heard: list[tuple[str, Event]] = []
    run = dayfly.train(
        small.job(data),
        workers=2,
        run_dir=tmp_path / "run",
        progress=False,
        faults=[Fault(1, 5, "grad-reduce")],
        listeners=[lambda *one: heard.append(one)],
    )
    assert small.bits(run) == small.bits(undisturbed(2))
    for source in ("coordinator", "worker-0", "worker-1"):
        written = [one["kind"] for one in small.events(run.directory, source)]
        told = [event.kind for name, event in heard if name == source]
        assert [kind for kind in written if kind in set(told)] == [one for one in told if one]
    kinds = [type(event) for _, event in heard]
    assert (kinds[0], kinds[-1]) == (Begun, Over)
    assert {StepTold, EpochTold, Committed} <= set(kinds)
    assert sum(isinstance(event, Ended) and event.death for _, event in heard) == 1


@pytest.mark.long
def test_a_stop_asked_for_as_soon_as_the_run_can_be_found_ends_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(directory: Path) -> None:
        is_a_run_now(directory)
        control.ask(FileStore(directory), control.Request(kind="stop"))

    monkeypatch.setattr(coordinator, "is_a_run_now", found)
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.0)
    job = small.job(data, epochs=1000)
    run = dayfly.train(job, workers=1, run_dir=tmp_path, **small.SETTINGS)
    assert (run.result.status, run.stop_reason) == ("stopped", "signal")


@pytest.mark.long
def test_those_of_a_script_hear_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    heard: list[type[Event]] = []
    scripts.begin(
        "script.py",
        (),
        ScriptSettings(),
        directory=tmp_path / "run",
        display=Display(),
        output=io.StringIO(),
        listeners=[lambda source, event: heard.append(type(event))],
    )
    assert heard[0] is Begun
    assert heard[-1] is Over
    assert Ended in heard
