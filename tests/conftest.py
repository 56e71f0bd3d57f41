"""Tests that take the whole machine, and all others, which wait for them.

Files of tests run beside each other. Most do not mind; but one that writes gigabytes would stall
functions that live for seconds, and they would die of it.

    others   |gate|----- test, shared -----|
    alone         |gate, waits ............|----- test, exclusive -----|
    others             waits for the gate ...                          |gate|----- test
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

# No example has a deadline: on a machine that does something else, any may take seconds.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@contextmanager
def _locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked may have it open


@pytest.fixture(autouse=True)
def room(request: pytest.FixtureRequest) -> Iterator[None]:
    """The machine, shared with the tests of other processes; for one marked `alone`, all of it."""
    here = Path(tempfile.gettempdir())
    gate, machine = (here / f"tests-of-dayfly-{os.getuid()}.{n}" for n in ("gate", "machine"))
    alone = request.node.get_closest_marker("alone") is not None
    with ExitStack() as held:
        with _locked(gate):
            held.enter_context(_locked(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield
