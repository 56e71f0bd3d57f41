"""Rows of the data files: each value with its source, and the month in which it was true.

    [memory_max_mib]
    value = 10240
    source = "docs.aws.amazon.com/lambda: a function can use up to 10,240 MB of memory"
    as_of = "2026-11"

A file is one platform, one store or one type of GPU; its name is the entry's. A user's own file of
the same name puts its rows over those of the built-in one.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any

from dayfly.dataclass_json import ABOVE_0, Matches, read
from dayfly.errors import RequestError

#: A table such as [[4096, 1], [8192, 2]]: MiB of memory or vCPUs, rising, and what belongs to
#: them.
Pairs = tuple[tuple[float, float], ...]
Value = int | float | str | Pairs

_ONE = Annotated[tuple[float, float], ABOVE_0]
_MONTH = Matches(r"20\d\d-(0[1-9]|1[0-2])", "year and month, such as '2026-11'")
#: By the kind of a value: what it may be. A price may be 0, a size may not.
_KINDS: Mapping[str, Any] = {
    "int": Annotated[int, ABOVE_0],
    "float": Annotated[float, ABOVE_0],
    "usd": float,
    "str": Annotated[str, Matches(".+", "text")],
    "Pairs": tuple[_ONE, ...],
}


@dataclass(frozen=True, slots=True)
class _Given:
    """A row as a file has it."""

    value: Any
    source: Annotated[str, Matches(r".*\S.*", "who says so")]
    as_of: Annotated[str, _MONTH]


@dataclass(frozen=True, slots=True)
class Row:
    """One value.

    Attributes:
        value: as the file has it.
        source: who says so.
        as_of: year and month.
        own: whether it is the user's.
    """

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


def read_rows(text: str, origin: str, known: Mapping[str, str], *, own: bool) -> dict[str, Row]:
    """Returns the rows of a data file.

    Args:
        text: of the file.
        origin: its name, for errors.
        known: kinds of the rows that there may be, by name.
        own: whether the file is the user's.

    Raises:
        RequestError: something is no row, or an unknown one; names file and key.
    """
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RequestError(f"{origin} is not TOML: {error}") from error
    return {key: _row(key, found, origin, known.get(key), own) for key, found in tree.items()}


def _row(key: str, found: Any, origin: str, kind: str | None, own: bool) -> Row:
    if kind is None:
        raise RequestError(
            f"{origin}: {key} is not known to the catalogue: see docs/catalogue.md for its rows"
        )
    given = read(_Given, found, origin, within=key)
    # A price may be 0, a size may not.
    what = "usd" if kind == "float" and key.startswith("usd_") else kind
    value: Any = read(_KINDS[what], given.value, origin, within=f"{key}.value")
    if kind == "Pairs":
        sizes = [size for size, _ in value]
        if not sizes or sizes != sorted(set(sizes)):
            raise RequestError(f"{origin}: {key}.value: give pairs whose first numbers rise")
    return Row(value, given.source, given.as_of, own)


def ceil_to(number: float, step: float) -> float:
    """The least multiple of a step that is not below a number, but for rounding."""
    return math.ceil(round(number / step, 6)) * step


def up_to(pairs: Pairs, size: float) -> float:
    """What belongs to the first size that is at least this one; to the last, beyond it."""
    return next((number for most, number in pairs if size <= most), pairs[-1][1])


def between(pairs: Pairs, size: float) -> float:
    """Linear between two sizes, level outside."""
    for (low, at_low), (high, at_high) in pairwise(pairs):
        if low <= size <= high:
            return at_low + (at_high - at_low) * (size - low) / (high - low)
    return pairs[0][1] if size < pairs[0][0] else pairs[-1][1]
