"""The user's own catalogue, and `dayfly catalogue`, which shows all that is known."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.rows import Value
from dayfly.cli.configuration import own_directory
from dayfly.errors import RequestError


def own_catalogue(given: Path | None) -> str | None:
    """The directory of the user's own: what was given, or $XDG_CONFIG_HOME/dayfly/catalogue."""
    if given is not None:
        return str(given)
    usual = own_directory() / "catalogue"
    return str(usual) if usual.is_dir() else None


def print_entry(name: str | None, given: Path | None) -> None:
    """Print the rows of an entry, or the names of all. Raises RequestError if there is none."""
    own = own_catalogue(given)
    known = Catalogue(Path(own).expanduser() if own is not None else None)
    console = Console()
    if name is None:
        for what, names in (("platforms", known.platforms()), ("stores", known.stores())):
            console.print(f"{what}: {', '.join(names)}", highlight=False)
        return
    folders = [
        folder
        for folder, names in (("platforms", known.platforms()), ("stores", known.stores()))
        if name in names
    ]
    if not folders:
        everything = ", ".join([*known.platforms(), *known.stores()])
        raise RequestError(f"the catalogue has no {name!r}: give one of {everything}")
    for folder in folders:
        table = Table("value of", "", "as of", title=f"{name} ({folder[:-1]})")
        table.add_column("source", overflow="fold")
        for key, row in known.rows(folder, name).items():
            own_mark = "your own: " if row.own else ""
            # Text: a user's source may have brackets, which are no markup.
            table.add_row(key, Text(_shown(row.value)), row.as_of, Text(own_mark + row.source))
        console.print(table)


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "\n".join(f"{size:g}: {number:g}" for size, number in value)
    return value if isinstance(value, str) else f"{value:.10g}"
