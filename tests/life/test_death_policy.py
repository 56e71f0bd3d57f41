"""When a run gives up."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.life.deaths import DEATHS_WITHOUT_A_STEP, Deaths
from dayfly.life.platforms.base import Ended, Invocation, Limits, Outcome


def ended(outcome: Outcome, what: str = "", worker: int = 0) -> Ended:
    invocation = Invocation(
        function=f"worker-{worker}", attempt=0, handler="m:f", payload={}, limits=Limits()
    )
    raised = outcome is Outcome.RAISED
    return Ended(
        invocation=invocation,
        outcome=outcome,
        error=what if raised else None,
        detail="Traceback ..." if raised else what,
        init_s=0,
        run_s=0,
    )


RAISED, OOM, LIFETIME = Outcome.RAISED, Outcome.OUT_OF_MEMORY, Outcome.LIFETIME
EXITED, KILLED = Outcome.EXITED, Outcome.KILLED

#: Deaths as (outcome, what, completed steps), and at which of them the run fails, if at all.
TABLE: dict[str, tuple[list[tuple[Any, str, int]], int | None]] = {
    "three of one cause": ([(OOM, "", 5)] * 3, 2),
    "two of one cause": ([(OOM, "", 5)] * 2, None),
    "progress between": ([(OOM, "", 5), (OOM, "", 5), (OOM, "", 6), (OOM, "", 6)], None),
    "progress before each": ([(RAISED, "E", step) for step in range(50)], None),
    "progress, then three": ([(OOM, "", 5), (OOM, "", 6), (OOM, "", 6), (OOM, "", 6)], 3),
    "different outcomes": ([(OOM, "", 5), (LIFETIME, "", 5), (RAISED, "", 5)] * 2, None),
    "different texts": ([(RAISED, f"ValueError: {n}", 0) for n in range(3)], 2),
    "different errors": ([(RAISED, "ValueError: a", 0), (RAISED, "KeyError: a", 0)] * 2, None),
    "interleaved": ([(OOM, "", 0), (RAISED, "E", 0)] * 3, 4),
    "memory peaks differ": ([(OOM, f"peak {n} MiB", 0) for n in range(3)], 2),
    "exit codes": ([(EXITED, "exit code 3", 0), (EXITED, "exit code 4", 0)] * 2, None),
    "one exit code": ([(EXITED, "signal SIGSEGV", 0)] * 3, 2),
    "kills from outside": ([(KILLED, "SIGKILL", 0)] * (DEATHS_WITHOUT_A_STEP - 1), None),
    "too many kills": ([(KILLED, "SIGKILL", 0)] * DEATHS_WITHOUT_A_STEP, DEATHS_WITHOUT_A_STEP - 1),
    "kills do not add to others": ([(OOM, "", 0), (KILLED, "", 0), (OOM, "", 0)], None),
    "kills do not reset others": ([(OOM, "", 0), (KILLED, "", 0), (OOM, "", 0), (OOM, "", 0)], 3),
    "ever other causes": (
        [(RAISED, f"Error{n}: x", 0) for n in range(DEATHS_WITHOUT_A_STEP)],
        DEATHS_WITHOUT_A_STEP - 1,
    ),
}


@pytest.mark.parametrize("name", list(TABLE))
def test_the_policy(name: str) -> None:
    rows, fails_at = TABLE[name]
    deaths = Deaths()
    causes = [deaths.note(ended(outcome, what), step) for outcome, what, step in rows]
    failed = [number for number, cause in enumerate(causes) if cause is not None]
    assert failed[:1] == ([] if fails_at is None else [fails_at])


def test_each_worker_counts_for_itself() -> None:
    """One event, such as the end of lifetimes that began together, may hit all of them."""
    deaths = Deaths()
    causes = [deaths.note(ended(LIFETIME, "", worker), 4) for worker in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert causes == [None] * 8
    assert deaths.note(ended(RAISED, "E: no", 1), 4) is None
    text = deaths.note(ended(LIFETIME, "60 s", 1), 4) or ""
    assert text.startswith(
        "worker 1 came to the end of its lifetime (60 s) in step 4, 3 times in a row without a "
        "completed step: raise --lifetime"
    )


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (ended(OOM, "256 MiB limit"), "ran out of memory (256 MiB limit)*: raise --memory or"),
        (ended(LIFETIME, "60 s"), "came to the end of its lifetime (60 s)*: raise --lifetime"),
        (ended(EXITED, "exit code 3"), "ended itself (exit code 3)*3 times in a row"),
        (ended(RAISED, "E: x"), "raised E: x in step 7*3 times in a row*Traceback ..."),
    ],
)
def test_the_cause_says_what_to_do(one: Ended, text: str) -> None:
    deaths = Deaths()
    cause = [deaths.note(one, 7) for _ in range(3)][-1] or ""
    assert cause.startswith("worker 0 ")
    at = 0
    for part in text.split("*"):
        assert (at := cause.find(part, at)) >= 0, cause
