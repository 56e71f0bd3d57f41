"""Collectives begin in their order, each in its lane."""

from __future__ import annotations

import threading

import pytest

from dayfly.threads import show
from dayfly.wire.process_group.collectives import Order


@pytest.mark.parametrize("lanes", [1, 3])
def test_number_k_runs_in_lane_k_modulo_lanes(lanes: int) -> None:
    order = Order(lanes, "0", show)
    ran: list[tuple[int, str]] = []
    lock = threading.Lock()

    def job(number: int) -> None:
        with lock:
            ran.append((number, threading.current_thread().name))

    for _ in range(10):
        order.add(job)
    assert order.close(60)
    assert sorted(number for number, _ in ran) == list(range(10))
    for lane in range(lanes):
        mine = [number for number, name in ran if name == f"dayfly-0-{lane}"]
        assert mine == list(range(lane, 10, lanes))


def test_one_that_waits_holds_up_its_lane_only() -> None:
    order = Order(2, "0", show)
    go, second, third = threading.Event(), threading.Event(), threading.Event()
    order.add(lambda number: go.wait(60))
    order.add(lambda number: second.set())
    order.add(lambda number: third.set())
    assert second.wait(60)
    assert not third.is_set()
    go.set()
    assert order.close(60)
    assert third.is_set()


def test_what_comes_after_has_the_same_number() -> None:
    order = Order(2, "0", show)
    ran: list[tuple[str, int]] = []
    order.add(lambda number: None)
    order.add(lambda n: ran.append(("first", n)), lambda n: ran.append(("after", n)))
    assert order.close(60)
    assert ran == [("first", 1), ("after", 1)]


def test_closed_takes_no_more() -> None:
    order = Order(1, "0", show)
    assert order.close(60)
    with pytest.raises(RuntimeError, match="the group 0 was destroyed"):
        order.add(lambda number: None)


def test_closing_says_whether_all_has_ended() -> None:
    order = Order(1, "0", show)
    go = threading.Event()
    order.add(lambda number: go.wait(60))
    assert not order.close(0.01)
    go.set()
    assert order.close(60)


def test_what_a_job_raises_is_told_and_the_lane_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(str(args.exc_value)))
    told: list[BaseException] = []
    order = Order(1, "0", told.append)
    ran = threading.Event()
    order.add(lambda number: [].remove(number))
    order.add(lambda number: ran.set())
    assert ran.wait(60)
    assert order.close(60)
    assert [type(error) for error in told] == [ValueError]
    assert shown == [str(told[0])]
