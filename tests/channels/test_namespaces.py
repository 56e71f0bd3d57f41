"""Whose messages: names of runs and numbers of generations."""

from __future__ import annotations

import pytest

from dayfly.wire.channels.base import Namespace


@pytest.mark.parametrize(
    "run", ["", ".", "..", "../x", "a/b", "/tmp", "a\0", "a b", "é", "-a", "a\n"]
)
def test_a_runs_name_is_never_a_path(run: str) -> None:
    with pytest.raises(ValueError, match="must be letters"):
        Namespace(run, 0)


@pytest.mark.parametrize("generation", [-1, 10**6])
def test_a_generation_has_six_digits(generation: int) -> None:
    with pytest.raises(ValueError, match="generation"):
        Namespace("run", generation)
