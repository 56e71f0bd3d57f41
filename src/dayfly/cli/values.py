"""Values of flags that are more than a word or a number: lists, times, and `--plan auto`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError
from dayfly.runs.keywords import AUTO

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNIT_S = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def numbers(flag: str, text: str, such_as: str) -> tuple[int, ...]:
    """From `4,9`.

    Raises RequestError, naming the flag, for what is no list of whole numbers.

    Args:
        such_as: an example of the flag's value.
    """
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise RequestError(
            f"{flag} {text!r} is no list of whole numbers: give them with commas between, as in "
            f"{such_as}"
        ) from None


#: Settings that are lists of whole numbers: their flags, and examples.
_LISTS = {
    "cut": ("--cut", "4,9"),
    "stage_memory_mib": ("--stage-memory", "1024,512"),
    "shares": ("--shares", "2,1,1"),
    "replicas": ("--replicas", "2 or 4,2,1"),
}


def lists_of(given: Mapping[str, Any]) -> dict[str, int | tuple[int, ...]]:
    """The settings that are lists, from what was typed. Raises RequestError for what is none.

    Args:
        given: values of flags, by the names of settings.
    """
    lists: dict[str, int | tuple[int, ...]] = {
        name: numbers(flag, given[name], such_as)
        for name, (flag, such_as) in _LISTS.items()
        if name in given and (name, given[name]) != ("shares", AUTO)
    }
    if isinstance(each := lists.get("replicas"), tuple) and len(each) == 1:
        lists["replicas"] = each[0]
    return lists


def memory_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with `--memory` as it was meant: one size of all functions, or each worker's.

    Args:
        given: values of flags, by the names of settings.

    Raises:
        RequestError: it is no list of whole numbers.
    """
    if "memory_mib" not in given:
        return dict(given)
    sizes = numbers("--memory", given["memory_mib"], "1769 or 1769,884")
    one = len(sizes) == 1
    return {
        **{name: value for name, value in given.items() if name != "memory_mib"},
        **({"memory_mib": sizes[0]} if one else {"each_memory_mib": sizes}),
    }


def seconds_of(flag: str, text: str) -> float:
    """From `90`, `90s`, `30m` or `2h`. Raises RequestError for what is none of these."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise RequestError(f"{flag} {text!r} is no time: give seconds, or 90s, 30m, 2h")
    return float(found[1]) * _UNIT_S[found[2]]


#: Flags that say which plan `--plan auto` chooses.
GOALS = "objective", "deadline", "budget", "efficiency", "convergence", "seeds", "tolerance"


def check_goals(plan: Path | None, flags: Mapping[str, Any]) -> None:
    """Raise RequestError for flags of a choice where there is none."""
    for name in GOALS:
        if flags[name] is not None and str(plan) != AUTO:
            raise RequestError(f"--{name} is for a plan that is chosen: add --plan {AUTO}")
