"""A worker that starts again is level with its peers where its predecessor may have died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from dayfly.runs.progress import CatchUp, LoggedSum
from dayfly.wire.schedule import Name


class Log:
    """An engine whose all-reduces have one sum each, and of which some are in the log."""

    def __init__(self, whole: set[int]) -> None:
        self._whole = whole

    def sums(self, like: torch.Tensor) -> tuple[Name, ...]:
        return (Name("sum", 0),)

    def stored_sums(self, like: torch.Tensor, step: int, operation: str) -> frozenset[Name]:
        return frozenset(self.sums(like) if step in self._whole else ())


@pytest.mark.parametrize(
    ("ahead", "looked_up", "level_at"),
    [
        (0, [0, 1, 2], 2),
        # It may have put its contribution to step 3, whose sum was made since.
        (1, [0, 1, 2, 3], 3),
    ],
)
def test_it_looks_into_the_log_as_far_as_its_predecessor_may_have_come(
    ahead: int, looked_up: list[int], level_at: int
) -> None:
    told: list[int] = []
    reporter = cast("Any", SimpleNamespace(add=lambda kind, urgent, step: told.append(step)))
    catch_up = CatchUp(reporter, 0, behind=True, ahead=ahead)
    one = LoggedSum(cast("Any", Log({0, 1, 3})), "grad", torch.zeros(1))
    found = {step: catch_up.stored(step, [one])[0] for step in range(5)}
    assert [step for step, stored in found.items() if stored is not None] == looked_up
    assert told == [level_at]
    assert not catch_up.behind
