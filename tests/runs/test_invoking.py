"""Functions that invoke functions train as others do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from tests.runs import small

pytestmark = pytest.mark.long


def test_a_tree_of_functions_leaves_the_same_bits(
    data: Path, undisturbed: Callable[[int], dayfly.Run], tmp_path: Path
) -> None:
    """Worker 0 invokes worker 1, and dies in its first step: it starts again by itself."""
    run = dayfly.train(
        small.job(data),
        workers=2,
        run_dir=tmp_path,
        faults=[Fault(0, 0, "computed")],
        platform_options={"fan_out": 1, "call_ms": 20},
        **small.SETTINGS,
    )
    assert run.result.restarts == 1
    assert small.bits(run) == small.bits(undisturbed(2))


def test_a_tree_that_cannot_be_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="fan-out 0: give a whole number from 1"):
        dayfly.train(small.job(data), run_dir=tmp_path, platform_options={"fan_out": 0})
    assert not any(tmp_path.iterdir())
