"""Runs of one process, one after another: what the next one shares with those before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.platforms import lineage
from dayfly.life.platforms.local_function import current_zygote_pid
from tests.runs import small

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    lineage.end_kept()
    yield
    lineage.end_kept()


class Telling:
    """A transform that says, in functions, which zygote forked this one, and what it finds."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, x: object) -> object:
        if "DAYFLY_SESSION" in os.environ and not self.file.exists():
            self.file.write_text(f"{current_zygote_pid()} {os.environ.get('OF_A_TRIAL')}")
        return x


def test_the_second_run_has_the_same_zygote_and_the_bits_of_a_first_one(
    tmp_path: Path,
    data: Path,
    undisturbed: Callable[[int], dayfly.Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = []
    for trial in ("one", "two"):
        monkeypatch.setenv("OF_A_TRIAL", trial)
        file = tmp_path / trial
        job = small.job(data, epochs=1, eval_transform=Telling(file))
        dayfly.train(job, run_dir=tmp_path / f"run-{trial}", **small.SETTINGS)
        said.append(file.read_text().split())
    assert [words[1] for words in said] == ["one", "two"]
    assert said[0][0] == said[1][0]
    assert len(lineage._kept) == 1, "and the next run's"
    again = dayfly.train(small.job(data), workers=2, run_dir=tmp_path / "again", **small.SETTINGS)
    assert small.bits(again) == small.bits(undisturbed(2))


def test_a_refused_job_leaves_no_zygote(tmp_path: Path, data: Path) -> None:
    def broken() -> object:
        raise ValueError("no model today")

    with pytest.raises(RequestError, match="no model today"):
        dayfly.train(small.job(data, model=broken), run_dir=tmp_path / "run", **small.SETTINGS)
    assert lineage._kept == []
    assert not (tmp_path / "run").exists()
