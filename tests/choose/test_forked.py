"""A list of work, done by forks of a process at the same time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dayfly.errors import DayflyError, RequestError
from dayfly.planning.choose import forked
from tests.platforms.platform_testing import eventually, is_alive


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
def test_where_no_more_processes_are_allowed_this_one_does_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert set(forked.each(lambda item: os.getpid(), range(4))) == {os.getpid()}


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
def test_forks_stay_until_they_are_closed_and_remember_what_they_did() -> None:
    before, seen = _children(), list[int]()

    def work(item: int) -> tuple[int, int, int]:
        seen.append(item)
        return item, os.getpid(), len(seen)

    with forked.Forks(work, range(9)) as forks:
        found = [forks.of(numbers) for numbers in ([8, 1, 4], [2], [], [5, 0, 7, 3])]
        assert len(_children() - before) == 2
    assert [[item for item, _, _ in some] for some in found] == [[8, 1, 4], [2], [], [5, 0, 7, 3]]
    (mine, first, second), (_, again, *_) = found[0], found[3]
    assert (mine[1], first[2], second[2]) == (os.getpid(), 1, 1)
    assert again == (0, first[1], 2)
    assert _children() == before


@pytest.mark.usefixtures("alone")
def test_a_deadline_holds_in_forks() -> None:
    began = forked.cpu_s()
    while forked.cpu_s() < began + 0.1:
        pass
    deadline = forked.cpu_s()
    assert min(forked.each(lambda item: forked.cpu_s(), range(3))) >= deadline


@pytest.mark.usefixtures("alone")
def test_ctrl_c_leaves_no_fork() -> None:
    here, before = os.getpid(), _children()

    def work(item: int) -> int:
        if os.getpid() == here:
            raise KeyboardInterrupt
        time.sleep(600)  # nobody waits for it
        return item

    with pytest.raises(KeyboardInterrupt):
        forked.each(work, range(3))
    assert _children() == before


def test_a_fork_ends_with_the_process_that_has_it() -> None:
    """Killed as it is, that process closes nothing."""
    program = (
        "import os, time\n"
        "from dayfly.planning.choose import forked\n"
        "os.sched_getaffinity = lambda pid: {0, 1, 2}\n"
        "with forked.Forks(lambda item: os.getpid(), range(3)) as forks:\n"
        "    print(*forks.of(range(3)), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        mine, *forks = map(int, process.stdout.readline().split())
        assert mine == process.pid
        assert len(set(forks)) == 2
        process.kill()
    eventually("the forks' end", lambda: not any(map(is_alive, forks)))


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
