"""A buffer whose parts come and go."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span

NOTHING = Schedule(())


def sending(*spans: Span) -> Schedule:
    return Schedule(tuple(Op(Kind.PUT, span, Name(f"x-{span.start}", 0, 1)) for span in spans))


def bytes_of(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def test_parts_lie_one_after_another() -> None:
    slots = Slots([4, 0, 6, 3], NOTHING)
    assert [slots.span(number) for number in range(4)] == [
        Span(0, 4),
        Span(4, 4),
        Span(4, 10),
        Span(10, 13),
    ]
    assert (slots.numel(), slots.itemsize, slots.dtype) == (13, 1, torch.uint8)
    assert slots.held_bytes == 0


def test_a_part_is_made_when_it_comes_in_and_gone_when_taken() -> None:
    slots = Slots([4, 6], NOTHING)
    slots[6:10].copy_(bytes_of(3, 4, 5, 6))
    assert slots.held_bytes == 6
    slots[4:6].copy_(bytes_of(1, 2))
    taken = slots.take(1)
    assert taken.tolist() == [1, 2, 3, 4, 5, 6]
    assert slots.held_bytes == 0
    with pytest.raises(ValueError, match="part 1 is taken while nothing of it is there"):
        slots.take(1)


def test_a_part_may_be_of_any_type() -> None:
    """Wherever it lies, it begins where its memory does."""
    values = torch.arange(3, dtype=torch.float64)
    slots = Slots([5, values.nbytes], NOTHING)
    slots[5:29].copy_(values.view(torch.uint8))
    assert torch.equal(slots.take(1).view(torch.float64), values)


def test_what_was_computed_is_gone_once_all_of_it_was_handed_out() -> None:
    slots = Slots([2, 5], sending(Span(2, 4), Span(4, 7)))
    made = bytes_of(1, 2, 3, 4, 5)
    slots.put(1, made)
    assert slots[2:4].data_ptr() == made.data_ptr()
    assert slots.held_bytes == 5
    assert slots[4:7].tolist() == [3, 4, 5]
    assert slots.held_bytes == 0


def test_of_what_is_stored_already_only_the_rest_is_waited_for() -> None:
    slots = Slots([4, 4], sending(Span(6, 8)))
    slots.put(0, bytes_of(1, 2, 3, 4))
    assert slots.held_bytes == 0
    slots.put(1, bytes_of(5, 6, 7, 8))
    assert slots.held_bytes == 4
    assert slots[6:8].tolist() == [7, 8]
    assert slots.held_bytes == 0


def test_a_part_may_be_forgotten() -> None:
    slots = Slots([3], NOTHING)
    slots[0:1].fill_(7)
    slots.drop(0)
    slots.drop(0)
    assert slots.held_bytes == 0


def test_spans_are_of_one_part() -> None:
    slots = Slots([4, 6], NOTHING)
    assert slots[4:4].numel() == 0
    assert slots.held_bytes == 0
    with pytest.raises(ValueError, match="bytes 2 to 6 lie in several parts: one has 0 to 4"):
        slots[2:6]
    with pytest.raises(ValueError, match="every 2th byte"):
        slots[0:4:2]
    with pytest.raises(ValueError, match="bytes 3 to 5 lie in several parts"):
        Slots([4, 6], sending(Span(3, 5)))


@pytest.mark.parametrize(
    "wrong",
    [
        bytes_of(1, 2, 3),
        torch.zeros(4),
        torch.zeros(2, 2, dtype=torch.uint8),
        torch.zeros(8, dtype=torch.uint8)[::2],
        torch.zeros(4, dtype=torch.uint8, device="meta"),
    ],
    ids=["short", "float", "square", "strided", "elsewhere"],
)
def test_a_message_is_bytes_in_a_row(wrong: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="part 0 is 4 bytes of uint8 in a row on the CPU"):
        Slots([4], sending(Span(0, 4))).put(0, wrong)


def test_threads_write_into_one_part() -> None:
    """All begin at once; a part made twice would lose what the others wrote."""
    count = 8
    slots = Slots([count] * 50, NOTHING)
    together = threading.Barrier(count)

    def write(at: int) -> None:
        for number in range(50):
            start = slots.span(number).start
            together.wait(30)
            slots[start + at : start + at + 1].fill_(at + 1)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(write, at) for at in range(count)]:
            done.result(60)
    for number in range(50):
        assert slots.take(number).tolist() == list(range(1, count + 1))
