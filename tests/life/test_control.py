"""Requests to a run under way: numbered objects, of which the coordinator reads each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.life.control import FOLDER, LOOK_EVERY_S, Control, ask
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


def test_a_stop_is_seen_at_the_next_look_and_stays(store: FileStore, clock: Clock) -> None:
    control = Control(store, now=clock)
    assert not control.stop_asked()
    assert ask(store, "stop") == f"{FOLDER}/000000"
    assert not control.stop_asked(), "between two looks nothing is listed"
    clock.now += LOOK_EVERY_S
    assert control.stop_asked()
    assert control.stop_asked()


def test_what_was_asked_of_an_earlier_life_is_passed_over(store: FileStore, clock: Clock) -> None:
    ask(store, "stop")
    control = Control(store, now=clock)
    clock.now += LOOK_EVERY_S
    assert not control.stop_asked()
    assert ask(store, "stop") == f"{FOLDER}/000001"
    clock.now += LOOK_EVERY_S
    assert control.stop_asked()


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"{}", b'{"kind": "dance"}'])
def test_what_is_no_request_asks_for_nothing(store: FileStore, clock: Clock, data: bytes) -> None:
    control = Control(store, now=clock)
    store.put(f"{FOLDER}/000000", data)
    clock.now += LOOK_EVERY_S
    assert not control.stop_asked()


def test_two_who_ask_at_once_have_two_numbers(store: FileStore) -> None:
    class Late(FileStore):
        """Lists what was there before the other one asked."""

        def list(self, prefix: str = "", after: str = "") -> object:  # type: ignore[override]
            return iter(())

    ask(store, "stop")
    assert ask(Late(store.root), "stop") == f"{FOLDER}/000001"


def test_the_next_coordinator_answers_what_one_that_handed_over_had_not_read(
    store: FileStore, clock: Clock
) -> None:
    control = Control(store, now=clock)
    ask(store, "stop")
    follower = Control(store, first=control.next, now=clock)
    clock.now += LOOK_EVERY_S
    assert follower.stop_asked()


def test_what_somebody_else_put_there_has_no_number(store: FileStore) -> None:
    for name in ("readme.txt", "0000007", "00000x"):
        store.put(f"{FOLDER}/{name}", b"")
    assert ask(store, "stop") == f"{FOLDER}/000000"
