"""Dataclasses as JSON and back: every file that dayfly reads back is checked by this, key by key.

A frozen dataclass describes a file, and the type of a field says what its JSON may be:

    float, int           a finite number from 0, a whole number from 0
    Real, Positive, ...  other ranges: Annotated[float, Range(...)]
    str, Name, Matches   text, and text of a fixed form, such as what becomes a path
    tuple[X, ...]        a list; tuple[X, Y]: a list of that form
    Mapping[str, X]      an object with any keys; another dataclass: one with its fields
    Literal, Enum, date  one of the values; X | None: null as well

A mark of `Annotated` holds for all numbers, or texts, below it that have no mark of their own. A
field with a default may be left out, and a key that is no field is refused, unless the class sets
`ignores_unknown`. What a class checks when it is made, or in a method `check_read`, counts as well:
it raises ValueError or RequestError. `from_number` makes an object of a plain number. A class whose
JSON has another form has `to_json` and `from_json`, which raises ValueError.

People write some of these files (profiles, plans): errors say what to give. Others are records of
dayfly's own: a `remedy` says what to do about damage, and NaN, which older versions wrote, is null.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from operator import call
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dayfly.errors import RequestError

T = TypeVar("T")
#: Checks a value of JSON, and returns what it means; raises _Wrong.
_Reader = Callable[[Any], Any]

#: Whole numbers are below this.
_MOST = 2**63
#: Of a value that is shown in an error, letters.
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Range:
    """Of numbers: least (above: and not that itself) to most.

    Attributes:
        null: what null stands for.
    """

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    null: float | None = None

    def words(self, kind: type) -> str:
        """What to give."""
        words = "a whole number" if kind is int else "a number"
        if self.least > -math.inf:
            words += f" {'above' if self.above else 'from'} {self.least:g}"
        return words if self.most == math.inf else f"{words} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class Matches:
    """Of texts: a regular expression for the whole of it, and what to give, in words."""

    pattern: str
    words: str


_FROM_0 = Range(0)
ABOVE_0 = Range(0, above=True)
Count = Annotated[int, Range(1)]
Positive = Annotated[float, ABOVE_0]
Real = Annotated[float, Range()]
#: A number above 0, or null where there is no bound.
Bound = Annotated[float, Range(0, above=True, null=math.inf)]
UnixSeconds = Annotated[float, Range(0, 1e11)]
#: What becomes one part of a path.
Name = Annotated[str, Matches(r"\w[\w.-]{0,199}", "a name of letters, digits, '.', '_' and '-'")]
#: A path of this machine.
PathText = Annotated[str, Matches(r"[^\0]{1,4096}", "a path")]
SHA256 = Annotated[str, Matches(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")]


class _Wrong(Exception):
    """found: of what stands at `path`, whose innermost step comes first. wanted: to give."""

    def __init__(self, found: str, wanted: str, unfit: str = "") -> None:
        super().__init__(found, wanted)
        self.found, self.wanted, self.unfit = found, wanted, unfit
        self.path: list[str] = []

    def sentence(self, origin: str, within: str, remedy: str | None) -> str:
        """For people. unfit: how `wanted` reads where nobody can give anything."""
        path = (within + "".join(reversed(self.path))).removeprefix(".")
        where = f"{origin}: {path}" if path else origin
        if not self.found:
            return f"{where}: {self.wanted}" + (f": {remedy}" if remedy is not None else "")
        if remedy is None:
            return f"{where} {self.found}: {self.wanted}"
        return f"{where} {self.found}{self.unfit}: {remedy}"


def dump(value: Any) -> Any:
    """For JSON: what `read` takes. A number that is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: dump(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [dump(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: dump(getattr(value, field.name)) for field in fields(value)}
    return value


def read(
    kind: type[T], tree: Any, origin: str, *, within: str = "", remedy: str | None = None
) -> T:
    """Returns a dataclass of what JSON has.

    Args:
        kind: the dataclass.
        tree: from `json`.
        origin: what the tree is of, in errors, such as a file.
        within: where in that it stands, such as "settings".
        remedy: what to do about damage; None: people write such files.

    Raises:
        RequestError: names origin and field that is missing, unknown, or of another kind or range.
    """
    try:
        value: T = _reader(cast(Any, kind))(tree)
    except _Wrong as wrong:
        raise RequestError(wrong.sentence(origin, within, remedy)) from None
    return value


def check_kind(kind: Any, value: Any, origin: str) -> None:
    """Raises RequestError unless a value given in Python is of a field's type, in any range.

    Args:
        kind: the field's type.
        value: such as the keyword of a function; a tuple or list for a list, a path for a text.
        origin: what it is, in the error.
    """
    plain = os.fspath(value) if isinstance(value, os.PathLike) else value
    for one in (float, str):  # as numpy has numbers and texts that are Python's, too
        plain = one(plain) if isinstance(plain, one) else plain
    try:
        _reader(kind, Range())(plain if isinstance(plain, float) else dump(plain))
    except _Wrong as wrong:
        if not (type(plain) is float and not math.isfinite(plain)):  # a number, out of range
            raise RequestError(wrong.sentence(origin, "", None)) from None


@cache
def _reader(kind: Any, mark: Range | Matches = _FROM_0) -> _Reader:
    """Made once for each type. mark: what holds for numbers, or texts, below."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Annotated:
        return _reader(args[0], args[1])
    if origin is Literal:
        return _among({value: value for value in args})
    if origin in (Union, UnionType):
        return _one_of(args, mark)
    if origin is tuple:
        return _items(args, mark)
    if origin is not None and issubclass(origin, Mapping):
        return _entries(_reader(args[1], mark))
    if kind is date:
        return _date
    if kind in (int, float):
        return _number(kind, mark if isinstance(mark, Range) else _FROM_0)
    if kind is str:
        return _text(mark if isinstance(mark, Matches) else None)
    if kind is bool:
        return _among({True: True, False: False})
    if issubclass(kind, Enum):
        return _among({one.value: one for one in kind})
    if hasattr(kind, "from_json"):
        return _own_form(kind)
    if is_dataclass(kind):
        return _dataclass(kind, mark)
    raise TypeError(f"{kind} is nothing that JSON has")


def _number(kind: type, of: Range) -> _Reader:
    least, most, above = of.least, of.most, of.above
    words = of.words(kind)
    whole = kind is int

    def read_number(value: Any) -> Any:
        if type(value) is int:
            fits = -_MOST < value < _MOST
        else:
            fits = type(value) is float and not whole and math.isfinite(value)
        if fits and least <= value <= most and not (above and value == least):
            return value if whole else float(value)
        return of.null if value is None and of.null is not None else _raise(value, words)

    return read_number


def _text(of: Matches | None) -> _Reader:
    form = re.compile(of.pattern, re.DOTALL) if of is not None else None
    words = of.words if of is not None else "text"

    def read_string(value: Any) -> Any:
        if type(value) is str and (form is None or form.fullmatch(value)):
            return value
        return _raise(value, words)

    return read_string


def _among(known: Mapping[Any, Any]) -> _Reader:
    words = " or ".join(map(shortly, known))

    def read_one(value: Any) -> Any:
        for one, meant in known.items():
            if type(one) is type(value) and one == value:
                return meant
        return _raise(value, words)

    return read_one


def _date(value: Any) -> Any:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return _raise(value, "a date, such as 2026-11-23")


def _one_of(kinds: tuple[Any, ...], mark: Range | Matches) -> _Reader:
    """By the first kind that takes it."""
    readers = [_reader(kind, mark) for kind in kinds if kind is not NoneType]
    nullable = len(readers) < len(kinds)

    def read_first(value: Any) -> Any:
        if value is None and nullable:
            return None
        wanted, within = [], None
        for one in readers:
            try:
                return one(value)
            except _Wrong as wrong:
                wanted.append(wrong.wanted.removeprefix("give "))
                within = wrong if len(readers) == 1 or wrong.path else within
        if within is not None:  # of the right kind, but for something in it
            raise within
        return _raise(value, ", or ".join(wanted))

    return read_first


def _items(kinds: tuple[Any, ...], mark: Range | Matches) -> _Reader:
    of_one_kind = len(kinds) == 2 and kinds[1] is Ellipsis
    readers = [_reader(kind, mark) for kind in kinds[: 1 if of_one_kind else None]]
    words = "a list" if of_one_kind else f"a list of {len(readers)}"

    def read_list(value: Any) -> Any:
        if type(value) is not list or not (of_one_kind or len(value) == len(readers)):
            _raise(value, words)
        found: list[Any] = []
        try:
            found.extend(map(readers[0], value) if of_one_kind else map(call, readers, value))
        except _Wrong as wrong:
            wrong.path.append(f"[{len(found)}]")
            raise
        return tuple(found)

    return read_list


def _entries(each: _Reader) -> _Reader:
    def read_mapping(value: Any) -> Any:
        if type(value) is not dict:
            _raise(value, "an object")
        found = {}
        for name, item in value.items():
            try:
                found[name] = each(item)
            except _Wrong as wrong:
                wrong.path.append(_step(name))
                raise
        return found

    return read_mapping


def _dataclass(kind: Any, mark: Range | Matches) -> _Reader:
    own = [one for one in fields(kind) if one.init]
    hints = get_type_hints(kind, include_extras=True)
    # What is asked of an object is asked of its quantities, not of what it counts.
    marks = {one.name: _FROM_0 if hints[one.name] is int else mark for one in own}
    readers = {one.name: _reader(hints[one.name], marks[one.name]) for one in own}
    needed = {one.name for one in own if one.default is MISSING and one.default_factory is MISSING}
    strict = not getattr(kind, "ignores_unknown", False)
    from_number = getattr(kind, "from_number", None)
    number = _reader(float, mark)
    words = f"an object with {', '.join(sorted(readers))}"
    if from_number is not None:
        words = f"a number, or {words}"

    def read_object(value: Any) -> Any:
        if from_number is not None and type(value) in (int, float):
            return from_number(number(value))
        if type(value) is not dict:
            _raise(value, words)
        found = {}
        for name, item in value.items():
            one = readers.get(name)
            if one is None:
                if strict:
                    wanted = f"give {', '.join(sorted(readers))}"
                    raise _Wrong(f"has an unknown key {name!r}"[:_SHOWN], wanted)
                continue
            try:
                found[name] = one(item)
            except _Wrong as wrong:
                wrong.path.append(_step(name))
                raise
        if not needed <= found.keys():
            raise _Wrong(f"lacks {min(needed - found.keys())!r}", "add it")
        try:
            made = kind(**found)
            if check is not None:
                check(made)
        except (ValueError, RequestError) as error:
            raise _Wrong("", str(error)) from error
        return made

    check = getattr(kind, "check_read", None)
    return read_object


def _own_form(kind: Any) -> _Reader:
    def read_own(value: Any) -> Any:
        try:
            return kind.from_json(value)
        except (ValueError, RequestError) as error:
            raise _Wrong("", str(error)) from error

    return read_own


def _raise(value: Any, words: str) -> Any:
    raise _Wrong(f"is {shortly(value)}", f"give {words}", f", not {words}")


def _step(name: str) -> str:
    return f".{name}" if name.isidentifier() and len(name) <= _SHOWN else f"[{shortly(name)}]"


def shortly(value: Any) -> str:
    """A value, or the beginning of it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value[: 2 * _SHOWN] if isinstance(value, str) else value, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
