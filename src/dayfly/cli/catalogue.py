"""`dayfly.toml`, the user's own catalogue, and `dayfly catalogue`.

`dayfly.toml` has settings that many runs share, beside the job or in the user's own directory:

[platform.local]
memory = "rlimit"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.rows import Value
from dayfly.cli.outcome import narrow_table
from dayfly.errors import RequestError

FILE = "dayfly.toml"
#: By the names of flags: the field of `Assumed` that a flag gives, and how much of it is a unit of
#: the flag.
ASSUMED = {
    "flops_per_vcpu": ("vcpu_flops_per_s", 1e9),
    "cpu": ("vcpus", 1.0),
    "threads": ("threads", 1),
    "latency": ("latency_s", 1e-3),
    "uplink": ("up_bytes_per_s", 1e6),
    "downlink": ("down_bytes_per_s", 1e6),
    "cold_start": ("cold_start_s", 1.0),
    "beta": ("beta", 1.0),
}


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


def own_catalogue(given: Path | None) -> str | None:
    """The directory of the user's own: what was given, or $XDG_CONFIG_HOME/dayfly/catalogue."""
    if given is not None:
        return str(given)
    usual = own_directory() / "catalogue"
    return str(usual) if usual.is_dir() else None


def print_entry(name: str | None, given: Path | None) -> None:
    """Print the rows of an entry, or the names of all. Raises RequestError if there is none."""
    from rich.console import Console
    from rich.text import Text

    own = own_catalogue(given)
    known = Catalogue(Path(own).expanduser() if own is not None else None)
    entries = {"platforms": known.platforms(), "stores": known.stores(), "gpus": known.gpus()}
    console = Console()
    if name is None:
        for what, names in entries.items():
            console.print(f"{what}: {', '.join(names)}", highlight=False)
        return
    folders = [folder for folder, names in entries.items() if name in names]
    if not folders:
        everything = ", ".join(one for names in entries.values() for one in names)
        raise RequestError(f"the catalogue has no {name!r}: give one of {everything}")
    for folder in folders:
        table = narrow_table(f"{name} ({folder[:-1]})")
        for head in ("value of", ""):
            table.add_column(head, overflow="fold")
        table.add_column("as of", no_wrap=True)
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
