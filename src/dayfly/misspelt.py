"""Keywords that nobody knows are refused with the one that may be meant.

dayfly.Job(modle=...)    RequestError: Job has no modle: do you mean model?
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from dayfly.errors import RequestError

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
#: Least likeness of a name that is proposed, from 0 to 1, as difflib measures it.
_LIKE = 0.7


def meant(name: str, known: Sequence[str]) -> str:
    """Returns the end of a refusal: the name that may be meant, or all that there are.

    Args:
        name: as it was given.
        known: names that there are.
    """
    longer = [one for one in known if one.startswith(f"{name}_")]
    near = longer or get_close_matches(name, known, n=1, cutoff=_LIKE)
    return f": do you mean {near[0]}?" if near else f": give one of {', '.join(known)}"


def suggests(called: AnyCallable) -> AnyCallable:
    """Decorates a function or class: an unknown keyword is refused, and the likely one is named.

    Args:
        called: takes no `**` keywords. A subclass is decorated itself.

    Returns:
        The class itself, or a function with the same signature.
    """
    function = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    known = list(inspect.signature(called).parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                raise RequestError(f"{called.__name__} has no {name}{meant(name, known)}")
        return function(*arguments, **keywords)

    if isinstance(called, type):
        called.__init__ = checked  # type: ignore[misc]
        return called
    return checked  # type: ignore[return-value]
