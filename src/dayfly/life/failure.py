"""What a function raised, as data that travels as JSON: what it was, and where it came from."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dayfly.errors import DayflyError, Forged, NoRoom, WaitTimeout, WireError

#: Longest traceback that travels, in characters; of a longer one the end.
_TRACEBACK_CHARACTERS = 32_000
#: The attribute of an exception that `raised_in` sets.
_STEP = "__dayfly_step__"
_WIRE_ERRORS = tuple(f"{kind.__name__}: " for kind in (WireError, WaitTimeout, NoRoom))
_DAYFLY = Path(__file__).parents[1]
_PLACES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
#: Packages are installed below directories of these names; an environment may add another's.
_PACKAGES = {"site-packages", "dist-packages"}


class Origin(Enum):
    """Who raised an exception."""

    JOB = "job"  # the user's code, or what it called
    DAYFLY = "dayfly"  # dayfly, on purpose, such as for a damaged checkpoint
    WIRE = "wire"  # the wire, or what was raised because of it: maybe another worker's death


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception that ended a function.

    Args:
        kind: the name of its type.
        message: the first line of its text.
        traceback: for people.
        place: `file:line` of the innermost frame of the user's code, or of any if none is; None if
            it has no frame.
        step: the step that the worker was in, if it is known.
    """

    kind: str
    message: str = ""
    traceback: str = ""
    place: str | None = None
    origin: Origin = Origin.JOB
    step: int | None = None

    @classmethod
    def of(cls, error: BaseException, shown: TracebackType | None) -> Self:
        """Describes an exception.

        Args:
            shown: the part of its traceback that people are to see.
        """
        kind = type(error).__qualname__
        try:
            message = next(iter(str(error).splitlines()), "")
            lines = traceback.format_exception(type(error), error, shown)
        except Exception as failure:  # the user's own __str__ can raise
            message, lines = "", [f"{kind} (its text cannot be shown: {failure!r})"]
        return cls(
            kind=kind,
            message=message,
            traceback="".join(lines).rstrip()[-_TRACEBACK_CHARACTERS:],
            place=_place(error.__traceback__),
            origin=_origin(error, message),
            step=getattr(error, _STEP, None),
        )

    @property
    def line(self) -> str:
        """The exception in one line: `ValueError: no`."""
        return f"{self.kind}: {self.message}" if self.message else self.kind

    def dump(self) -> dict[str, Any]:
        """For JSON; `load` is the way back."""
        return {**asdict(self), "origin": self.origin.value}

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `dump` gave."""
        return cls(**{**tree, "origin": Origin(tree["origin"])})


def raised_in(error: BaseException, step: int) -> None:
    """Notes with an exception in which step it was raised; the innermost note counts."""
    if getattr(error, _STEP, None) is None:
        setattr(error, _STEP, step)


def _origin(error: BaseException, message: str) -> Origin:
    chain = list(origins(error))
    # torch's C++ code turns an exception of a collective into the text of one of its own.
    told = isinstance(error, RuntimeError) and any(name in message for name in _WIRE_ERRORS)
    if any(isinstance(one, Forged) for one in chain):
        return Origin.DAYFLY  # no death of another worker explains it
    if told or any(isinstance(one, WireError) for one in chain):
        return Origin.WIRE
    return Origin.DAYFLY if isinstance(error, DayflyError) else Origin.JOB


def origins(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it came of, each once: some are their own cause."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _place(trace: TracebackType | None) -> str | None:
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    users = [one for one in frames if is_the_users(one[0])]
    return "{}:{}".format(*(users or frames)[-1]) if frames else None


def is_the_users(file: str) -> bool:
    """Returns True if a Python file belongs to the user: not to dayfly, Python or a package."""
    ours = file.startswith("<frozen ") or Path(file).is_relative_to(_DAYFLY)
    return not ours and not installed(file)


def installed(file: str) -> bool:
    """Returns True if a Python file belongs to the interpreter or to an installed package."""
    path = Path(file)
    return not _PACKAGES.isdisjoint(path.parts) or any(map(path.is_relative_to, _PLACES))
