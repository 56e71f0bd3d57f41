"""Buckets of the flat buffer: how they are cut, and when they are whole."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from dayfly.errors import DayflyError
from dayfly.training.flat import FlatBuffer
from dayfly.wire.schedule import bucket_ends


def test_rows_are_cut_where_the_next_would_be_too_much() -> None:
    assert bucket_ends([1, 1, 3, 3, 3, 9, 1], first=2, most=6) == [2, 4, 5, 6, 7]
    assert bucket_ends([9], first=2, most=6) == [1]
    assert bucket_ends([1, 1], first=2, most=6) == [2]


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    first=st.integers(1, 30),
    most=st.integers(1, 60),
)
def test_buckets_hold_everything_once_and_as_much_as_they_may(
    sizes: list[int], first: int, most: int
) -> None:
    ends = bucket_ends(sizes, first, most)
    starts = [0, *ends[:-1]]
    assert ends[-1] == len(sizes)
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        room = most if number else first
        assert end - start == 1 or sum(sizes[start:end]) <= room
        if end < len(sizes):
            assert sum(sizes[start : end + 1]) > room


class Layers(nn.Module):
    """Four layers of 4 x 4; `skip` is left out."""

    def __init__(self, skip: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(4))
        self.skip = skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number != self.skip:
                x = torch.tanh(layer(x))
        return x


def backward(flat: FlatBuffer, loss: torch.Tensor) -> tuple[list[int], list[int]]:
    """The buckets that were announced in the backward pass, and those after it."""
    announced: list[int] = []
    flat.announce(announced.append)
    loss.backward()
    before = len(announced)
    flat.end(1.0)
    return announced[:before], announced[before:]


def buffer(model: nn.Module) -> FlatBuffer:
    """With a bucket for each layer."""
    flat = FlatBuffer(model, tail=3, bucket_bytes=(64, 64))
    assert [len(span) for span in flat.buckets] == [16, 16, 16, 16 + 4 + 3]
    flat.begin()
    return flat


def test_buckets_go_out_in_the_backward_pass_last_layers_first() -> None:
    model = Layers()
    flat = buffer(model)
    whole: list[bool] = []
    grads: list[torch.Tensor] = []
    model.layers[3].weight.register_post_accumulate_grad_hook(
        lambda p: grads.append(p.grad.clone())
    )
    flat.announce(lambda bucket: whole.append(bool(flat.data[: 16 * (bucket + 1)].all())))
    model(torch.randn(2, 4)).square().sum().backward()
    flat.end(1.0)
    assert whole == [True, True, True], "the last one goes out after its end"
    assert torch.equal(flat.data[:16], grads[0].reshape(-1))


@pytest.mark.parametrize(
    ("skip", "in_time", "late"), [(0, [0, 1, 2], []), (1, [0, 1], [2]), (3, [], [0, 1, 2])]
)
def test_a_parameter_without_gradient_holds_its_bucket_back_to_the_end(
    skip: int, in_time: list[int], late: list[int]
) -> None:
    model = Layers(skip)
    flat = buffer(model)
    flat.data.fill_(7.0)
    assert backward(flat, model(torch.randn(2, 4)).square().sum()) == (in_time, late)
    unused = flat.buckets[3 - skip]
    assert not flat.data[unused.start : unused.start + 16].any(), "what was there before is gone"


def test_what_is_no_gradient_is_a_bucket_of_its_own_if_asked() -> None:
    model = Layers()
    flat = FlatBuffer(model, tail=3, bucket_bytes=(64, 64), apart=True)
    assert [len(span) for span in flat.buckets] == [16, 16, 16, 16, 4 + 3]
    flat.begin()
    in_time, late = backward(flat, model(torch.randn(2, 4)).square().sum())
    assert (in_time, late) == ([0, 1, 2, 3], [])
    assert flat.data[64:68].tolist() == [1.0] * 4, "all four are used"


def test_an_empty_slice_announces_all_at_the_end() -> None:
    flat = buffer(Layers())
    announced: list[int] = []
    flat.announce(announced.append)
    flat.end(0.0)
    assert announced == [0, 1, 2]
    assert not flat.data.any()


class Twice(Layers):
    """Reentrant checkpoints run backward passes of their own: a shared layer gets two gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = checkpoint(self.layers[3], x, use_reentrant=True)
        return x


def test_a_gradient_that_comes_after_its_bucket_went_out_is_refused() -> None:
    model = Twice()
    flat = buffer(model)
    x = torch.randn(2, 4, requires_grad=True)
    with pytest.raises(DayflyError, match=r"gradient twice .* use_reentrant=False"):
        backward(flat, model(x).square().sum())
