"""Workers for the whole session: starting them costs the import of torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process_group.world import World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with World() as workers:
        yield workers
        workers.end_all()
        assert workers.crashes() == []
