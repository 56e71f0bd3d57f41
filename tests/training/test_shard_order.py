"""Samples of shards in turn: each once, all shards run out together, few shards a worker."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dayfly.training.order import share
from dayfly.training.shard_order import ShardOrder
from dayfly.training.streams import said_of

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any).map(tuple)


def test_the_order_as_drawn() -> None:
    shards, places = ShardOrder((4, 2, 3)).place(range(9))
    assert shards.tolist() == [0, 2, 1, 0, 2, 0, 1, 2, 0]
    assert places.tolist() == [0, 0, 0, 1, 1, 2, 1, 2, 3]
    equal = ShardOrder((2, 2, 1))
    assert [equal.find(n) for n in range(5)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
    behind = ShardOrder((2, 0, 3), in_turn=False)
    assert [behind.find(n) for n in range(5)] == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


@given(lengths=lengths, cut=st.integers(0, 360))
def test_each_sample_once_and_shares_held(lengths: tuple[int, ...], cut: int) -> None:
    order = ShardOrder(lengths)
    total = order.samples
    found = [order.find(number) for number in range(total)]
    assert sorted(found) == [(s, p) for s, size in enumerate(lengths) for p in range(size)]
    cut = min(cut, total)
    windows = [order.place(range(cut)), order.place(range(cut, total))]
    assert [
        (s, p) for shards, places in windows for s, p in zip(shards, places, strict=True)
    ] == found
    had = np.zeros(len(lengths), int)
    for number, (shard, place) in enumerate(found):
        assert had[shard] == place, "a shard's samples come in its own order"
        had[shard] += 1
        assert (abs(had - np.array(lengths) * (number + 1) / total) < len(lengths)).all()


@given(lengths=lengths, workers=st.integers(1, 8), batch=st.integers(1, 60))
def test_a_worker_reads_a_run_of_shards(lengths: tuple[int, ...], workers: int, batch: int) -> None:
    order = ShardOrder(lengths)
    for start in range(0, order.samples, batch):
        whole = range(start, min(start + batch, order.samples))
        numbers = order.by_shard(whole)
        assert sorted(numbers) == list(whole)
        shards = [order.find(n)[0] for n in numbers.tolist()]
        slices = [share(len(whole), rank, workers) for rank in range(workers)]
        runs = [shards[one.start : one.stop] for one in slices if len(one)]
        assert all(before[-1] <= after[0] for before, after in pairwise(runs))


def test_what_shards_cost_is_said() -> None:
    assert ShardOrder((5, 5, 5, 5)).reads(4) == ShardOrder((5, 5, 5, 5)).reads(1) == 1
    assert ShardOrder((10, 7, 12, 9)).reads(2) == 1 + 12 / 38
    assert said_of((10, 7, 12, 9), 4) is None
    assert said_of((38,), 1) is None
    assert "each of 2 workers reads as a whole" in str(said_of((38,), 2))
    assert "4 workers read the 2 shards of the stream 3.4 times in an epoch" in str(
        said_of((30, 8), 4)
    )
