"""Samples that are read while a function waits: the same bits, and nothing beside its own work."""

from __future__ import annotations

import random
import threading
import time
import traceback
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch

from dayfly.training.order import Epochs
from dayfly.training.read_ahead import ReadAhead
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource
from tests.training.test_sources import BATCH, SAMPLES, Noisy, X

STEPS = range(2, 7)


class Watched(Noisy):
    """Notes who reads, and that nobody does while the function is at work."""

    def __init__(self, *, broken: int = -1) -> None:
        super().__init__(torch.from_numpy(X), torch.arange(SAMPLES))
        self.broken = broken
        self.read_by: list[int] = []
        self.at_work = False

    def __getitem__(self, index: int) -> Any:
        beside = threading.get_ident() != threading.main_thread().ident
        assert not (beside and self.at_work)
        self.read_by.append(threading.get_ident())
        if index == self.broken:
            raise ValueError(f"sample {index} is broken")
        random.random(), np.random.rand()  # each sample draws more than it uses
        return super().__getitem__(index)


def pieces(dataset: Watched, *, lends: bool) -> list[list[bytes]]:
    """Of each piece of a rank's slices: the bytes of x and y; between them the function waits."""
    found = []
    source, epochs = DatasetSource(dataset, 5), Epochs(SAMPLES, BATCH, seed=1)
    with closing(Slices(source, epochs, 1, 3, 2, end=STEPS.stop)) as slices:
        for step in STEPS:
            found += [[side.numpy().tobytes() for side in one.batch] for one in slices.pieces(step)]
            torch.manual_seed(step)
            drawn = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
            if lends:
                with slices.lent():
                    until(lambda: reader(slices)._next() is None)
            dataset.at_work = True
            time.sleep(0.002)
            assert torch.equal(torch.get_rng_state(), drawn[0])
            assert (random.getstate(), str(np.random.get_state())) == drawn[1:]
            dataset.at_work = False
    return found


def reader(slices: Slices) -> ReadAhead:
    assert isinstance(slices._decoders, ReadAhead)
    return slices._decoders


def until(true: Any) -> None:
    for _ in range(5000):
        if true():
            return
        time.sleep(0.001)
    raise AssertionError("it did not become true")


def test_bits_do_not_depend_on_who_reads() -> None:
    alone, beside = Watched(), Watched()
    assert pieces(beside, lends=True) == pieces(alone, lends=False)
    own = threading.get_ident()
    assert set(alone.read_by) == {own}
    assert len(beside.read_by) == len(alone.read_by), "each sample once"
    first = beside.read_by.count(own)  # of the first step; all others were read ahead
    assert 0 < first < 2 * len(beside.read_by) / len(STEPS)
    assert beside.read_by[:first] == [own] * first


def test_a_sample_that_fails_does_so_in_the_functions_own_thread() -> None:
    dataset = Watched(broken=3)
    with ReadAhead(DatasetSource(dataset, 5), 2) as ahead:
        ahead.ask((0, 0), None, np.arange(2), 0)
        ahead.ask((1, 0), None, np.arange(2, 5), 0)
        ahead.take((0, 0))
        with ahead.lent():
            until(lambda: ahead._next() is None)
        assert len(dataset.read_by) == 4
        with pytest.raises(ValueError, match="sample 3 is broken") as failed:
            ahead.take((1, 0))
    assert traceback.extract_tb(failed.value.__traceback__)[-1].name == "__getitem__"


def test_work_that_comes_in_has_the_turn() -> None:
    dataset = Watched()
    with ReadAhead(DatasetSource(dataset, 5), 3) as ahead, ahead.lent():
        for number in range(3):  # micro-batches, each asked for when the one before it is computed
            with ahead.at_work():
                dataset.at_work = True
                read = len(dataset.read_by)
                ahead.ask((0, number), None, np.arange(2 * number, 2 * number + 2), 0)
                time.sleep(0.002)
                assert len(dataset.read_by) == read
                dataset.at_work = False
            until(lambda: ahead._next() is None)
            assert len(dataset.read_by) == read + 2
    assert threading.get_ident() not in dataset.read_by


def test_a_reader_stops_when_its_function_goes_on() -> None:
    class Slow(Watched):
        def __getitem__(self, index: int) -> Any:
            began.set()
            time.sleep(0.01)
            return super().__getitem__(index)

    began, dataset = threading.Event(), Slow()
    with ReadAhead(DatasetSource(dataset, 5), 1) as ahead:
        ahead.ask((0, 0), None, np.arange(SAMPLES), 0)
        with ahead.lent():
            assert began.wait(5)
        read = len(dataset.read_by)
        assert 1 <= read < SAMPLES
        time.sleep(0.05)
        assert len(dataset.read_by) == read
        x, _ = ahead.take((0, 0))
        assert len(x) == len(dataset.read_by) == SAMPLES
    ahead.close()
