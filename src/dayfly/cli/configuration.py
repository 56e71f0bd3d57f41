"""`dayfly.toml`: settings that many runs share, beside the job or in the user's own directory.

[platform.local]
memory = "rlimit"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError

FILE = "dayfly.toml"


def own_directory() -> Path:
    """The user's configuration of dayfly: $XDG_CONFIG_HOME/dayfly, or ~/.config/dayfly."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "dayfly"


def platform_table(name: str, beside: Path) -> Mapping[str, Any]:
    """The settings of a platform: those beside the job override the user's own.

    Args:
        name: of the platform.
        beside: the job's directory.

    Raises:
        RequestError: a file cannot be read, or is no such table.
    """
    found: dict[str, Any] = {}
    for directory in (own_directory(), beside):
        found |= _table(directory / FILE, name)
    return found


def _table(file: Path, name: str) -> Mapping[str, Any]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error
    unknown = tree.keys() - {"platform"}
    tables = tree.get("platform", {})
    if unknown or not isinstance(tables, dict) or not isinstance(tables.get(name, {}), dict):
        what = f"has {min(unknown)!r}" if unknown else "has no tables there"
        raise RequestError(f"{file} {what}: give tables [platform.NAME], such as [platform.local]")
    table: Mapping[str, Any] = tables.get(name, {})
    return table


def platform_flags(texts: list[str]) -> Mapping[str, str]:
    """Options of `--platform-option NAME=VALUE`. Raises RequestError for one of another form."""
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise RequestError(f"--platform-option {text!r}: give NAME=VALUE, as in memory=rlimit")
        given[name] = value
    return given
