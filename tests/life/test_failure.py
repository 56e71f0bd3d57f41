"""What is kept of an exception: its type, text and place, and who raised it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dayfly.errors import RunFailed, WaitTimeout, WireError
from dayfly.life.failure import Failure, Origin, installed, raised_in

HERE = Path(__file__)


def failed(act: Callable[[], object]) -> Failure:
    try:
        act()
    except BaseException as error:
        return Failure.of(error, error.__traceback__)
    raise AssertionError("nothing was raised")


def line_of(text: str) -> str:
    lines = HERE.read_text().splitlines()
    return f"{HERE}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def mine() -> None:
    raise ValueError("no\nluck")  # here


def deep() -> None:
    torch.zeros(2) @ torch.zeros(3)  # torch raises


def gone() -> None:
    raise WireError("gone")


def because(error: BaseException) -> None:
    try:
        gone()
    except WireError as wire:
        raise error from wire


def meanwhile() -> None:
    try:
        gone()
    except WireError:
        mine()


def instead() -> None:
    try:
        gone()
    except WireError:
        raise ValueError("mine alone") from None


def late() -> None:
    raise WaitTimeout("nothing came")


def torch_tells() -> None:
    raise RuntimeError("Got the following error when running the callback: WireError: gone")


def talks_of_it() -> None:
    raise ValueError("WireError: gone")


def test_it_is_known_where_in_the_users_code() -> None:
    failure = failed(mine)
    assert (failure.kind, failure.message, failure.line) == ("ValueError", "no", "ValueError: no")
    assert failure.place == line_of("raise ValueError(" + '"no')
    assert failure.traceback.endswith("ValueError: no\nluck")
    assert failed(deep).place == line_of("torch.zeros(2) " + "@")
    with ThreadPoolExecutor(1) as pool:
        assert failed(pool.submit(mine).result).place == failure.place
    own = failed(lambda: Failure.load({"origin": "nobody"}))
    assert own.place == line_of("own = failed(")


@pytest.mark.parametrize(
    ("act", "origin"),
    [
        (mine, Origin.JOB),
        (deep, Origin.JOB),
        (gone, Origin.WIRE),
        (late, Origin.WIRE),
        (lambda: because(RuntimeError("mine")), Origin.WIRE),
        (lambda: because(RunFailed("ours")), Origin.WIRE),
        (meanwhile, Origin.WIRE),
        (instead, Origin.JOB),
        (torch_tells, Origin.WIRE),
        (talks_of_it, Origin.JOB),
    ],
)
def test_an_error_of_the_wire_is_known_behind_another(
    act: Callable[[], None], origin: Origin
) -> None:
    assert failed(act).origin is origin


def test_what_dayfly_raises_on_purpose_is_not_the_jobs() -> None:
    def refuse() -> None:
        raise RunFailed("the script has changed")

    assert failed(refuse).origin is Origin.DAYFLY


def test_the_step_travels_with_it_and_all_of_it_through_json() -> None:
    error = ValueError("no")
    raised_in(error, 7)
    raised_in(error, 8)
    failure = Failure.of(error, None)
    assert (failure.step, failure.place) == (7, None)
    for one in (failure, failed(late)):
        assert Failure.load(json.loads(json.dumps(one.dump()))) == one


def test_an_exception_that_cannot_tell_its_text() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise TypeError("no text")

    failure = Failure.of(Silent(), None)
    assert failure.line.endswith("Silent")
    assert "its text cannot be shown: TypeError('no text')" in failure.traceback


@pytest.mark.parametrize(
    ("file", "is_installed"),
    [
        (torch.__file__, True),
        (json.__file__, True),
        ("/opt/other/lib/python3/dist-packages/numpy/core.py", True),
        (__file__, False),
        ("/home/me/job.py", False),
    ],
)
def test_code_is_installed_or_the_users(file: str, is_installed: bool) -> None:
    assert installed(file) is is_installed
