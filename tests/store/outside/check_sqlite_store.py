"""What the author of a store runs: the suite, over a store of its own."""

from __future__ import annotations

import pytest

from dayfly.wire.stores import open_store
from dayfly.wire.stores.conformance import StoreConformance


class TestSqlite(StoreConformance):
    """All promises of `Store`."""

    @pytest.fixture
    def store(self, tmp_path):
        return open_store(f"sqlite://{tmp_path}/objects.db")
