"""Requests to a run under way: numbered objects, of which the coordinator reads each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.life.control import FOLDER, LOOK_EVERY_S, Control, Request, ask
from dayfly.wire.stores.files import FileStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "run")


STOP = Request(kind="stop")
SCALE = Request(kind="scale", changes={"workers": 8, "channel": None, "cut": [2, 4]})


def test_each_request_is_taken_once_at_the_next_look(store: FileStore, clock: Clock) -> None:
    control = Control(store, now=clock)
    assert control.take() is None
    assert (ask(store, SCALE), ask(store, STOP)) == (0, 1)
    assert control.take() is None, "between two looks nothing is read"
    clock.now += LOOK_EVERY_S
    assert control.take() == (0, SCALE)
    assert control.take() == (1, STOP), "without another wait"
    assert control.take() is None
    assert ask(store, STOP) == 2
    assert control.take() is None
    clock.now += LOOK_EVERY_S
    assert control.take() == (2, STOP)


def test_what_was_asked_of_an_earlier_life_is_passed_over(store: FileStore, clock: Clock) -> None:
    ask(store, STOP)
    control = Control(store, now=clock)
    clock.now += LOOK_EVERY_S
    assert control.take() is None
    assert ask(store, SCALE) == 1
    clock.now += LOOK_EVERY_S
    assert control.take() == (1, SCALE)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"\xff", b"{}", b'{"kind": "dance"}', b'{"kind": "scale", "changes": 3}'],
)
def test_what_is_no_request_asks_for_nothing(store: FileStore, clock: Clock, data: bytes) -> None:
    control = Control(store, now=clock)
    store.put(f"{FOLDER}/000000", data)
    ask(store, STOP)
    clock.now += LOOK_EVERY_S
    assert control.take() == (1, STOP)


def test_two_who_ask_at_once_have_two_numbers(store: FileStore) -> None:
    class Late(FileStore):
        """Lists what was there before the other one asked."""

        def list(self, prefix: str = "", after: str = "") -> object:  # type: ignore[override]
            return iter(())

    ask(store, STOP)
    assert ask(Late(store.root), STOP) == 1


def test_the_next_coordinator_answers_what_one_that_handed_over_had_not_read(
    store: FileStore, clock: Clock
) -> None:
    control = Control(store, now=clock)
    ask(store, STOP)
    follower = Control(store, first=control.next, now=clock)
    clock.now += LOOK_EVERY_S
    assert follower.take() == (0, STOP)


def test_what_somebody_else_put_there_has_no_number(store: FileStore) -> None:
    for name in ("readme.txt", "0000007", "00000x"):
        store.put(f"{FOLDER}/{name}", b"")
    assert ask(store, STOP) == 0
