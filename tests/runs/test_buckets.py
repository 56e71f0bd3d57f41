"""Buckets over real engines: what is summed while the backward pass still computes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from dayfly.runs.protocols.buckets import Buckets
from dayfly.training.compression.powersgd import PowerSgd
from dayfly.training.flat import FlatBuffer
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.collectives.conformance_world import SOON_S, world

WORLD = 3


class Noted(PowerSgd):
    """Notes when the second sum of the first bucket begins."""

    def __init__(self, flat: FlatBuffer) -> None:
        super().__init__(flat, 1, seed=1)
        self.begun = threading.Event()

    def contribute(self, number: int) -> None:
        super().contribute(number)
        if number == 1:
            self.begun.set()


def test_powersgd_sums_twice_while_the_layers_before_are_still_computed() -> None:
    """The first layer's gradient waits for the last one's second sum, which needs all ranks."""
    torch.manual_seed(0)
    models = [
        nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(3))) for _ in range(WORLD)
    ]
    inputs = torch.randn(WORLD, 5, 16)
    met = []

    def step(rank: int) -> torch.Tensor:
        flat = FlatBuffer(models[rank], tail=3, bucket_bytes=(64, 64), apart=True)
        exchange = Noted(flat)
        assert exchange.chains == ((0, 1), (2, 3), (4, 5))
        with Buckets(here.engines[rank], exchange) as buckets:
            flat.begin()
            flat.announce(buckets.ready)
            buckets.begin(0, [None] * len(buckets.sums))
            first = next(models[rank].parameters())
            first.register_hook(lambda _: met.append(exchange.begun.wait(SOON_S)))
            models[rank](inputs[rank]).square().sum().backward()
            flat.end(1.0)
            buckets.finish()
        exchange.adopt()
        return flat.data

    with (
        world(COLLECTIVES["scatter-reduce"], WORLD) as here,
        ThreadPoolExecutor(WORLD) as pool,
    ):
        first, *others = pool.map(step, range(WORLD))
    assert met == [True] * WORLD
    assert first.any()
    assert all(torch.equal(first, other) for other in others)
