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
@pytest.mark.parametrize("allowed", [0, 1])
def test_where_no_more_processes_are_allowed_those_that_there_are_do_all(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    fork, made, files = os.fork, list[int](), _files()

    def limited() -> int:
        if len(made) == allowed:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(fork())
        return made[-1]

    monkeypatch.setattr(os, "fork", limited)
    assert set(forked.each(lambda item: os.getpid(), range(4))) == {os.getpid(), *made}
    assert _files() == files


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
def test_a_deadline_holds_in_forks_and_for_what_they_do() -> None:
    before = forked.cpu_s()

    def work(item: int) -> float:
        began = forked.cpu_s()
        while forked.cpu_s() < began + 0.05 * item:
            pass
        return forked.cpu_s()

    after = forked.each(work, range(3))
    assert all(before + 0.05 * item <= at < before + 2 for item, at in enumerate(after))
    # This process computed nothing, and waited for the longer of its forks.
    assert before + 0.1 <= forked.cpu_s() < before + 2


@pytest.mark.usefixtures("alone")
def test_no_more_forks_than_items_that_are_asked_for_at_once() -> None:
    before = _children()
    with forked.Forks(lambda item: item, range(9), at_once=2) as forks:
        assert len(_children() - before) == 1
        assert forks.of([3, 4, 5]) == [3, 4, 5]


@pytest.mark.usefixtures("alone")
def test_answers_and_errors_of_any_size() -> None:
    """Larger than a pipe holds, or such that they cannot be sent."""

    def work(item: int) -> object:
        if item == 3:
            return bytes(2**18)
        if item == 4:
            raise RequestError("x" * 2**18)
        return (lambda: item) if item == 5 else item

    with forked.Forks(work, range(6)) as forks:
        assert forks.of([3, 3, 3]) == [bytes(2**18)] * 3
        assert forks.of([0, 1, 2] * 50_000) == [0, 1, 2] * 50_000
        with pytest.raises(RequestError) as refused:
            forks.of([0, 4, 2])
        assert str(refused.value) == "x" * 2**18
        with pytest.raises(DayflyError, match="cannot send what it found"):
            forks.of([0, 5, 2])
        assert forks.of([1, 2]) == [1, 2]


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
        try:
            mine, *forks = map(int, process.stdout.readline().split())
        finally:
            process.kill()
    assert mine == process.pid
    assert len(set(forks)) == 2
    eventually("the forks' end", lambda: not any(map(is_alive, forks)))


def test_a_fork_that_computes_ends_with_that_process_and_its_own_forks_do() -> None:
    program = (
        "import os, time\n"
        "from dayfly.planning.choose import forked\n"
        "os.sched_getaffinity = lambda pid: {0, 1}\n"
        "def computing(item):\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"
        "    time.sleep(600)\n"
        "forked.each(lambda item: forked.each(computing, range(2)), range(2))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            every = {int(process.stdout.readline()) for _ in range(4)}
        finally:
            process.kill()
    assert len(every) == 4
    assert process.pid in every
    eventually("the forks' end", lambda: not any(map(is_alive, every - {process.pid})))


def _files() -> set[str]:
    """Those that this process has open, but for the one that lists them."""
    with os.scandir("/proc/self/fd") as listed:
        return {one.name for one in listed if "/fd" not in os.readlink(one.path)}


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
