"""`monitored_barrier` names who did not come; timeouts of a group are set anew."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest
import torch

from dayfly.errors import WireError
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.process_group.group import DayflyGroup
from tests.process_group.members_here import LONG_S, each, members

#: For who does not come; and for who comes, however busy the machine is.
SOON, LONG = dt.timedelta(seconds=0.2), dt.timedelta(seconds=LONG_S)


@pytest.fixture
def channel(tmp_path: Path) -> FileChannel:
    return FileChannel.make(
        tmp_path, Namespace("run", 0), senders=3, budget_bytes=2**22, ahead_bytes=2**16
    )


def barrier(group: DayflyGroup, every_rank: bool = False, within: dt.timedelta = SOON) -> str:
    """What it raises."""
    try:
        group.monitored_barrier(within, every_rank)
    except WireError as error:
        return str(error)
    return ""


def test_all_that_came_go_on(channel: FileChannel) -> None:
    with channel, members(channel, 3) as groups:
        for _ in range(3):
            assert each(groups, lambda group: barrier(group, within=LONG)) == ["", "", ""]


def test_the_first_member_names_who_did_not_come(channel: FileChannel) -> None:
    with channel, members(channel, 3) as groups:
        first, last = each([groups[0], groups[2]], barrier)
        assert first == "Rank 1 failed to pass monitoredBarrier in 200 ms"
        assert last.startswith("Rank 2 successfully reached monitoredBarrier, but received errors")
    # It is an error of that barrier alone.


def test_all_who_did_not_come_are_named_if_asked_for(channel: FileChannel) -> None:
    with channel, members(channel, 3) as groups:
        text = barrier(groups[0], every_rank=True)
        assert text == "Ranks 1, 2 failed to pass monitoredBarrier in 200 ms"
        with pytest.raises(RuntimeError, match=r"^Rank 0 timed out in monitoredBarrier"):
            groups[0].monitored_barrier(dt.timedelta(0))


def test_a_barrier_that_nobody_else_comes_to_says_that_it_timed_out(channel: FileChannel) -> None:
    with channel, members(channel, 2) as groups:
        groups[0].set_timeout(SOON)
        with pytest.raises(RuntimeError, match=r" Timed out .* from rank 1 within 0\.2 s"):
            groups[0].barrier().wait()


def test_a_future_is_whole_once_the_work_was_waited_for(channel: FileChannel) -> None:
    before = threading.active_count()  # callbacks of other tests have threads that stay
    with channel, members(channel, 2) as groups:
        for _ in range(50):
            works = [group.allreduce([torch.ones(1)]) for group in groups]
            futures = [work.get_future() for work in works]
            for work, future in zip(works, futures, strict=True):
                work.wait()
                assert future.done()
                assert work.get_future().value()[0].item() == 2.0
    assert threading.active_count() - before < 50
