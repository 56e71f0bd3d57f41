"""Batch sizes that change by epoch: which steps form which epoch, and what the history says."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import dayfly
from dayfly.batches import Batches, Rounds
from dayfly.errors import RequestError
from dayfly.runs.api import overridden
from dayfly.runs.plans import JobSpec
from tests.runs import small

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def listed(samples: int, sizes: list[int], epochs: int) -> list[tuple[int, range]]:
    """Epoch and batch of each step, one after another."""
    found = []
    for epoch in range(epochs):
        size = sizes[min(epoch, len(sizes) - 1)]
        found += [
            (epoch, range(first, min(first + size, samples))) for first in range(0, samples, size)
        ]
    return found


@given(st.integers(1, 20), SIZES)
def test_steps_are_those_of_one_epoch_after_another(samples: int, sizes: list[int]) -> None:
    batches = Batches(samples, sizes[0], later=tuple(sizes[1:]))
    steps = listed(samples, sizes, epochs := 6)
    assert batches.first(epochs) == len(steps)
    for step, (epoch, batch) in enumerate(steps):
        assert (batches.epoch(step), batches.batch(step)) == (epoch, batch)
        assert batches.begins_epoch(step) == (batch.start == 0)
        assert batches.ends_epoch(step) == (batch.stop == samples)
    assert batches.largest == max(sizes)
    assert batches.most_steps == -(-samples // min(sizes))


@given(st.integers(1, 20), SIZES, st.none() | st.integers(1, 5))
def test_rounds_never_pass_an_epochs_end_and_are_counted_through(
    samples: int, sizes: list[int], k: int | None
) -> None:
    batches = Batches(samples, sizes[0], later=tuple(sizes[1:]))
    rounds, step, number = Rounds(batches, k), 0, 0
    while batches.epoch(step) < 6:
        of = rounds.steps(step)
        assert of.start == step
        assert {batches.epoch(one) for one in of} == {batches.epoch(step)}
        assert all(rounds.steps(one) == of and rounds.number(one) == number for one in of)
        assert len(of) <= rounds.longest
        step, number = of.stop, number + 1


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (lambda epoch: 0, "the job's batch_size is 0"),
        (lambda epoch: 4 // epoch, "is 0 in epoch 5"),
        (lambda epoch: 4 if epoch < 3 else 4.5, "is 4.5 in epoch 3"),
    ],
)
def test_sizes_that_cannot_be_are_refused(size: object, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        small.job(Path("x.npz"), batch_size=size, epochs=5)


def growing(epoch: int) -> int:
    return 10 * epoch


def test_a_number_in_place_of_a_function_counts_for_all_epochs() -> None:
    job = small.job(Path("x.npz"), batch_size=growing)
    assert (job.batch_size, job.batch_sizes) == (10, (10, 20, 30))
    assert overridden(job, epochs=2).batch_sizes == (10, 20)
    assert overridden(job, batch_size=7).batch_sizes == (7,)
    with pytest.raises(RequestError, match="changes by epoch, and profiles and plans have one"):
        JobSpec.of(job)


@pytest.mark.long
def test_every_sample_is_in_one_batch_of_an_epoch_and_the_history_has_the_sizes(
    tmp_path: Path,
) -> None:
    data = small.write_data(tmp_path)
    job = small.job(data, batch_size=growing, model=small.plain_model)
    alone = dayfly.train(job, workers=1, run_dir=tmp_path / "one", **small.SETTINGS)
    two = dayfly.train(job, workers=2, run_dir=tmp_path / "two", **small.SETTINGS)
    assert alone.result.steps == 18 + 9 + 6
    assert [one["batch_size"] for one in alone.history] == [10, 20, 30]
    ours, theirs = (
        safetensors.torch.load_file(run.directory / "weights.safetensors") for run in (alone, two)
    )
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)
    on = dayfly.resume(two.directory, epochs=4, progress=False)
    assert [one["batch_size"] for one in on.history] == [10, 20, 30, 40]
    assert on.result.steps == 18 + 9 + 6 + 5
