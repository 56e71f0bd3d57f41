"""Requests to a run under way, such as to stop: left in its store from any terminal or program.

    whoever asks    control/000000  <- {"kind": "scale", "changes": {"workers": 8}}
                                       the first put of a number wins
    coordinator     looks every few seconds; answers by an event of that number

No process needs the address of another. A request outlives the coordinator that it was left for:
the next one reads on where the run's record says that answers are missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from dayfly.dataclass_json import dump, read
from dayfly.errors import RequestError
from dayfly.wire.stores.base import ObjectMissing, Store

#: The folder of requests in the run's store.
FOLDER = "control"
#: Seconds between two looks in a directory, and in a store where each is a request to be paid for:
#: 4e-7 dollars over S3.
LOOK_EVERY_S, FAR_LOOK_S = 2.0, 10.0
#: The most requests that one run can hold.
_MOST = 1_000_000

Kind = Literal["stop", "scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asks of a run.

    Args:
        kind: `stop`: end it in order; `scale`: go on by another plan.
        changes: settings of `scale`, by their names; nobody has checked them.
    """

    kind: Kind
    changes: Mapping[str, Any] = field(default_factory=dict)


class Control:
    """The coordinator's side: the requests that came after it was made.

    Args:
        store: the run's.
        every_s: seconds between two looks, at least.
        first: number of the first request to answer, which is looked for at once; None: after
            those that are there.
        now: a clock in seconds that never goes back.

    Attributes:
        next: number of the first request that was not taken yet.
        began_at: number of the first request that was left after this was made.
    """

    def __init__(
        self,
        store: Store,
        every_s: float = LOOK_EVERY_S,
        first: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._every_s = every_s
        self._now = now
        self.began_at = next_number(store, FOLDER)
        self.next = self.began_at if first is None else first
        self._next_s = now() + every_s if first is None else now()

    def take(self) -> tuple[int, Request] | None:
        """Returns the next request with its number; None: there is none.

        Asks the store at most every `every_s`, and again at once after a request.
        """
        if self._now() < self._next_s:
            return None
        # A listing would cost twelve times as much over S3.
        with suppress(ObjectMissing):
            while True:
                data = self._store.get(_name(self.next))
                self.next += 1
                # An object that is no request of a known kind is ignored.
                with suppress(ValueError, TypeError, RequestError):
                    return self.next - 1, read(Request, json.loads(data), _name(self.next - 1))
        self._next_s = self._now() + self._every_s
        return None


def ask(store: Store, request: Request) -> int:
    """Leaves a request for a run's coordinator.

    Args:
        store: the run's.
        request: what is asked.

    Returns:
        Its number, by which the answer is known.

    Raises:
        RequestError: the run has as many requests as it can hold.
    """
    for number in range(next_number(store, FOLDER), _MOST):
        if store.put_new(_name(number), json.dumps(dump(request)).encode()) is not None:
            return number
    raise RequestError(f"{store} holds too many requests in {FOLDER}/: remove some")


def next_number(store: Store, folder: str) -> int:
    """Returns the number after that of the last numbered object of a folder.

    Objects of other names, which somebody else put there, are passed over.
    """
    names = (info.name.rpartition("/")[2] for info in store.list(folder))
    return max((int(name) for name in names if is_numbered(name)), default=-1) + 1


def is_numbered(name: str) -> bool:
    """Whether an object without its folder is called as one of a numbered sequence."""
    return len(name) == 6 and name.isdecimal()


def _name(number: int) -> str:
    return f"{FOLDER}/{number:06d}"
