"""Platforms by name, and their own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.life.platforms.base import PLATFORMS, platform_options
from dayfly.life.platforms.local import LocalOptions, LocalPlatform
from dayfly.runs.settings import Settings


def test_the_local_one_is_built_in() -> None:
    assert next(iter(PLATFORMS)) == "local"
    assert PLATFORMS["local"] is LocalPlatform


def test_one_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(RequestError, match="platform 'moon' is not known: give one of local"):
        Settings(platform="moon")


def test_options_are_checked_by_their_types() -> None:
    assert platform_options("local", {"memory": "rlimit"}) == LocalOptions(memory="rlimit")
    assert platform_options("local", {}) == LocalOptions()
    with pytest.raises(RequestError, match='of platform local: memory is "much": give "auto" or'):
        platform_options("local", {"memory": "much"})
    with pytest.raises(RequestError, match="unknown key 'size': give call_ms, calls_at_once"):
        platform_options("local", {"size": "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[platform.local]\nmemory = 3\n", 'memory is 3: give "auto" or'),
        ("[train]\nworkers = 3\n", "has 'train': give tables [platform.NAME]"),
        ("[platform]\nlocal = 3\n", "has no tables there"),
        ("platform = [", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dayfly.cli.catalogue import platform_table

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "dayfly.toml").write_text(text)
    with pytest.raises(RequestError) as refused:
        platform_options("local", platform_table("local", tmp_path))
    assert said in str(refused.value)
