"""A tail beside what a codec codes: exact, in the same messages, and the codec's bits stay."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.wire.codec import CODECS, tail_part
from dayfly.wire.collectives.conformance_world import (
    SOON_S,
    random_inputs,
    same_bits,
    sum_in_order,
    world,
)
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Span, split
from tests.collectives.algorithms import ALGORITHMS, Algorithm

#: Codecs need sums that are stored.
STORING = [one for one in ALGORITHMS if one.of(2).sums(2, 10, 1) and not one.of(2).server]
WORLD, LENGTH = 3, 10_000


@given(length=st.integers(1, 500), tail=st.integers(0, 300), cuts=st.lists(st.integers(0, 500)))
def test_spans_that_are_the_buffer_have_all_of_the_tail_once(
    length: int, tail: int, cuts: list[int]
) -> None:
    ends = sorted({0, length, *(cut for cut in cuts if cut < length)})
    parts = [tail_part(Span(*pair), length, tail) for pair in pairwise(ends)]
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(tail))


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_equal_spans_have_equal_parts_of_the_tail(parts: int) -> None:
    sizes = [len(tail_part(span, 10_000, 250)) for span in split(10_000, parts)]
    assert max(sizes) - min(sizes) <= 1


class Summed:
    """What ranks have after a sum, and what they moved."""

    def __init__(
        self,
        algorithm: Algorithm,
        codec: str,
        heads: Sequence[torch.Tensor],
        tails: Sequence[torch.Tensor] | None,
    ) -> None:
        self.heads = [one.clone() for one in heads]
        self.tails = [None if tails is None else tails[rank].clone() for rank in range(WORLD)]
        with world(algorithm.of(WORLD), WORLD, chunk=1024) as here:

            def take(rank: int) -> None:
                packing = Packing(CODECS[codec](), self.tails[rank])
                here.engines[rank].all_reduce(self.heads[rank], 0, "sum", packing=packing)

            with ThreadPoolExecutor(WORLD) as pool:
                for call in [pool.submit(take, rank) for rank in range(WORLD)]:
                    call.result(SOON_S)
            traffic = [channel.traffic.counters() for channel in here.channels]
        self.puts = sum(one["puts"] for one in traffic)
        self.gets = sum(one["gets"] for one in traffic)
        self.bytes_up = sum(one["bytes_up"] for one in traffic)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("algorithm", "tail"),
    # A short tail has empty parts; a long one more elements than the buffer.
    [*((one, 37) for one in STORING), *((STORING[0], tail) for tail in (2, 20_000))],
    ids=str,
)
def test_a_tail_is_summed_exactly_in_the_messages_of_its_buffer(
    codec: str, algorithm: Algorithm, tail: int
) -> None:
    heads = [one.round() for one in random_inputs(WORLD, LENGTH, 1)]
    tails = random_inputs(WORLD, tail, 2)
    alone, found = (Summed(algorithm, codec, heads, some) for some in (None, tails))
    assert all(map(same_bits, found.heads, alone.heads)), "the codec's bits are as without a tail"
    exact = sum_in_order(tails, range(WORLD))
    assert all(one is not None and same_bits(one, exact) for one in found.tails)
    assert (found.puts, found.gets) == (alone.puts, alone.gets), "no message more"
    # As many elements as a sum of its own would put, and no header.
    plain = 4 * _elements_put(algorithm, tail)
    assert abs(found.bytes_up - alone.bytes_up - plain) <= 4 * alone.puts


def _elements_put(algorithm: Algorithm, length: int) -> int:
    """Elements that ranks put to sum a buffer of so many without a codec."""
    with world(algorithm.of(WORLD), WORLD, chunk=1024) as here:
        here.all_reduce([torch.ones(length)] * WORLD)
        traffic = [channel.traffic.counters() for channel in here.channels]
    up, puts = (sum(one[name] for one in traffic) for name in ("bytes_up", "puts"))
    return (up - HEADER_BYTES * puts) // 4


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_packed_comes_out_again(codec: str, dtype: torch.dtype) -> None:
    whole, span = torch.arange(50).to(dtype), Span(10, 43)
    packing = Packing(CODECS[codec](), torch.arange(21).to(dtype) / 3)
    parts = packing.parts(whole, span)
    assert torch.equal(parts[1], torch.arange(4, 18).to(dtype) / 3)
    packed = packing.pack(parts, span, total=False)
    into = [torch.full_like(part, -1) for part in parts]
    packing.unpack(packed, into)
    assert torch.equal(into[1], parts[1])
    assert torch.allclose(into[0], parts[0], atol=5)
    form = packing.form(parts)
    assert form is None or form == (packed.dtype, tuple(packed.shape))
    with pytest.raises(WireError, match=r"of which (112|56)"):
        packing.unpack(packed[:40], into)


def test_a_span_without_a_part_of_the_tail_travels_as_by_the_codec_alone() -> None:
    whole, codec = torch.arange(100.0), CODECS["bf16"]()
    packing = Packing(codec, torch.ones(1))
    parts = packing.parts(whole, Span(0, 50))
    assert packing.form(parts) == codec.form(50)
    assert packing.pack(parts, Span(0, 50), total=True).dtype is torch.bfloat16
