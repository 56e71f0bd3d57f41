"""Whether a script wrote anything: what counts, what does not, and how far it is looked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dayfly.runs.scripts.footprint import footprint


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


@pytest.mark.parametrize("name", ["new", "below/new", "kept"])
def test_what_was_written_is_seen(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    write(kept)
    os.utime(kept, (1, 1))
    before = footprint([tmp_path])
    write(tmp_path / name)
    assert footprint([tmp_path]) != before


@pytest.mark.parametrize("name", [".hidden/new", "__pycache__/new.pyc", "run/logs/worker-0.log"])
def test_what_is_not_the_scripts_is_not(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    before = footprint([tmp_path], without=[tmp_path / "run"])
    write(tmp_path / name)
    assert footprint([tmp_path], without=[tmp_path / "run"]) == before


def test_a_place_within_what_is_passed_over_is_looked_at(tmp_path: Path) -> None:
    places, without = [tmp_path / "run" / "files", tmp_path], [tmp_path / "run"]
    before = footprint(places, without=without)
    write(tmp_path / "run" / "files" / "checkpoint.pt")
    assert footprint(places, without=without) != before


def test_the_look_is_bounded_and_sees_what_is_near_the_top(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / "data" / f"{number:02d}")

    def look() -> object:
        return footprint([tmp_path], most=10)

    before = look()
    write(tmp_path / "data" / "99")
    assert look() == before
    write(tmp_path / "z-checkpoint.pt")
    assert look() != before


def test_where_our_own_output_goes_does_not_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.log"
    write(out)
    status = out.stat()
    known: Callable[[int], os.stat_result] = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: status if fd == 1 else known(fd))
    before = footprint([tmp_path])
    write(out)
    os.utime(out, (1, 2**31))
    assert footprint([tmp_path]) == before
