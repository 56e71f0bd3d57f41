"""PowerSGD: what it finds at once, what it keeps for later, and what it leaves alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dayfly.training.compression.powersgd import PowerSgd, orthonormal
from dayfly.training.flat import FlatBuffer


def model() -> nn.Module:
    """A matrix (24, 30), a kernel (16, 4 x 3 x 3), and what is too small or no matrix."""
    return nn.Sequential(
        nn.Linear(30, 24), nn.Conv2d(4, 16, 3), nn.BatchNorm2d(16), nn.Linear(3, 3)
    )


def worker(
    rank: int = 2, bucket_bytes: tuple[int, int] = (2**20, 2**20)
) -> tuple[FlatBuffer, PowerSgd]:
    torch.manual_seed(0)
    flat = FlatBuffer(model(), tail=3, bucket_bytes=bucket_bytes, apart=True)
    flat.begin()
    flat.reached = [True] * len(flat.parameters)
    return flat, PowerSgd(flat, rank, seed=1)


def step(workers: list[tuple[FlatBuffer, PowerSgd]]) -> None:
    """The all-reduces, by hand."""
    for number in range(len(workers[0][1].buffers)):
        for _, exchange in workers:
            exchange.contribute(number)
        total = sum(exchange.buffers[number].clone() for _, exchange in workers)
        for _, exchange in workers:
            exchange.buffers[number].copy_(total)
    for _, exchange in workers:
        exchange.adopt()


def test_only_what_becomes_half_as_large_is_compressed() -> None:
    flat, exchange = worker()
    first, second = exchange.buffers
    plain = 24 + 16 + 16 + 16 + 9 + 3
    rest = len(flat.buckets[-1])
    assert len(first) == 2 * 24 + 2 * 16 + plain + rest
    assert len(second) == 2 * 30 + 2 * 36
    assert exchange.packings == (None, None)
    assert (exchange.early, exchange.remembers) == (0, True)


def test_with_nothing_to_compress_there_is_one_sum_of_all() -> None:
    flat = FlatBuffer(nn.Linear(3, 3), tail=3, apart=True)
    flat.begin()
    exchange = PowerSgd(flat, 4, seed=0)
    (buffer,) = exchange.buffers
    flat.data.normal_()
    before = flat.data.clone()
    exchange.contribute(0)
    buffer.mul_(2)
    exchange.adopt()
    assert torch.equal(flat.data, 2 * before)


def test_a_gradient_of_low_rank_is_found_at_once_and_the_rest_is_exact() -> None:
    flat, exchange = worker(rank=2)
    flat.data.normal_()
    matrix = torch.randn(24, 2) @ torch.randn(2, 30)
    flat.gradients[0].copy_(matrix.reshape(-1))
    before = flat.data.clone()
    step([(flat, exchange)])
    assert torch.allclose(flat.gradients[0].view(24, 30), matrix, atol=1e-4)
    kernel = flat.gradients[2]
    start = int(kernel.storage_offset())
    flat.data[start : start + len(kernel)] = before[start : start + len(kernel)]
    at = int(flat.gradients[0].storage_offset())
    flat.data[at : at + 720] = before[at : at + 720]
    assert torch.equal(flat.data, before), "all the others are as they were"
    assert exchange.residual[:720].abs().max() < 1e-4


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 3))
def test_what_was_applied_and_the_residuals_are_the_gradients(seed: int, workers: int) -> None:
    random = torch.Generator().manual_seed(seed)
    ranks = [worker() for _ in range(workers)]
    gradients, applied = torch.zeros(720), torch.zeros(720)
    for _ in range(4):
        for flat, _ in ranks:
            flat.data.copy_(torch.randn(len(flat.data), generator=random))
            gradients += flat.gradients[0]
        step(ranks)
        applied += ranks[0][0].gradients[0]
        first = ranks[0][0].data
        assert all(torch.equal(flat.data, first) for flat, _ in ranks), "the same bits on all"
    left = sum(exchange.residual[:720] for _, exchange in ranks)
    assert torch.allclose(applied + left, gradients, rtol=1e-3, atol=1e-3)


def test_it_comes_near_the_best_of_its_rank_by_and_by() -> None:
    """Power iteration, as Q goes on from the step before; E is left out of it."""
    flat, exchange = worker(rank=2)
    matrix = torch.randn(24, 30, generator=torch.Generator().manual_seed(3))
    U, S, V = torch.linalg.svd(matrix)
    best = (matrix - U[:, :2] * S[:2] @ V[:2]).norm()
    errors = []
    for _ in range(30):
        flat.data.zero_()
        exchange.residual.zero_()
        flat.gradients[0].copy_(matrix.reshape(-1))
        step([(flat, exchange)])
        errors.append((flat.gradients[0].view(24, 30) - matrix).norm() / best)
    assert errors[0] > 1.05
    assert errors[-1] < 1.01


def test_a_gradient_that_was_zero_is_not_so_for_ever() -> None:
    flat, exchange = worker()
    flat.data.zero_()
    step([(flat, exchange)])
    assert not flat.data.any()
    flat.gradients[0].fill_(1.0)
    step([(flat, exchange)])
    step([(flat, exchange)])
    assert flat.gradients[0].abs().max() > 0.1


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_seen_and_does_not_come_back(wrong: float) -> None:
    flat, exchange = worker()
    flat.data.fill_(1.0)
    flat.gradients[0][5] = wrong
    step([(flat, exchange)])
    assert not flat.gradients[0].isfinite().all()
    assert flat.gradients[2].isfinite().all(), "another parameter"
    flat.data.fill_(1.0)
    step([(flat, exchange)])
    assert flat.data.isfinite().all()


def test_a_parameter_that_was_not_reached_keeps_its_residual() -> None:
    flat, exchange = worker()
    exchange.residual.fill_(0.25)
    flat.data.zero_()
    flat.reached = [number != 0 for number in range(len(flat.parameters))]
    step([(flat, exchange)])
    assert (exchange.residual[:720] == 0.25).all()
    assert not flat.gradients[0].any()
    assert flat.gradients[2].any()


def test_the_state_goes_on_with_the_same_bits() -> None:
    one, other = worker(), worker()
    torch.manual_seed(5)
    one[0].data.normal_()
    step([one])
    shared, own = (
        {name: tensor.clone() for name, tensor in tree.items()} for tree in one[1].state()
    )
    other[1].load_state({**shared, "model.0.weight": torch.ones(3)}, [own])
    for flat, _ in (one, other):
        flat.data.copy_(torch.linspace(-1, 1, len(flat.data)).sin())
    step([one])
    step([other])
    assert torch.equal(one[0].data, other[0].data)
    assert torch.equal(one[1].residual, other[1].residual)


@settings(deadline=None)
@given(m=st.integers(1, 20), r=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_columns_are_orthonormal_even_of_zeros(m: int, r: int, seed: int) -> None:
    r = min(m, r)
    random = torch.randn(m, r, generator=torch.Generator().manual_seed(seed))
    for given_P in (random, torch.zeros(m, r), random[:, :1].expand(m, r)):
        P = orthonormal(given_P)
        assert torch.allclose(P.T @ P, torch.eye(r), atol=1e-5)
    columns = orthonormal(random)
    assert torch.allclose(columns @ (columns.T @ random), random, atol=1e-4)


def test_buckets_are_summed_apart_with_the_same_bits() -> None:
    """One bucket, or a matrix, a kernel, and what is small, each in its own."""
    whole, cut = worker(), worker(bucket_bytes=(64, 64))
    assert [len(chain) for chain in whole[1].chains] == [2]
    assert [len(chain) for chain in cut[1].chains] == [1, 1, 1, 1, 2, 1, 2]
    assert cut[1].early == 6
    for seed in range(3):
        torch.manual_seed(seed)
        whole[0].data.normal_()
        cut[0].data.copy_(whole[0].data)
        step([whole])
        step([cut])
        assert torch.equal(whole[0].data, cut[0].data)
    assert torch.equal(whole[1].residual, cut[1].residual)
    shared, own = whole[1].state()
    again = worker(bucket_bytes=(64, 64))
    again[1].load_state(shared, [own])
    assert again[1].state()[0].keys() == shared.keys()
    assert torch.equal(again[1].state()[0]["compress.q"], cut[1].state()[0]["compress.q"])
