"""The suite's fixtures: a place for every channel, and channels that are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dayfly.wire.channels.conformance import ChannelPlace, Connect, connecting
from tests.channels.places import PLACES

#: One of each way to move messages: memory, a server's, sockets.
QUICK = ("files-tmpfs", "redis", "tcp")


EVERY = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in sorted(PLACES)
]


@pytest.fixture(params=EVERY)
def place(request: pytest.FixtureRequest) -> Iterator[ChannelPlace]:
    """Each of `PLACES`, fresh for each test."""
    with PLACES[request.param]() as place:
        yield place


@pytest.fixture
def connect(place: ChannelPlace) -> Iterator[Connect]:
    """Opens channels at the place."""
    with connecting(place) as connect:
        yield connect
