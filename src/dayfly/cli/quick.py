"""Commands whose flags are read without pydantic, which takes typer 0.2 s of a processor to load.

typer builds a reader of each flag, given or not. Here it builds one only of a flag that was given,
and is neither text, digits nor a path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup


class QuickCommand(TyperCommand):
    """A command of typer's, as `cls` of `typer.Typer.command`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its parameters and `--help`, that are read quickly."""
        return _quick(super().get_params(ctx))


class QuickGroup(TyperGroup):
    """The command that all others are of, as `cls` of `typer.Typer`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its parameters and `--help`, that are read quickly."""
        return _quick(super().get_params(ctx))


def _quick(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        # Versions of typer that need no pydantic do not have it.
        build = getattr(one, "get_runtime_param", None)
        if build is not None and not isinstance(build, _Reader):
            one.get_runtime_param = _Reader(build)
    return parameters


@dataclass(frozen=True, slots=True)
class _Reader:
    """Converts a flag's value itself if it is text, digits or a path, else by typer (`build`)."""

    build: Any

    def __call__(self) -> _Reader:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        described = getattr(param, "type_descriptor", None)  # another version may name it otherwise
        kind = getattr(described, "annotation", None)
        if kind is str and isinstance(value, str):
            return value
        if kind is int and _is_digits(value) and not getattr(described, "is_ranged", True):
            return int(value)
        if kind is Path and _is_plain(value):
            return Path(value)
        if kind == list[Path] and not isinstance(value, str) and all(map(_is_plain, value)):
            return list(map(Path, value))
        return self.build().coerce(value, param=param, ctx=ctx)


def _is_digits(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 10


def _is_plain(path: Any) -> bool:
    """Whether typer has nothing to say against a path: one that is there can be read."""
    return isinstance(path, str) and (os.access(path, os.R_OK) or not os.path.exists(path))
