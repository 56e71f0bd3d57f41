"""Tests that take the whole machine, and all others, which wait for them.

Files of tests run beside each other. Most do not mind; but one that writes gigabytes would stall
functions that live for seconds, and they would die of it.

    others   |gate|----- test, shared -----|
    alone         |gate, waits ............|----- test, exclusive -----|
    others             waits for the gate ...                          |gate|----- test

Python programs that tests start are forked from one that has torch imported (tests/warm/), but for
those of tests marked `cold`.

Nor has a test of hypothesis a deadline: it would be the machine's, which may hold up any process
for seconds. And it tries the same examples each time, so that what was green yesterday is today.
Soaks do not: what happens in them is drawn anew each day, or by --seed, which their failures name.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import pytest
import torch
from hypothesis import settings

from dayfly.uncompiled import leave_compiler_unloaded
from tests.costs import Costs
from tests.warm import popen
from tests.warm.server import SHARED

settings.register_profile("random", deadline=None)  # --hypothesis-profile random looks further
settings.register_profile("dayfly", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("dayfly")

_BEGAN = pytest.StashKey[float]()


@contextmanager
def _locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked may have it open


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The machine, shared with the tests of other processes; for one marked `alone`, all of it.

    The wait for it is no part of the test's own time, which has a limit: others may take minutes.
    """
    here = Path(tempfile.gettempdir())
    gate, machine = (here / f"tests-of-dayfly-{os.getuid()}.{n}" for n in ("gate", "machine"))
    alone = item.get_closest_marker("alone") is not None
    with ExitStack() as held:
        with _locked(gate):
            held.enter_context(_locked(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        if item.get_closest_marker("cold") is not None:
            held.enter_context(popen.cold())
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dayfly")
    group.addoption("--cold", action="store_true", help="start every program as a user does")
    group.addoption("--costs", type=Path, help="a file to append the tests' CPU seconds to")
    group.addoption("--part", help="every n-th test function alone, such as 3/7")
    group.addoption("--minutes", type=float, help="begin no test after so many")
    today = int(time.time()) // 86400
    group.addoption("--seed", type=int, default=today, help="of soaks (another one each day)")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # there is a process of tests for each processor
    leave_compiler_unloaded()
    distributes = config.getoption("dist", "no") != "no"  # what it starts are processes of tests
    covered = distributes and config.getoption("cov_source", None)  # they import what is counted
    if not (config.getoption("--cold") or covered):
        popen.install(more=SHARED if distributes else ())
    if (costs := config.getoption("--costs")) is not None:
        config.pluginmanager.register(Costs(costs.absolute()))
    config.stash[_BEGAN] = time.monotonic()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of other parts; those of one function are of one part.

    The order is pytest-randomly's, but that tests of one room follow each other. So they mostly run
    in one process, which starts the room's servers and makes its undisturbed runs once; rooms are
    in a random order, too. Files beside the rooms come first: among them is mypy, the longest.
    """
    rooms: dict[str, list[pytest.Item]] = {"": []}
    for item in items:
        room, _, file = item.nodeid.partition("::")[0].removeprefix("tests/").partition("/")
        rooms.setdefault(room if file else "", []).append(item)
    items[:] = [item for room in rooms.values() for item in room]
    if (given := config.getoption("--part")) is None:
        return
    part, parts = map(int, given.split("/"))
    functions = {item: item.nodeid.partition("[")[0].encode() for item in items}
    mine = {item: crc32(name) % parts == part - 1 for item, name in functions.items()}
    config.hook.pytest_deselected(items=[item for item in items if not mine[item]])
    items[:] = [item for item in items if mine[item]]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part may have no tests."""
    none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if none and session.config.getoption("--part") is not None:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(autouse=True)
def environment_stays() -> Iterator[None]:
    """Commands in the tests' own process set variables for what they start."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of what a soak draws."""
    given: int = request.config.getoption("--seed")
    return given


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() > item.config.stash[_BEGAN] + 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")
