"""Every store keeps what `Store` promises: see `dayfly.wire.stores.conformance`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dayfly.wire.stores.base import Store
from dayfly.wire.stores.conformance import StoreConformance
from tests.store.places import PLACES


class TestEvery(StoreConformance):
    """The suite, over every place."""

    @pytest.fixture(params=PLACES)
    def store(self, request: pytest.FixtureRequest) -> Iterator[Store]:
        with request.param() as store:
            yield store
