"""Streaming in one process: layers and fragments, moves of buffers, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.specs.outer import Outer
from dayfly.specs.streaming import Streaming
from dayfly.training.moves import Moves
from dayfly.training.outer import outer_optimizer
from dayfly.training.replica import Replica, Wishes
from dayfly.training.streaming import StreamedGradients, check_fragments, layers_of
from dayfly.wire.codec import CODECS, Codec
from tests.training.jobs import job, with_batch_norm


class Counting(nn.Module):
    """Buffers of several types, of which some move."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([1.0, 2.0]))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        self.register_buffer("count", torch.tensor(5))
        self.register_buffer("seen", torch.tensor([True, False]))
        self.register_buffer("turn", torch.tensor([1 + 2j]))


def test_buffers_rejoin_with_what_they_moved_by_since_they_were_taken() -> None:
    """start + sum of all moves + own moves since: 1 + 4 + 0.5; counts are whole numbers."""
    model = Counting()
    moves = Moves(model)
    moves.begin()
    model.mean += 1
    model.count += 3
    taken = moves.now()
    model.mean += 0.5
    model.count += 1
    model.turn += 1j
    summed = [torch.zeros_like(one, dtype=torch.float32) for one in moves.before]
    names = list(moves.before_by_name())
    assert set(names) == {"mean", "mask", "count", "seen", "turn"}
    moves.measure(summed, 0.0)
    floats, counts, *_ = summed  # in the order of their types
    floats[:2] = 4.0
    floats[3] = -torch.inf  # the mask's move, as its start counts as 0
    counts[:] = 3.0
    moves.rejoin(summed, taken)
    assert model.mean.tolist() == [5.5, 6.5]
    assert model.mask.tolist() == [0.0, -torch.inf]
    assert model.count.item() == 5 + 3 + 1
    assert model.seen.tolist() == [True, False]
    assert model.turn.tolist() == [1 + 3j]
    start = moves.before_by_name()
    assert start["mean"].tolist() == [5.0, 6.0]
    assert start["turn"].tolist() == [1 + 2j]


def test_layers_are_parameters_of_one_module_and_frozen_ones_belong_to_none() -> None:
    model = with_batch_norm()
    assert [[p.numel() for p in layer] for layer in layers_of(model)] == [
        [96, 16],
        [16, 16],
        [64, 4],
    ]
    model[1].requires_grad_(False)
    assert len(layers_of(model)) == 2
    check_fragments(Outer(streaming=Streaming(fragments=2)), model)
    with pytest.raises(RequestError, match="more than the model's 2 layers"):
        check_fragments(Outer(streaming=Streaming(fragments=3)), model)


@pytest.mark.parametrize("codec", [None, "int8"])
def test_the_buffer_is_cut_into_exchanges(codec: str | None) -> None:
    """Fragments of layers, 112 and 32 + 68 parameters; the rest is with the last one."""
    asked = job(model=with_batch_norm)
    replica = Replica(asked)
    made = StreamedGradients(
        replica,
        3,
        outer_optimizer(Outer(), asked, replica.model),
        CODECS[codec]() if codec else None,
        (lambda own, residual: None) if codec else None,
        streaming=Streaming(fragments=2),
    )
    assert [sum(p.numel() for p in one) for one in made.fragments] == [112, 32 + 68]
    rest = 16 + 16 + 1 + 3 + 2  # BatchNorm's statistics and count, numbers, wishes
    sizes = [len(buffer) for buffer, _ in made.parts]
    assert sizes == ([112, 100] if codec else [112, 100 + rest])
    tails = [None if packing is None else packing.tail for _, packing in made.parts]
    assert [None if tail is None else len(tail) for tail in tails] == [
        None,
        rest if codec else None,
    ]
    assert made.last == 1
    assert len(made.data) == 112 + 100 + rest


def test_what_a_round_measured_is_read_without_applying_anything() -> None:
    asked = job(model=with_batch_norm)
    replica = Replica(asked)
    outer = outer_optimizer(Outer(), asked, replica.model)
    made = StreamedGradients(replica, 2, outer, streaming=Streaming(fragments=2))
    made.begin()
    made.take_rest(1.0, [0.25, 0.5], Wishes(stop=True))
    before = [p.clone() for p in replica.model.parameters()]
    assert made.told == ([0.25, 0.5], Wishes(stop=True))
    assert all(torch.equal(*pair) for pair in zip(before, replica.model.parameters(), strict=True))


def test_sums_that_wait_go_on_whatever_the_codec_and_what_steps_log() -> None:
    """As after another number of workers, or with a job whose steps log other values."""
    asked = job(model=with_batch_norm)

    def made(numbers: int, codec: Codec | None, feed_back: Any) -> StreamedGradients:
        replica = Replica(asked)
        outer = outer_optimizer(Outer(), asked, replica.model)
        cut = Streaming(fragments=2)
        return StreamedGradients(replica, numbers, outer, codec, feed_back, streaming=cut)

    two = made(3, CODECS["int8"](), lambda own, residual: None)
    two.begin()
    two.data.copy_(torch.arange(len(two.data)))
    sums = two.sums([1])
    assert {name: len(one) for name, one in sums.items()} == {
        "sum.fragment.1": 100,
        "sum.rest": 33,  # BatchNorm's statistics and count
    }
    one = made(5, None, None)
    one.begin_from({}, sums, [1])
    assert one.last == two.last == 1
    again = one.sums([1])
    assert all(torch.equal(sums[name], again[name]) for name in sums)
