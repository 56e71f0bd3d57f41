"""The channel of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kind import Abilities


class Distant(FileChannel):
    """As if a link were between: uplink and downlink beside each other, several requests each."""

    immediate = False
    abilities = Abilities(in_flight=3)


@pytest.fixture(params=[FileChannel, Distant], ids=["immediate", "distant"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Channel]:
    """Rank 0's channel; tests play the other ranks by hand on it."""
    made = request.param.make(
        tmp_path, Namespace("run", 0), senders=4, budget_bytes=2**24, ahead_bytes=2**18
    )
    with made as channel:
        yield channel
