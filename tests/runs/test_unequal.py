"""Workers with shares and memory of their own train what equal workers do, up to rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs.api import checked_settings
from dayfly.runs.settings import Settings
from dayfly.runs.unequal import shares_of, slice_sizes
from tests.runs import small

#: The second of three workers has no sample of an epoch's last batch, which has 4.
BATCH, SHARES = 22, (20, 1, 1)


def losses(run: dayfly.Run) -> list[float]:
    found: list[float] = json.loads((run.directory / "history.json").read_text())["step_loss"]
    return found


@pytest.mark.quick
@pytest.mark.long
def test_unequal_shares_give_the_curve_of_one_process(data: Path, tmp_path: Path) -> None:
    job = small.job(data, model=small.plain_model, batch_size=BATCH, metrics={}, accumulate=2)
    given: dict[str, Any] = {"progress": False}
    alone = dayfly.train(job, workers=1, run_dir=tmp_path / "alone", **given)
    run = dayfly.train(job, shares=SHARES, run_dir=tmp_path / "run", **given)
    assert run.result.workers == len(SHARES)
    assert 0 in slice_sizes(run_settings(run), 180 % BATCH)
    np.testing.assert_allclose(losses(run), losses(alone), rtol=0, atol=1e-5)
    for own, one in zip(run.history, alone.history, strict=True):
        assert own["val_loss"] == pytest.approx(one["val_loss"], abs=1e-5)


@pytest.mark.long
def test_deaths_and_a_resume_with_unequal_shares_leave_the_same_bits(
    data: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"shares": (3, 1, 2), **small.SETTINGS}
    whole = dayfly.train(small.job(data), run_dir=tmp_path / "whole", **given)
    faults = [Fault(1, 4, "grad-put-part"), Fault(2, 11, "computed"), Fault(0, 13, "grad-drop")]
    directory = tmp_path / "run"
    first = dayfly.train(small.job(data, epochs=2), run_dir=directory, faults=faults, **given)
    assert first.result.restarts == len(faults)
    run = dayfly.resume(directory, epochs=3, progress=False)
    assert small.history(run)["step_loss"][:18] == small.history(whole)["step_loss"][:18]
    assert run_settings(run).shares == (3, 1, 2)


@pytest.mark.long
def test_functions_of_unequal_memory_have_shares_by_their_cpu_and_are_billed_by_it(
    data: Path, tmp_path: Path
) -> None:
    run = dayfly.train(
        small.job(data, epochs=1),
        imitate="aws-lambda",
        each_memory_mib=(1769, 885),
        run_dir=tmp_path,
        progress=False,
    )
    bill = json.loads((tmp_path / "bill.json").read_text())
    sizes = {one["function"]: one["memory_mib"] for one in bill["invocations"]}
    assert sizes == {"worker-0": 1769, "worker-1": 885}
    assert shares_of(run_settings(run)) == (2, 1)


def run_settings(run: dayfly.Run) -> Settings:
    record = json.loads((run.directory / "run.json").read_text())["settings"]
    return Settings(
        **{name: record[name] for name in ("workers", "shares", "each_memory_mib", "imitate")}
    )


def test_shares_follow_the_cpu_that_comes_with_memory_unless_they_are_said() -> None:
    of_lambda: dict[str, Any] = {"imitate": "aws-lambda", "each_memory_mib": (1769, 885, 885)}
    assert shares_of(Settings(**of_lambda)) == (2, 1, 1)
    assert shares_of(Settings(**of_lambda, shares=(6, 2, 4))) == (3, 1, 2)
    assert shares_of(Settings(**of_lambda, shares=(1, 1, 1))) == ()
    assert shares_of(Settings(**of_lambda, cpu_cores=0.5)) == ()
    assert shares_of(Settings(each_memory_mib=(1769, 885))) == (), "nobody says their CPU"
    assert shares_of(Settings(workers=3)) == ()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": 4, "shares": (2, 1, 1)}, "these are 3, and there are 4 workers"),
        ({"shares": (2, 0)}, "--shares 2,0: worker 1 would train nothing"),
        ({"each_memory_mib": (1024, -1)}, "--memory 1024,-1: give whole numbers from 1"),
        ({"each_memory_mib": (9, 8), "memory_mib": 7}, "give one of them"),
        ({"shares": (2, 1), "cut": (1,)}, "leave it or --cut out, and say the memory"),
        ({"shares": (2, 1), "virtual_workers": 4}, "cannot be with --virtual-workers"),
        ({"shares": (2, 1), "sync": "local-sgd", "k": 2}, "cannot be with --sync local-sgd"),
    ],
)
def test_what_cannot_be_unequal_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Settings(**asked)


@pytest.mark.parametrize("lists", [{"shares": (2, 1)}, {"each_memory_mib": (1769, 885)}])
def test_one_worker_asked_for_has_no_list_of_two(lists: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"--workers 1: --.* is of 2 workers: leave out one"):
        checked_settings(workers=1, **lists)
    with pytest.raises(RequestError, match=r"--workers 1: --.* is of 2 workers: leave out one"):
        Settings(workers=3).changed(workers=1, **lists)
    assert checked_settings(**lists).workers == 2


def test_a_change_of_stages_needs_unequal_replicas_anew() -> None:
    staged = Settings(cut=(2,), replicas=(1, 2))
    with pytest.raises(RequestError, match="3 stages, and --replicas 1,2 so far is of 2: give"):
        staged.changed(cut=(1, 2))
    assert staged.changed(cut=(3,)).replicas == (1, 2)
    assert staged.changed(cut=(1, 2), replicas=2).workers == 6


def test_a_change_of_workers_needs_their_lists_anew() -> None:
    settings = Settings(each_memory_mib=(1769, 885), shares=(3, 1))
    assert settings.changed(shares=(5, 1)).shares == (5, 1)
    with pytest.raises(RequestError, match="--memory 1769,885 is of 2 workers: give --memory anew"):
        settings.changed(workers=4)
    with pytest.raises(RequestError, match="--shares 3,1 is of 2 workers: give --shares anew"):
        settings.changed(each_memory_mib=(1769, 885, 885))
    more = settings.changed(each_memory_mib=(1769, 885, 885), shares=(4, 1, 1))
    assert (more.workers, more.shares) == (3, (4, 1, 1))
    alike = settings.changed(memory_mib=1024, shares=())
    assert (alike.workers, alike.memory_mib, alike.each_memory_mib) == (2, 1024, ())
