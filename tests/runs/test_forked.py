"""A list of work, done by forks of a process at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dayfly.errors import DayflyError, RequestError
from dayfly.runs.choosing import forked


@pytest.fixture(autouse=True)
def three_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command: this test's process may have threads of others' making."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_results_are_in_the_order_of_the_items(count: int) -> None:
    made = forked.each(lambda item: (item, os.getpid()), range(count))
    assert [item for item, _ in made] == list(range(count))
    assert len({pid for _, pid in made}) == min(count, 3)
    assert all(pid == os.getpid() for item, pid in made if item % 3 == 0)


def test_a_process_of_several_threads_is_not_forked() -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        assert set(forked.each(lambda item: os.getpid(), range(4))) == {os.getpid()}
    finally:
        ended.set()
        other.join()


@pytest.mark.usefixtures("alone")
def test_what_the_first_item_raises_is_raised() -> None:
    def work(item: int) -> int:
        if item in (1, 3):
            raise RequestError(f"item {item}")
        return item

    with pytest.raises(RequestError, match="item 1"):
        forked.each(work, range(5))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("dies", "status"), [(lambda: os.kill(os.getpid(), 9), -9), (lambda: os._exit(3), 3)]
)
def test_a_fork_that_dies_is_named_and_none_is_left(dies: Callable[[], None], status: int) -> None:
    here, before = os.getpid(), _children()

    def work(item: int) -> int:
        if os.getpid() != here and item == 2:
            dies()
        return item

    with pytest.raises(DayflyError, match=f"ended with status {status}"):
        forked.each(work, range(3))
    assert _children() == before


@pytest.mark.usefixtures("alone")
def test_ctrl_c_leaves_no_fork() -> None:
    here, before = os.getpid(), _children()

    def work(item: int) -> int:
        if os.getpid() == here:
            raise KeyboardInterrupt
        return item

    with pytest.raises(KeyboardInterrupt):
        forked.each(work, range(3))
    assert _children() == before


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
