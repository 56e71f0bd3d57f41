"""Processors of virtual time, one number after another: `processor.SharedProcessor`, to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dayfly.wire.loop.agenda import push
from dayfly.wire.loop.records import COMPUTED, DONE, State

_NOTHING = 1e-9
_NEVER = math.inf
_SLICE_S, _KEPT_S = 0.005, 0.001


def job(s: State, whose: int, cpu_s: float, where: int) -> None:
    """An operation's CPU work begins, or a stream's (NONE - stream)."""
    if s.processors[where].share == _NEVER:
        push(s, s.run[0].now_s + cpu_s, DONE, whose, 0)
        return
    _pass_time(s, where)
    at = s.processors[where].room + s.processors[where].jobs
    s.jobs[at].until_s = s.processors[where].had_s + cpu_s
    s.jobs[at].number, s.jobs[at].whose = s.run[0].jobs, whose
    s.run[0].jobs += 1
    s.processors[where].jobs += 1
    look_again(s, where)


def take_job(s: State, where: int) -> int:
    """The first job is done now; returns whose it was."""
    _pass_time(s, where)
    at = _first_job(s, where)
    whose, until_s = s.jobs[at].whose, s.jobs[at].until_s
    s.processors[where].jobs -= 1
    last = s.processors[where].room + s.processors[where].jobs
    s.jobs[at].until_s = s.jobs[last].until_s
    s.jobs[at].number, s.jobs[at].whose = s.jobs[last].number, s.jobs[last].whose
    s.processors[where].had_s = max(s.processors[where].had_s, until_s)
    if not s.processors[where].jobs:
        s.processors[where].slice_s = min(s.processors[where].slice_s, _KEPT_S)
    return whose


def look_again(s: State, where: int) -> None:
    """When it will have done a job."""
    at_s = _next_s(s, where)
    if at_s < _NEVER:
        push(s, max(at_s, s.run[0].now_s), COMPUTED, where, 0)


def _first_job(s: State, where: int) -> int:
    """Which is done first; of equal ones, which came first."""
    begin_ = s.processors[where].room
    best = begin_
    for at in range(begin_ + 1, begin_ + s.processors[where].jobs):
        if s.jobs[at].until_s < s.jobs[best].until_s or (
            s.jobs[at].until_s == s.jobs[best].until_s and s.jobs[at].number < s.jobs[best].number
        ):
            best = at
    return best


def _next_s(s: State, where: int) -> float:
    """`SharedProcessor.next_s`."""
    p, count = s.processors[where], s.processors[where].jobs
    if not count:
        return _NEVER
    work_s = max(0.0, s.jobs[_first_job(s, where)].until_s - p.had_s)
    if not p.period_s:
        return p.at_s + work_s * max(1.0, count / p.share)
    left_s, slice_s = p.left_s, p.slice_s
    at_s, end_s = p.at_s, p.end_s
    each_s = min(p.quota_s / count, p.period_s)
    while True:
        run_s = min(left_s / count, end_s - at_s)
        if work_s <= run_s and left_s > _NOTHING * p.period_s:
            return at_s + work_s
        work_s -= run_s
        slice_s = _after(slice_s, run_s * count, left_s - run_s * count)
        if not slice_s or each_s == p.period_s:
            break
        left_s = p.quota_s + slice_s
        at_s, end_s = end_s, end_s + p.period_s
    periods = max(0, math.ceil(work_s / each_s - _NOTHING) - 1)
    return end_s + periods * p.period_s + work_s - periods * each_s


def _pass_time(s: State, where: int) -> None:
    """`SharedProcessor._advance`, to this moment."""
    p, count, now_s = s.processors[where], s.processors[where].jobs, s.run[0].now_s
    passed_s = now_s - p.at_s
    if passed_s <= 0:
        return
    if not p.period_s:
        p.at_s = now_s
        if count:
            p.had_s += passed_s * min(1.0, p.share / count)
        return
    if now_s < p.end_s:
        _use(p, passed_s, count)
    else:
        _use(p, p.end_s - p.at_s, count)
        beyond_s = now_s - p.end_s
        rest_s = beyond_s % p.period_s
        whole = np.rint((beyond_s - rest_s) / p.period_s)
        p.end_s += (whole + 1) * p.period_s
        p.left_s = p.quota_s + p.slice_s
        if count:
            _pass_periods(p, whole, count)
        _use(p, rest_s, count)
    p.at_s = now_s


def _pass_periods(p: Any, whole: float, count: int) -> None:
    """`SharedProcessor._pass_periods`."""
    while whole and p.slice_s and p.quota_s < p.period_s * count:
        _use(p, p.period_s, count)
        p.left_s = p.quota_s + p.slice_s
        whole -= 1
    p.had_s += whole * min(p.quota_s / count, p.period_s)


def _use(p: Any, passed_s: float, count: int) -> None:
    """`SharedProcessor._use`."""
    if count:
        run_s = min(passed_s, p.left_s / count)
        p.had_s += run_s
        p.left_s -= run_s * count
        p.slice_s = _after(p.slice_s, run_s * count, p.left_s)


def _after(slice_s: float, used_s: float, left_s: float) -> float:
    """`processor._after`."""
    slice_s -= used_s
    if slice_s < 0.0:
        slice_s += math.ceil(-slice_s / _SLICE_S - _NOTHING) * _SLICE_S
    return max(0.0, min(slice_s, left_s))
