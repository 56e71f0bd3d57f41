"""The channel of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives.conformance_world import LinkedChannel


@pytest.fixture(params=[FileChannel, LinkedChannel], ids=["immediate", "distant"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Channel]:
    """Rank 0's channel; tests play the other ranks by hand on it."""
    made = request.param.make(
        tmp_path, Namespace("run", 0), senders=4, budget_bytes=2**24, ahead_bytes=2**18
    )
    with made as channel:
        yield channel
