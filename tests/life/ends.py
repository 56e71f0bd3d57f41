"""How functions ended, made up for tests of what follows from it."""

from __future__ import annotations

from typing import Any

from dayfly.life.failure import Failure, Origin
from dayfly.life.platforms.base import Ended, Invocation, Outcome
from dayfly.specs.functions import FunctionSpec

_WIRE = ("WireError", "WaitTimeout")


def end(
    worker: int,
    outcome: Outcome,
    error: str | None = None,
    *,
    detail: str = "",
    place: str = "job.py:3",
    step: int | None = None,
    result: Any = None,
) -> Ended:
    """error: for RAISED, in one line. place, step: where that was raised."""
    spec = FunctionSpec(lifetime_s=5.0)
    invocation = Invocation(
        function=f"worker-{worker}", attempt=0, handler="m:f", payload={}, spec=spec
    )
    failure = None
    if error is not None:
        kind, _, message = error.partition(": ")
        failure = Failure(
            kind=kind,
            message=message,
            traceback=f"Traceback ...\n{error}",
            place=place,
            origin=Origin.WIRE if kind in _WIRE else Origin.JOB,
            step=step,
        )
    return Ended(
        invocation=invocation,
        outcome=outcome,
        failure=failure,
        detail=detail if failure is None else failure.traceback,
        result=result,
        init_s=0,
        run_s=0,
    )
