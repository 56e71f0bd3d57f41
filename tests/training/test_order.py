"""Which samples form which step: a permutation that anyone can ask for any part of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.training.order import Epochs, permuted, share

sizes = st.integers(1, 2000)
keys = st.lists(st.integers(0, 2**64 - 1), max_size=3)


def whole(size: int, *key: int) -> np.ndarray:
    return permuted(np.arange(size, dtype=np.int64), size, *key)


@given(size=sizes, key=keys)
def test_every_size_and_key_gives_a_permutation(size: int, key: list[int]) -> None:
    assert np.array_equal(np.sort(whole(size, *key)), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025])
def test_sizes_around_powers_of_four(size: int) -> None:
    assert np.array_equal(np.sort(whole(size, 1, 2)), np.arange(size))


@given(size=sizes, key=keys, data=st.data())
def test_a_part_is_as_in_the_whole(size: int, key: list[int], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    positions = np.array(some, dtype=np.int64)
    assert np.array_equal(permuted(positions, size, *key), whole(size, *key)[positions])


def test_order_differs_by_every_number_of_its_key() -> None:
    orders = [whole(500, seed, epoch).tobytes() for seed in range(8) for epoch in range(8)]
    assert len(set(orders)) == 64


def test_order_mixes() -> None:
    """Neighbours go apart, and over many keys every sample comes first about equally often."""
    order = whole(2000, 7)
    assert np.mean(np.abs(np.diff(order)) <= 2) < 0.02
    first = np.bincount([permuted(np.zeros(1, np.int64), 10, key)[0] for key in range(2000)])
    assert first.min() > 120
    assert first.max() < 290


@pytest.mark.parametrize("positions", [[-1], [5], [0, 7]])
def test_positions_outside_are_refused(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="of 5 samples"):
        permuted(np.array(positions, dtype=np.int64), 5)


@given(total=st.integers(0, 10**6), parts=st.integers(1, 300))
@pytest.mark.long
def test_shares_cover_the_whole_and_differ_by_one(total: int, parts: int) -> None:
    ranges = [share(total, part, parts) for part in range(parts)]
    assert [r.start for r in ranges[1:]] == [r.stop for r in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, total)
    lengths = {len(r) for r in ranges}
    assert max(lengths) - min(lengths) <= 1


@given(
    samples=st.integers(1, 300),
    batch_size=st.integers(1, 400),
    workers=st.integers(1, 9),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@pytest.mark.long
def test_an_epoch_covers_every_sample_once_for_any_number_of_workers(
    samples: int, batch_size: int, workers: int, epoch: int, seed: int
) -> None:
    epochs = Epochs(samples, batch_size, seed)
    steps = range(epoch * epochs.steps, (epoch + 1) * epochs.steps)
    seen = []
    for step in steps:
        batch = epochs.indices(step, 0, 1)
        slices = [epochs.indices(step, rank, workers) for rank in range(workers)]
        assert np.array_equal(np.concatenate(slices), batch), "slices in rank order are the batch"
        seen.append(batch)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(samples))
    assert all(len(batch) == min(batch_size, samples) for batch in seen[:-1])


def test_the_last_batch_of_an_epoch_is_ragged() -> None:
    epochs = Epochs(samples=10, batch_size=4, seed=0)
    assert epochs.steps == 3
    assert [epochs.batch(step) for step in range(4)] == [
        range(4),
        range(4, 8),
        range(8, 10),
        range(4),
    ]
    assert [epochs.ends_epoch(step) for step in range(4)] == [False, False, True, False]
    assert [epochs.epoch(step) for step in (0, 2, 3, 6)] == [0, 0, 1, 2]


def test_a_share_of_a_small_batch_may_be_empty() -> None:
    epochs = Epochs(samples=2, batch_size=2, seed=0)
    assert [len(epochs.indices(0, rank, 4)) for rank in range(4)] == [0, 1, 0, 1]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        Epochs(100, 100, seed).indices(epoch, 0, 1).tobytes()
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(orders) == 16


@given(
    total=st.integers(0, 10**6), weights=st.lists(st.integers(1, 10**4), min_size=1, max_size=50)
)
def test_weighted_shares_cover_the_whole_in_proportion(total: int, weights: list[int]) -> None:
    each = tuple(weights)
    ranges = [share(total, part, len(each), each) for part in range(len(each))]
    assert [r.start for r in ranges[1:]] == [r.stop for r in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, total)
    for own, weight in zip(ranges, each, strict=True):
        assert abs(len(own) - total * weight / sum(each)) < 1
    alike = (each[0],) * len(each)
    assert all(
        share(total, part, len(each), alike) == share(total, part, len(each))
        for part in range(len(each))
    )


@given(
    samples=st.integers(1, 300),
    batch=st.integers(1, 60),
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_an_epoch_covers_every_sample_once_for_any_weights(
    samples: int, batch: int, weights: list[int]
) -> None:
    epochs = Epochs(samples, batch, 3)
    steps = range(epochs.steps)
    found = [
        number
        for rank in range(len(weights))
        for own in epochs.slices(steps, rank, len(weights), weights=tuple(weights))
        for number in own
    ]
    assert sorted(found) == list(range(samples))
