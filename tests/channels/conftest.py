"""The suite's fixtures: a place for every channel, and channels that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from tests.channels.places import NAMESPACE, PLACES, Place

Connect = Callable[..., Channel]


#: One of each way to move messages: memory, a server's, sockets.
QUICK = ("files-tmpfs", "redis", "tcp")


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in sorted(PLACES)
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each of `PLACES`, fresh for each test."""
    with PLACES[request.param]() as place:
        yield place


@pytest.fixture
def connect(place: Place) -> Iterator[Connect]:
    """Opens a channel at the place: `connect(reader=1, namespace=...)`, made if it was not yet.

    again: whether to make it anew, after it was destroyed.
    """
    made: set[Namespace] = set()
    with ExitStack() as stack:

        def connect(
            reader: int = 0, namespace: Namespace = NAMESPACE, *, again: bool = False
        ) -> Channel:
            if again or namespace not in made:
                stack.enter_context(place.make(namespace))
                made.add(namespace)
            return stack.enter_context(place.open(namespace, reader))

        yield connect
