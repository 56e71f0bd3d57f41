"""One flag of several commands, as typer reads it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from dayfly.cli.flag_groups import GROUP_OF


def option(help: str, shown: str | bool = True, *names: str, metavar: str | None = None) -> Any:
    """Returns an option of a command.

    Args:
        help: for `--help`.
        shown: its default in words; True: the default itself, unless that is None.
        names: as they are typed; none: by the name of the parameter.
        metavar: stands for its value in `--help`.
    """
    return typer.Option(*names, help=help, show_default=shown, metavar=metavar)


@dataclass(frozen=True, slots=True)
class Flag:
    """An option that a command passes on by name.

    Args:
        kind: type of its value.
        help: for `--help`.
        shown: its default in words; True: the default itself, unless that is None.
        names: as they are typed; empty: by its name in the table.
        metavar: stands for its value in `--help`.
        setting: the run's setting that it is, by name; None: the same name.
        default: its value where it is not given.
    """

    kind: Any
    help: str
    shown: str | bool = True
    names: tuple[str, ...] = ()
    metavar: str | None = None
    setting: str | None = None
    default: Any = None

    def parameter(self, name: str) -> inspect.Parameter:
        """Returns the parameter of a command that takes the flag, as typer reads it."""
        kind = self.kind if self.default is not None else self.kind | None
        flag = option(self.help, self.shown, *self.names, metavar=self.metavar)
        flag.rich_help_panel = GROUP_OF.get(name)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[kind, flag],
        )
