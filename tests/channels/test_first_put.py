"""The first put wins among processes, too; among threads, see `ChannelConformance`."""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import pytest

from dayfly.wire.channels.conformance import NAMESPACE, ChannelPlace, Connect
from dayfly.wire.channels.conformance_messages import check_one_winner, put_all, read_all
from dayfly.wire.keys import COORDINATOR
from tests.channels.processes import CONTEXT, in_processes

pytestmark = pytest.mark.long


def test_four_processes_race(connect: Connect, place: ChannelPlace) -> None:
    """A fifth reads beside them what each key holds."""
    connect(COORDINATOR)
    race = partial(_race, CONTEXT.Barrier(4))
    *won, read = in_processes(race, place, 5)
    check_one_winner(won, read)


def _race(barrier: Barrier, place: ChannelPlace, rank: int, _: int, result: Connection) -> None:
    with place.open(NAMESPACE, rank) as channel:
        result.send(put_all(channel, rank, barrier) if rank < 4 else read_all(channel))
