"""Figures as texts have them: four digits, and where somebody is to ask for as much, enough."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context

_NEAREST = Context(prec=4, rounding=ROUND_HALF_EVEN)
_ENOUGH = Context(prec=4, rounding=ROUND_CEILING)


def number(value: float, *, enough: bool = False) -> str:
    """Of four digits. enough: not below the value, so that it can be given as a limit."""
    digits = (_ENOUGH if enough else _NEAREST).create_decimal_from_float(value)
    return f"{digits.normalize():f}"


def seconds(value: float, *, enough: bool = False) -> str:
    """`12.34 s`."""
    return f"{number(value, enough=enough)} s"


def dollars(value: float, *, enough: bool = False) -> str:
    """`$0.01234`."""
    return f"${number(value, enough=enough)}"


def per_cent(part: float, whole: float) -> str:
    """How much of a whole a part is: `12%`; of nothing, `all`. Neither is below 0."""
    if not whole:
        return "all"
    value = 100 * part / whole
    if 0 < value < 0.01:
        return "under 0.01%"
    return f"{value:.2g}%" if value < 100 else f"{value:.0f}%"


def counted(count: int, what: str) -> str:
    """`1 function`, `2 functions`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
