"""What a bench says of the machine it ran on."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.parts.machine import Stolen


def ticks(user: int, idle: int, steal: int) -> str:
    return f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3\n"


def test_what_the_host_gave_to_others(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text(ticks(100, 1000, 500))
    stolen = Stolen(file)
    assert stolen.share() is None  # no time has passed
    file.write_text(ticks(150, 1030, 520))
    assert stolen.share() == pytest.approx(0.2)


@pytest.mark.parametrize("text", [None, "cpu 1 2 3\n", "\n"])
def test_a_kernel_that_does_not_tell(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert Stolen(tmp_path / "stat").share() is None


def test_this_machine() -> None:
    share = Stolen().share()
    assert share is None or 0 <= share <= 1
