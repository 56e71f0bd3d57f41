"""What an operation returns: its error arrives wherever somebody waits."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.process_group.operations import DayflyWork, SeveralWorks

VALUE = [torch.ones(2)]


def test_done() -> None:
    work = DayflyWork("send", VALUE)
    assert not work.is_completed()
    work.finish(None, 3)
    assert work.wait()
    assert work.is_success()
    assert work.exception() is None
    assert work._source_rank() == 3
    assert work.get_future().wait() is not None


def test_a_wait_has_an_end() -> None:
    work = DayflyWork("send to 1", VALUE)
    with pytest.raises(WaitTimeout, match=r"send to 1 was not over within 0\.01 s"):
        work.wait(dt.timedelta(seconds=0.01))


def test_an_error_is_raised_by_wait_and_by_the_future() -> None:
    for first in (True, False):
        work = DayflyWork("send", VALUE)
        future = work.get_future() if first else None
        work.finish(WireError("gone"))
        with pytest.raises(WireError, match="gone"):
            work.wait()
        with pytest.raises(RuntimeError, match="gone"):
            (future or work.get_future()).wait()
        assert not work.is_success()
        assert isinstance(work.exception(), WireError)


def test_callbacks_run_on_threads_that_may_wait() -> None:
    """As the PowerSGD hook does: more of them than any pool of few threads has."""
    works = [DayflyWork(f"{number}", VALUE) for number in range(100)]
    others = [DayflyWork(f"other {number}", VALUE) for number in range(100)]

    def wait_for(other: DayflyWork):  # type: ignore[no-untyped-def]
        return lambda future: other.get_future().wait()

    then = [
        work.get_future().then(wait_for(other)) for work, other in zip(works, others, strict=True)
    ]
    for work in works:
        work.finish(None)
    for other in reversed(others):
        other.finish(None)
    assert torch.futures.collect_all(then).wait()
    assert threading.current_thread() is threading.main_thread()


def test_several_are_over_when_the_last_is() -> None:
    works = [DayflyWork("a", VALUE), DayflyWork("b", [torch.zeros(1)])]
    both = SeveralWorks(works)
    works[1].finish(None)
    with pytest.raises(WaitTimeout):
        both.wait(dt.timedelta(seconds=0.01))
    works[0].finish(None)
    assert both.wait(dt.timedelta(seconds=60))
    assert [tensor.tolist() for tensor in both.result()] == [[1, 1], [0]]


def test_several_fail_with_the_first_error() -> None:
    works = [DayflyWork("a", VALUE), DayflyWork("b", VALUE)]
    both = SeveralWorks(works)
    works[0].finish(WireError("one"))
    works[1].finish(WireError("two"))
    with pytest.raises(WireError, match="one"):
        both.wait(dt.timedelta(seconds=60))
