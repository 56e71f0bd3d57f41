"""What a channel does to a schedule."""

from __future__ import annotations

import pytest

from dayfly.planning.ranks import channel_of, in_flight
from dayfly.wire.shaping import IN_FLIGHT


@pytest.mark.parametrize(
    ("channel", "limited", "most"),
    [
        ("file:///dev/shm", False, 1),
        ("file:///dev/shm", True, IN_FLIGHT),  # each waits for its latency
        ("redis://here", False, 4),
        ("redis://here", True, 4),
    ],
)
def test_requests_at_once(channel: str, limited: bool, most: int) -> None:
    assert in_flight(channel_of(channel), limited=limited) == most
