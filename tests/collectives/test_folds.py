"""Other ways than sums to put the ranks' terms together, on one buffer or on several tensors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce as fold_all

import pytest
import torch

from dayfly.wire.buffers import Buffer, JoinedBuffer
from dayfly.wire.codecs import Bf16
from dayfly.wire.collectives.conformance_world import SOON_S, World, same_bits, world
from dayfly.wire.collectives.reduce_scatter import reduce
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import split
from dayfly.wire.summation import ADD, Fold
from tests.collectives.algorithms import ALGORITHMS, Algorithm

FOLDS: list[tuple[Fold, torch.dtype]] = [
    (torch.add, torch.int64),
    (torch.mul, torch.float32),
    (torch.minimum, torch.float64),
    (torch.maximum, torch.int8),
    (torch.bitwise_and, torch.uint8),
    (torch.bitwise_or, torch.int32),
    (torch.bitwise_xor, torch.bool),
]
of_folds = pytest.mark.parametrize(
    ("fold", "dtype"), FOLDS, ids=lambda one: getattr(one, "__name__", str(one))
)
LENGTH = 301


def inputs(size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(size)
    return [torch.randint(0, 100, (LENGTH,), generator=random).to(dtype) for _ in range(size)]


def together(here: World, buffers: list[Buffer], step: int, fold: Fold) -> None:
    """Every rank's all-reduce at once."""
    with ThreadPoolExecutor(here.size) as pool:
        for call in [
            pool.submit(engine.all_reduce, buffer, step, "fold", fold=fold)
            for engine, buffer in zip(here.engines, buffers, strict=True)
        ]:
            call.result(SOON_S)


@pytest.mark.parametrize("algorithm", [one for one in ALGORITHMS if not one.of(3).server], ids=str)
@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_folds(algorithm: Algorithm, size: int) -> None:
    """One world is over memory, where messages are lent; the other as over a link."""
    with world(algorithm.of(size), size, chunk=16) as here:
        for step, (fold, dtype) in enumerate(FOLDS):
            terms = inputs(size, dtype)
            buffers: list[Buffer] = [term.clone() for term in terms]
            together(here, buffers, step, fold)
            wanted = torch.empty_like(terms[0])
            for owner, span in enumerate(split(LENGTH, size)):
                cut = [terms[rank][span.start : span.stop] for rank in algorithm.order(size, owner)]
                wanted[span.start : span.stop] = fold_all(
                    lambda one, other, fold=fold: fold(one, other, out=torch.empty_like(one)), cut
                )
            assert all(same_bits(buffer[:], wanted) for buffer in buffers), (fold, dtype)


@of_folds
def test_a_reduce_folds_into_pieces(fold: Fold, dtype: torch.dtype) -> None:
    """Split r is the r-th tensor, of which none is beside another."""
    size, root = 3, 1
    terms = inputs(size, dtype)
    spans = split(LENGTH, size)
    tensors = [[term[span.start : span.stop].clone() for span in spans] for term in terms]
    made = reduce(root)
    with world(ALGORITHMS[0].of(size), size) as here, ThreadPoolExecutor(size) as pool:
        calls = [
            pool.submit(
                engine.run,
                made(rank, size, LENGTH, chunk=7),
                JoinedBuffer(tensors[rank]),
                0,
                "fold",
                fold=fold,
            )
            for rank, engine in enumerate(here.engines)
        ]
        for call in calls:
            call.result(SOON_S)
        assert here.channels[0].size_bytes() == 0, "every message is dropped by its reader"
    wanted = fold_all(lambda one, other: fold(one, other, out=torch.empty_like(one)), terms)
    assert same_bits(torch.cat(tensors[root]), wanted)


def test_servers_and_codecs_only_add() -> None:
    buffer = torch.zeros(4)
    server = next(one for one in ALGORITHMS if one.of(2).server)
    adds = pytest.raises(ValueError, match=r"a server that sums only adds: .*minimum")
    with world(server.of(2), 2) as here, adds:
        here.engines[0].all_reduce(buffer, 0, "fold", fold=torch.minimum)
    with world(ALGORITHMS[0].of(1), 1) as here:
        with pytest.raises(ValueError, match=r"a codec only adds: .*maximum"):
            here.engines[0].all_reduce(
                buffer, 0, "fold", packing=Packing(Bf16()), fold=torch.maximum
            )
        here.engines[0].all_reduce(buffer, 0, "fold", packing=Packing(Bf16()), fold=ADD)
