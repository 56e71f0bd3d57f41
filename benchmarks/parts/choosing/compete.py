"""Every method on the same problems, in one run and in a shuffled order."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, TypeVar

from benchmarks.parts.choosing.answer import Answer, Goal, exact
from benchmarks.parts.choosing.cases import Case
from benchmarks.parts.choosing.methods import EXACT, NAMES, Contest, Size, contest

Json = dict[str, Any]
T = TypeVar("T")

#: So much better than the exact planner is rounding.
ROUNDING = 1e-6


def compete(
    names: Sequence[str], size: Size, seed: int, say: Callable[[str], None]
) -> tuple[list[Json], list[Json]]:
    """Rows of the table, and every answer. names: of problems, of `methods.NAMES`."""
    contests = {name: contest(name, size, seed) for name in NAMES if name in names}
    tasks = [
        (name, group, case, method, number if method and method.cases else None)
        for name, one in contests.items()
        for group, cases in (("papers", one.papers), ("random", one.random))
        for number, case in enumerate(cases)
        for method in (None, *one.methods)
        if method is None or method.cases is None or number < method.cases
    ]
    random.Random(seed).shuffle(tasks)
    for one in contests.values():  # numba compiles once, where it is installed
        one.exact((*one.papers, *one.random)[0].problem)
    answers: list[Json] = []
    for number, (name, group, case, method, place) in enumerate(tasks):
        who = EXACT if method is None else method.name
        say(f"{number + 1} of {len(tasks)}: {name}, {case.name}, {who}")
        answers += [
            {"problem": name, "group": group, "case": case.name, "method": who, **one}
            for one in _answers(contests[name], case, method and method.answer, place)
        ]
    _compare(answers)
    rows = [
        _row(name, group, who, answers)
        for name, one in contests.items()
        for group in ("papers", "random")
        for who in (EXACT, *(method.name for method in one.methods))
    ]
    return [row for row in rows if row["answers"]], answers


def _answers(
    one: Contest,
    case: Case,
    method: Callable[[Any, Goal], Answer[Any]] | None,
    place: int | None,
) -> list[Json]:
    """One for each goal; place: of one goal alone. The exact planner's seconds are of all goals
    together, each time."""
    goals = dict(enumerate(case.goals))
    if place is not None:
        place %= len(goals)
        goals = {place: goals[place]}
    if method is None:
        front, took_s = _timed(lambda: one.exact(case.problem))
        found = [(exact(front, goal), took_s) for goal in goals.values()]
    else:
        found = [_timed(lambda goal=goal: method(case.problem, goal)) for goal in goals.values()]
    return [
        {
            "goal": number,
            "value": None if answer.point is None else goal.of(answer.point),
            "plan": None if answer.point is None else str(answer.point.plan),
            "seconds": None if answer.point is None else answer.point.seconds,
            "usd": None if answer.point is None else answer.point.usd,
            "took_s": took_s,
            "stopped": answer.stopped,
        }
        for (number, goal), (answer, took_s) in zip(goals.items(), found, strict=True)
    ]


def _compare(answers: Sequence[Json]) -> None:
    """Give each its `ratio` to the exact planner's value; None: it has found nothing."""
    best = {_key(one): one["value"] for one in answers if one["method"] == EXACT}
    for one in answers:
        value = one["value"]
        one["ratio"] = None if value is None or math.isinf(value) else value / best[_key(one)]


def _key(one: Json) -> tuple[str, str, int]:
    return one["problem"], one["case"], one["goal"]


def _row(name: str, group: str, who: str, answers: Sequence[Json]) -> Json:
    mine = [
        one
        for one in answers
        if (one["problem"], one["group"], one["method"]) == (name, group, who)
    ]
    found = [one for one in mine if one["ratio"] is not None]
    worst = max(found, key=lambda one: one["ratio"], default=None)
    took = [one["took_s"] for one in mine]
    return {
        "problem": name,
        "group": group,
        "method": who,
        "answers": len(mine),
        "none": len(mine) - len(found),
        "optimal": sum(one["ratio"] <= 1 + ROUNDING for one in found),
        "ratio": median(one["ratio"] for one in found) if found else None,
        "ratio_worst": worst and worst["ratio"],
        "worst_of": worst and worst["case"],
        "took_s": median(took) if took else None,
        "took_s_worst": max(took, default=None),
        "stopped": dict(Counter(one["stopped"] for one in mine)),
    }


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began
