"""One thread, as functions have: sums have the same bits, and small ones take less time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.training.jobs import one_thread


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
