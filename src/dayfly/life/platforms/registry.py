"""Platforms by the names that `--platform` takes.

A new one is a line in `_BUILT_IN`, or an entry point of another package:

    [project.entry-points."dayfly.platforms"]
    mine = "my_package.my_module:MyPlatform"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dayfly.dataclass_json import read
from dayfly.life.platforms.base import Platform
from dayfly.registry import Registry

_BUILT_IN = {"local": "dayfly.life.platforms.local:LocalPlatform"}

PLATFORMS: Registry[type[Platform]] = Registry("platform", "dayfly.platforms", _BUILT_IN)


def platform_options(name: str, given: Mapping[str, Any]) -> Any:
    """A platform's own settings, checked.

    Args:
        name: of the platform.
        given: by the names of `Options`; a number or truth value may be a text, as on the command
            line.

    Returns:
        An object of the platform's `Options`.

    Raises:
        RequestError: for an unknown platform, and options that it does not have.
    """
    PLATFORMS.check(name)
    options = PLATFORMS[name].Options
    tree = {key: _plain(value) for key, value in given.items()}
    return read(options, tree, f"settings of platform {name}")


def _plain(value: Any) -> Any:
    """What a text of the command line means."""
    with suppress(TypeError, ValueError):
        found = json.loads(value)
        if isinstance(found, bool | int | float):
            return found
    return value
