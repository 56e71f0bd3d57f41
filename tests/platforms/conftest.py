"""The platforms under test, and sessions of our own for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from every_platform import PLATFORMS
from platform_testing import wait_for_all

from dayfly.life.platforms.base import Platform
from dayfly.life.sessions import Session


@pytest.fixture(scope="session")
def session_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of our own: tests must neither sweep nor disturb what else runs on this machine."""
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module", params=PLATFORMS, ids=lambda make: str(make.__name__))
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_base: Path
) -> Iterator[Platform]:
    """One platform for the whole module: starting one costs the import of torch."""
    with (
        Session.open(session_base) as session,
        request.param(session, tmp_path_factory.mktemp("logs")) as platform,
    ):
        yield platform


@pytest.fixture
def platform(shared: Platform) -> Iterator[Platform]:
    """The shared platform, with nothing running before and after the test."""
    yield shared
    for function in shared.running():
        shared.cancel(function)
    wait_for_all(shared, shared.running())
