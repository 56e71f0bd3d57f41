"""Files of JSON that are read back: bounded, in UTF-8, of a known version, one object each.

    bytes -> text -> object -> version -> dataclass (`dataclass_json.read`)

Every step refuses what is wrong by RequestError, in a sentence that names the file. People write
some of these files; of those that dayfly writes itself, a `remedy` says what to do about damage.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dayfly.dataclass_json import shortly
from dayfly.errors import RequestError

#: The largest file that is read, in bytes, unless its reader says otherwise.
LARGEST_BYTES = 64 * 2**20


def cache_folder(name: str) -> Path:
    """Returns where this user keeps what can be made again: `$XDG_CACHE_HOME/dayfly/<name>`."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "dayfly" / name


def versioned(
    tree: Any, key: str, known: int, origin: str, within: str = "", remedy: str | None = None
) -> Any:
    """Returns an object without its version.

    Args:
        tree: from `json`; what is no object is returned as it is, for `read` to refuse.
        key: the version's name.
        known: the version that this dayfly reads.
        origin: what the tree is of, in errors; within: where in that it stands.
        remedy: what to do about another version.

    Raises:
        RequestError: the version is missing, or another one.
    """
    if not isinstance(tree, dict):
        return tree
    where = f"{origin}: {within}" if within else origin
    if key not in tree:
        raise RequestError(f"{where} lacks {key!r}: {remedy or f'add {known}'}")
    if type(tree[key]) is not int or tree[key] != known:
        raise RequestError(
            f"{where} is of {key} {shortly(tree[key])}, and this dayfly reads {known}: "
            f"{remedy or 'use the dayfly that wrote it'}"
        )
    return {name: value for name, value in tree.items() if name != key}


def parse(text: str | bytes, origin: str, remedy: str | None = None) -> dict[str, Any]:
    """Returns a JSON object. Raises RequestError for what is none."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        tree = json.loads(text, parse_constant=_refused if remedy is None else lambda _: None)
    except UnicodeDecodeError as error:
        words, mend = f"is no text in UTF-8 (byte {error.start})", "save it as UTF-8"
    except (ValueError, RecursionError) as error:
        words, mend = f"is no JSON: {error}", "mend it there"
        if origin.endswith(".py"):
            words, mend = (
                "is Python, and no JSON",
                "give the file that dayfly profile or dayfly plan wrote",
            )
    else:
        if isinstance(tree, dict):
            return tree
        words, mend = f"holds no JSON object, but {shortly(tree)}", "it needs one, in braces"
    raise RequestError(f"{origin} {words}: {remedy or mend}") from None


def read_bytes(file: Path, most_bytes: int = LARGEST_BYTES) -> bytes:
    """Returns a file's bytes. Raises RequestError for one that cannot be read, or is too large."""
    try:
        with file.open("rb") as opened:
            data = opened.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RequestError(f"{str(file)!r} cannot be read: {reason}") from error
    check_size(len(data), repr(str(file)), most_bytes)
    return data


def check_size(nbytes: int, origin: str, most_bytes: int = LARGEST_BYTES) -> None:
    """Raises RequestError for a file, or an object, that is larger than any of the kind."""
    if nbytes > most_bytes:
        raise RequestError(
            f"{origin} cannot be read: it is larger than {most_bytes >> 20} MiB, and no "
            "such file is"
        )


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
