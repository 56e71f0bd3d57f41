"""The global batch follows the number of workers, also in mid-run; predictions and plans know."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dayfly
from dayfly.batches import Batches, Rounds
from dayfly.callbacks import Callback
from dayfly.errors import RequestError
from dayfly.runs import coordinator
from dayfly.runs.api import by_plan, overridden
from dayfly.runs.choosing.candidates import proposed
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.plans import JobSpec, configuration, plan_of
from dayfly.runs.prepare import check_shares
from dayfly.runs.settings import Settings
from tests.runs import small
from tests.runs.test_choosing import OVER_S3
from tests.runs.test_scaling import Asking, generations, to


def test_batches_change_within_an_epoch() -> None:
    """Each sample is in one batch of an epoch:

    epoch 0   0 1 2 3 | 4 5 6 7 | 8 9              steps 0 to 2
    epoch 1   0 1 2 3 | 4 5 | 6 7 | 8 9            steps 3 to 6
    epoch 2   0 1 | 2 3 | 4 5 | 6 7 | 8 9          steps 7 to 11
    """
    batches = Batches(10, 4, changed=((4, 2),))
    assert [batches.first(epoch) for epoch in range(4)] == [0, 3, 7, 12]
    assert [batches.batch(step) for step in range(3, 8)] == [
        range(4),
        range(4, 6),
        range(6, 8),
        range(8, 10),
        range(2),
    ]
    assert [batches.size(epoch) for epoch in range(3)] == [4, 2, 2]
    assert (batches.largest, batches.most_steps, batches.alike_from) == (4, 5, 2)


@given(
    st.integers(1, 20),
    st.integers(1, 9),
    st.dictionaries(st.integers(0, 30), st.integers(1, 9), max_size=4),
    st.none() | st.integers(1, 5),
)
def test_every_sample_is_in_one_batch_of_an_epoch_whenever_batches_change(
    samples: int, size: int, changes: dict[int, int], k: int | None
) -> None:
    batches = Batches(samples, size, changed=tuple(sorted(changes.items())))
    seen: Counter[tuple[int, int]] = Counter()
    for step in range(last := batches.first(5)):
        size = changes.get(step, size)
        batch, epoch = batches.batch(step), batches.epoch(step)
        assert len(batch) == size or batches.ends_epoch(step)
        assert batches.begins_epoch(step) == (batch.start == 0) == (step == batches.first(epoch))
        seen.update((epoch, sample) for sample in batch)
    assert seen == Counter((epoch, sample) for epoch in range(5) for sample in range(samples))
    rounds, step, number = Rounds(batches, k), 0, 0
    while step < last:
        of = rounds.steps(step)
        assert rounds.number(step) == number
        step, number = of.stop, number + 1
    assert step == last, "no round passes an epoch's end"


def test_what_contradicts_itself_is_refused() -> None:
    for size in (32, 16, lambda epoch: 8 * epoch):
        with pytest.raises(RequestError, match="both batch_size= and batch_per_worker="):
            small.job(Path("x.npz"), batch_size=size, batch_per_worker=8)
    with pytest.raises(RequestError, match="batch_per_worker is 0: give a whole number from 1"):
        per_worker(Path("x.npz"), 0)
    with pytest.raises(RequestError, match="--virtual-workers: batches that follow the workers"):
        check_shares(per_worker(Path("x.npz"), 8), Settings(workers=2, virtual_workers=4))
    job = per_worker(Path("x.npz"), 8)
    assert [job.sized(workers).batch_size for workers in (1, 2, 4)] == [8, 16, 32]
    check_shares(job.sized(2), Settings(workers=2))
    fixed = overridden(job.sized(2), batch_size=20)
    assert (fixed.batch_size, fixed.batch_per_worker) == (20, None)
    assert overridden(job.sized(2), epochs=7).batch_size == 16


def per_worker(data: Path, size: int, **more: Any) -> dayfly.Job:
    return small.job(data, batch_per_worker=size, model=small.plain_model, **more)


class Shrinks(Callback):
    """One worker from the second epoch on."""

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        run.scale(workers=1)


@pytest.mark.long
def test_a_resize_changes_the_batch_and_the_history_says_so(tmp_path: Path) -> None:
    """The same bits as those of a batch that is a function of the epoch."""
    data = small.write_data(tmp_path)
    following = per_worker(data, 10, callbacks=[Shrinks()])
    run = dayfly.train(following, workers=2, run_dir=tmp_path / "run", **small.SETTINGS)
    assert [one["batch_size"] for one in run.history] == [20, 10, 10]
    assert run.result.steps == 9 + 18 + 18
    assert [(one["first_step"], one["changes"]) for one in generations(run)] == [
        (0, None),
        (9, "--workers 1 in place of 2, batches of 10 samples in place of 20"),
    ]
    scheduled = small.job(
        data,
        batch_size=lambda epoch: 20 if epoch == 1 else 10,
        model=small.plain_model,
        callbacks=[Shrinks()],
    )
    other = dayfly.train(scheduled, workers=2, run_dir=tmp_path / "other", **small.SETTINGS)
    assert small.bits(run) == small.bits(other)
    on = dayfly.resume(run.directory, epochs=4, workers=3, progress=False)
    assert [one["batch_size"] for one in on.history] == [20, 10, 10, 30]
    assert on.result.steps == 9 + 18 + 18 + 6


@pytest.mark.slow  # warm workers learn of batches by `Going`; the callback's resize is above
@pytest.mark.parametrize("k", [None, 2])
def test_a_resize_in_mid_epoch_leaves_each_sample_once(
    data: Path, tmp_path: Path, k: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.05)
    asking = Asking(tmp_path, to(workers=4))
    sync = {} if k is None else {"sync": "local-sgd", "k": k}
    slowly = small.Slowly(0.1, 0.1, samples=5, until=asking.until)
    run = asking.train(data, job={"batch_per_worker": 5, "transform": slowly}, **sync)
    first = generations(run)[1]["first_step"]
    batches = Batches(180, 10, changed=((first, 20),))
    assert run.result.steps == batches.first(3)
    sizes = [batches.size(epoch) for epoch in range(3)]
    assert [one["batch_size"] for one in run.history] == sizes
    told = {one["step"] for one in small.events(run.directory, "worker-0") if "step" in one}
    assert set(range(batches.first(3))) <= told or k is not None


def test_predictions_and_plans_have_the_batch_of_their_workers() -> None:
    profile = replace(OVER_S3.profile, batch_size=8, batch_per_worker=8, epochs=2)
    wanted = JobSpec.profiled(profile)
    sizes = [configuration(Settings(workers=n), wanted).batch_size for n in (1, 2, 8)]
    assert sizes == [8, 16, 64]
    assert configuration(Settings(workers=2), JobSpec.profiled(profile, batch_size=40)) == (
        configuration(Settings(workers=2), replace(wanted, batch_size=40, batch_per_worker=None))
    )
    target = replace(OVER_S3, profile=profile)
    found = proposed(target, PlanQuery(workers=8), time_limit_s=5.0)
    workers = {one.settings.workers: one.wanted.batch_size for one in found.candidates}
    assert workers == {count: 8 * count for count in workers}
    assert len(workers) > 1
    assert "cuts are searched for one batch" in found.refused["pipeline"]


def test_a_plan_of_batches_that_follow_goes_with_such_a_job_alone() -> None:
    profile = replace(OVER_S3.profile, batch_size=8, batch_per_worker=8, epochs=2)
    plan = plan_of(profile, Settings(workers=4), JobSpec.profiled(profile))
    assert plan.job == {"batch_size": 32, "batch_per_worker": 8, "epochs": 2}
    job, settings = by_plan(plan, "plan", per_worker(Path("x.npz"), 8), {}, {"workers": 2})
    assert (job.sized(settings.members).batch_size, job.epochs) == (16, 2)
    with pytest.raises(RequestError, match="batches of 8 samples a worker, and the job has 20:"):
        by_plan(plan, "plan", small.job(Path("x.npz")), {}, {})
    with pytest.raises(RequestError, match="8 samples a worker, and the job has 9 a worker"):
        by_plan(plan, "plan", per_worker(Path("x.npz"), 9), {}, {})
