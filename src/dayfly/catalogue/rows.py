"""Rows of the data files: each value with its source, and the month in which it was true.

    [memory_max_mib]
    value = 10240
    source = "docs.aws.amazon.com/lambda: a function can use up to 10,240 MB of memory"
    as_of = "2026-11"

A file is one platform or one store; its name is the entry's. A user's own file of the same name
puts its rows over those of the built-in one.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dayfly.errors import RequestError

#: A table such as [[4096, 1], [8192, 2]]: MiB of memory, rising, and what belongs to them.
Pairs = tuple[tuple[float, float], ...]
Value = int | float | str | Pairs

_KINDS = {"int", "float", "str", "Pairs"}
_KEYS = {"value", "source", "as_of"}
_MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class Row:
    """One value. source: who says so. as_of: year and month. own: the user's."""

    value: Value
    source: str
    as_of: str
    own: bool


def kinds(entry: type) -> dict[str, str]:
    """The rows that an entry's dataclass has, with their kinds: its optional values."""
    named = {field.name: str(field.type).partition(" | None") for field in fields(entry)}
    return {
        name: kind
        for name, (kind, may_be_none, _) in named.items()
        if may_be_none and kind in _KINDS
    }


def read_rows(text: str, place: str, known: Mapping[str, str], *, own: bool) -> dict[str, Row]:
    """The rows of a data file; place: its name, for errors.

    Raises RequestError, naming file and key, for what is no row, or none that is known.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{place} is not TOML: {error}") from error
    return {key: _row(found, f"{place}: {key}", known.get(key), own) for key, found in tree.items()}


def _row(found: Any, place: str, kind: str | None, own: bool) -> Row:
    if kind is None:
        raise RequestError(f"{place} is not known to the catalogue: see docs/catalogue.md")
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise RequestError(f"{place} must have value, source and as_of, and nothing else")
    source, as_of = found["source"], found["as_of"]
    if not isinstance(source, str) or not source.strip():
        raise RequestError(f"{place} has no source: say who gives the value")
    if not isinstance(as_of, str) or not _MONTH.fullmatch(as_of):
        raise RequestError(f"{place} has as_of {as_of!r}: give year and month, such as '2026-11'")
    return Row(_value(found["value"], place, kind), source, as_of, own)


def _value(value: Any, place: str, kind: str) -> Value:
    if kind == "str":
        if not isinstance(value, str) or not value:
            raise RequestError(f"{place} is {value!r}: give a text")
        return value
    if kind == "Pairs":
        return _pairs(value, place)
    whole = kind == "int"
    if not _is_number(value) or (whole and not isinstance(value, int)):
        raise RequestError(f"{place} is {value!r}: give a {'whole ' if whole else ''}number")
    free = place.rpartition(": ")[2].startswith("usd_")  # a price may be 0, a size may not
    if value < 0 or (value == 0 and not free):
        raise RequestError(
            f"{place} is {value}: give {'no number below' if free else 'more than'} 0"
        )
    return int(value) if whole else float(value)


def _pairs(value: Any, place: str) -> Pairs:
    shape = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair)) for pair in value
    )
    if not shape or not value or any(number <= 0 for pair in value for number in pair):
        raise RequestError(f"{place} is {value!r}: give pairs [MiB, number], all above 0")
    sizes = [pair[0] for pair in value]
    if sizes != sorted(set(sizes)):
        raise RequestError(f"{place}: memory sizes must rise from pair to pair")
    return tuple((float(size), float(number)) for size, number in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
