"""Every platform that the conformance suite runs over. To add one, add a line to PLATFORMS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from platform_testing import wait_for_all

from dayfly.life.platforms.base import Platform
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session


def local_by_cgroup(session: Session, logs: Path) -> Platform:
    if os.geteuid() != 0:
        pytest.skip("memory cgroups need root here")
    return LocalPlatform(session, logs, preload=["platform_handlers"], enforcer="cgroup")


def local_by_rlimit(session: Session, logs: Path) -> Platform:
    return LocalPlatform(session, logs, preload=["platform_handlers"], enforcer="rlimit")


PLATFORMS: Sequence[Callable[[Session, Path], Platform]] = [local_by_cgroup, local_by_rlimit]


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
