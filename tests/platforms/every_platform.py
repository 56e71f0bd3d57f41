"""The local platform, once for each way of limiting memory.

The conformance suite runs over all platforms that are registered (`test_conformance.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

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
