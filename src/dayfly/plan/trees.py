"""Dataclasses as JSON and back, checked key by key: people write such files by hand.

A field's type says what its JSON may be: numbers from 0 and finite, text, lists for tuples, objects
for mappings and for other dataclasses. A field with a default may be left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dayfly.errors import RequestError

T = TypeVar("T")

_WORDS = {
    float: "a number from 0",
    int: "a whole number from 0",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}


def dump(value: Any) -> Any:
    """For JSON: what `load` takes."""
    if is_dataclass(value):
        return {field.name: dump(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: dump(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [dump(one) for one in value]
    return value


def load(kind: type[T], tree: Any, place: str) -> T:
    """A dataclass from JSON. place: what the tree is, in errors.

    Raises RequestError, which names the place, for a key that is missing or not known, and for a
    value of another type or below 0.
    """
    return kind(**given(kind, tree, place))


def parse(text: str | bytes, place: str) -> dict[str, Any]:
    """A JSON object. Raises RequestError for what is none, or has numbers that JSON has not."""
    try:
        tree = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{place} is no JSON: {error}") from error
    if not isinstance(tree, dict):
        raise RequestError(f"{place} holds no JSON object: it needs one, in braces")
    return tree


def keys(tree: Any, place: str, *, needed: set[str], known: set[str]) -> Mapping[str, Any]:
    """The tree, if it is an object that has the needed keys, and none that is not known."""
    if not isinstance(tree, Mapping):
        raise RequestError(f"{place} is {_short(tree)}: give an object with {_listed(known)}")
    for name in tree:
        if name not in known:
            raise RequestError(f"{place} has no {name!r}: give {_listed(known)}")
    for name in sorted(needed):
        if name not in tree:
            raise RequestError(f"{place} lacks {name!r}: add it")
    return tree


def whole(value: Any, place: str, *, least: int) -> int:
    """A whole number, this one at least."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RequestError(f"{place} is {_short(value)}: give a whole number from {least}")
    return value


def given(kind: type[Any], tree: Any, place: str) -> dict[str, Any]:
    """The fields of a dataclass that JSON gives, checked as `load` does, and not made into one."""
    own = fields(kind)
    needed = {one.name for one in own if one.default is MISSING and one.default_factory is MISSING}
    keys(tree, place, needed=needed, known={one.name for one in own})
    hints = get_type_hints(kind)
    return {name: _value(hints[name], value, f"{place}.{name}") for name, value in tree.items()}


def _value(kind: Any, value: Any, place: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), value, place)
    if origin is Literal:
        if value not in get_args(kind):
            raise RequestError(f"{place} is {_short(value)}: give {_words(kind)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise RequestError(f"{place} is {_short(value)}: give a list")
        each = get_args(kind)[0]
        return tuple(_value(each, one, f"{place}[{row}]") for row, one in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise RequestError(f"{place} is {_short(value)}: give an object")
        each = get_args(kind)[1]
        return {name: _value(each, one, f"{place}.{name}") for name, one in value.items()}
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return load(kind, value, place)
    return _scalar(kind, value, place)


def _one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """By the first kind that takes it."""
    if value is None and NoneType in kinds:
        return None
    known = [kind for kind in kinds if kind is not NoneType]
    if len(known) == 1:
        return _value(known[0], value, place)
    for kind in known:
        with suppress(RequestError):
            return _value(kind, value, place)
    raise RequestError(f"{place} is {_short(value)}: give {', or '.join(map(_words, known))}")


def _words(kind: Any) -> str:
    """What to give for a kind."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return _WORDS.get(kind, "what it may be")


def _scalar(kind: Any, value: Any, place: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float:
        fits = number and 0 <= value < math.inf
    elif kind is int:
        fits = number and isinstance(value, int) and value >= 0
    else:
        fits = type(value) is kind
    if not fits:
        raise RequestError(f"{place} is {_short(value)}: give {_words(kind)}")
    return float(value) if kind is float else value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
