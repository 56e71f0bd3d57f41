"""Processes that make batches: the same bits, the user's own errors, an end with the function."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dayfly.errors import DayflyError
from dayfly.training.decoders import Decoders
from dayfly.training.order import Epochs
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource, Source
from dayfly.wire.stores.files import FileStore
from tests.training.stores import new_store
from tests.training.test_sources import BATCH, SAMPLES, Noisy, X, array_source

pytestmark = pytest.mark.long

Y = torch.arange(SAMPLES)


@pytest.fixture
def store() -> Iterator[FileStore]:
    with new_store() as made:
        yield made


def dataset_source(_: FileStore) -> DatasetSource:
    return source_of(lambda: Noisy(torch.from_numpy(X), Y))


def source_of(make: Any) -> DatasetSource:
    return DatasetSource(make(), 5, make)


def pieces(source: Source, decoders: int, pieces: int = 2, end: int = 7) -> list[list[bytes]]:
    """Of each piece of a rank's slices: the bytes of x and y, from a step in mid-epoch on."""
    slices = Slices(
        source, Epochs(SAMPLES, BATCH, seed=1), 1, 3, pieces, end=end, decoders=decoders
    )
    try:
        return [
            [side.numpy().tobytes() for side in piece.batch]
            for step in (2, *range(4, end))  # a worker that catches up skips steps
            for piece in slices.pieces(step)
        ]
    finally:
        slices.close()


@pytest.mark.quick
@pytest.mark.parametrize("source", [array_source, dataset_source])
def test_bits_do_not_depend_on_the_number_of_processes(source: Any, store: FileStore) -> None:
    expected = pieces(source(store), 0)
    assert len(expected) == 8
    for decoders in (1, 3):
        assert pieces(source(store), decoders) == expected


class Nested:
    """Samples of all that collates."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {
            "text": f"text {index}",
            "halves": torch.full((3,), index, dtype=torch.bfloat16),
            "pair": (np.float64(index), torch.empty(0)),
            "flag": torch.tensor(index % 2 == 0),
            "many": torch.full((300, 1000), float(index)),  # more than a pipe holds
        }


def test_batches_of_any_form_come_through_the_pipes() -> None:
    source = source_of(Nested)
    indices = np.arange(4)
    with Decoders(source, 1) as decoders:
        decoders.ask((0, 0), None, indices, 0)
        found = decoders.take((0, 0))
    expected = source.batch(None, indices, range(4), 0)
    assert found["text"] == expected["text"]
    assert found["pair"][0].dtype is torch.float64
    for name in ("halves", "flag", "many"):
        assert torch.equal(found[name], expected[name])
    assert found["pair"][1].shape == (4, 0)
    found["many"] += 1.0  # it is the function's own memory


class Broken(Noisy):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise ValueError("sample 3 is broken")
        return super().__getitem__(index)


def test_an_error_comes_from_the_users_own_line() -> None:
    source = source_of(lambda: Broken(torch.from_numpy(X), Y))
    with Decoders(source, 2) as decoders:
        decoders.ask((0, 0), None, np.arange(4), 0)
        with pytest.raises(ValueError, match="sample 3") as failed:
            decoders.take((0, 0))
    frames = traceback.extract_tb(failed.value.__traceback__)
    assert (Path(frames[-1].filename).name, frames[-1].name) == ("test_decoders.py", "__getitem__")


class Slow(Noisy):
    def __getitem__(self, index: int) -> Any:
        time.sleep(60 if index else 0)
        return super().__getitem__(index)


def of_process(number: int) -> list[int]:
    """Its children."""
    found = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    return [int(one) for one in found]


def lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_decoder_that_dies_is_named() -> None:
    before = set(of_process(os.getpid()))
    with Decoders(source_of(lambda: Slow(torch.from_numpy(X), Y)), 1) as decoders:
        decoders.ask((0, 0), None, np.arange(4), 0)
        (child,) = set(of_process(os.getpid())) - before
        os.kill(child, signal.SIGKILL)
        with pytest.raises(DayflyError, match=r"decodes samples died .*num_workers"):
            decoders.take((0, 0))
    assert child not in of_process(os.getpid())


def test_decoders_hold_nothing_open_and_die_with_a_function_that_is_killed() -> None:
    """Also one that computes: it does not look whether its pipe is still there."""
    told, tell = os.pipe()
    function = os.fork()
    if not function:
        try:
            decoders = Decoders(source_of(lambda: Slow(torch.from_numpy(X), Y)), 2)
            for step in range(2):
                decoders.ask((step, 0), None, np.arange(4), 0)
            os.write(tell, b"x")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(tell)
    assert os.read(told, 1) == b"x"
    children = of_process(function)
    assert len(children) == 2
    until = time.monotonic() + 20
    while any(len(os.listdir(f"/proc/{one}/fd")) > 6 for one in children):
        assert time.monotonic() < until  # standard ones, two pipes, the lifeline
        time.sleep(0.01)
    os.kill(function, signal.SIGKILL)
    os.waitpid(function, 0)
    assert os.read(told, 1) == b"", "the decoders have not kept the pipe"
    os.close(told)
    while any(map(lives, children)):
        assert time.monotonic() < until
        time.sleep(0.01)
