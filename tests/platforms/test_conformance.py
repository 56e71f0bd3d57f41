"""Every platform that is registered passes the conformance suite; the local one in both forms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dayfly.life.platforms.base import PLATFORMS, Opening, Platform, platform_options
from dayfly.life.platforms.conformance import PlatformConformance
from dayfly.life.sessions import Session

#: Others than this are opened with the options that they have by default.
LOCAL = ({"memory": "cgroup"}, {"memory": "rlimit"})
CASES = [(name, options) for name in PLATFORMS for options in (LOCAL if name == "local" else ({},))]
#: Who may make cgroups has the suite by them: what differs, the tests of limits have both ways.
RARE = ("local", {"memory": "rlimit"}) if os.geteuid() == 0 else None
PARAMS = [pytest.param(one, marks=pytest.mark.slow if one == RARE else ()) for one in CASES]


def words(case: tuple[str, dict[str, str]]) -> str:
    name, options = case
    return "-".join([name, *options.values()])


@pytest.mark.long
class TestEveryPlatform(PlatformConformance):
    @pytest.fixture(scope="class", params=PARAMS, ids=words)
    @classmethod
    def opened(
        cls,
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        session_base: Path,
    ) -> Iterator[Platform]:
        name, options = request.param
        if options.get("memory") == "cgroup" and os.geteuid() != 0:
            pytest.skip("memory cgroups need root here")
        with Session.open(session_base) as session:
            opening = Opening(session=session, logs=tmp_path_factory.mktemp("logs"))
            with PLATFORMS[name].open(opening, platform_options(name, options)) as platform:
                yield platform
