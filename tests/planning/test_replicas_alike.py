"""Replicas that validate alike: one stands for all, and virtual time says the same, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dayfly.planning import staged_validation
from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import Affine, Figure, Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.timing import timed
from dayfly.wire.streams import ALONE
from tests.planning.by_hand import layer, profile, size, transfer


def drawn(chance: Random) -> tuple[Profile, Configuration]:
    """A cut model over a store or links, by the catalogue: passes alone take CPU time."""
    layers, stages = chance.randint(3, 6), chance.randint(2, 3)
    way = transfer(chance.choice([1e6, 4e7]), chance.choice([0.0, 0.04]))
    made = profile(
        [layer(f"{n}", 1000, passed=chance.choice([40.0, 4e5])) for n in range(layers)],
        size(
            layers,
            cpu_cores=chance.choice([None, 0.3, 2.0]),
            forward=tuple(Affine(0.0, chance.uniform(1e-4, 1e-2)) for _ in range(layers)),
            up=way,
            down=way,
            rates=None,
        ),
        samples=400,
        validation_samples=chance.randint(20, 700),
        channel=chance.choice(["s3", "tcp://"]),
    )
    replicas = chance.randint(2, 5)
    return made, Configuration(
        workers=stages * replicas,
        replicas=replicas,
        cut=tuple(sorted(chance.sample(range(1, layers), stages - 1))),
        memory_mib=(1024,),
        micro_batches=chance.choice([1, 2, 4]),
        batch_size=chance.choice([16, 64]),
    )


def seconds(ranks: object, means: ChannelModel) -> float:
    """Of a round's end at rank 0."""
    return timed(ranks, 1, lambda number: False, means.shared).step_s  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(25))
def test_one_of_several_alike_stands_for_all(seed: int) -> None:
    made, c = drawn(Random(seed))
    means = ChannelModel.of(made)
    every = zip(
        staged_validation.validation(made, c, means),
        staged_validation.validation(made, c, means),
        strict=True,
    )
    for whole, again in every:
        assert len(whole.alike) == c.replicas
        short = staged_validation.joining(again, means.shared)
        assert len(short) == c.workers
        assert seconds(whole.ranks, means) == seconds(short, means)


def test_what_is_not_alike_is_gone_through() -> None:
    made, c = drawn(Random(1))
    (of_all, *_) = staged_validation.validation(made, c, ChannelModel.of(made))
    assert staged_validation.joining(of_all, ALONE) is not of_all.ranks  # some are alike
    shared = replace(ALONE, store_bytes_per_s=1e6)
    assert staged_validation.joining(of_all, shared) is of_all.ranks
    one = made.sizes[0]
    for changed in (
        replace(one, reduce_s_per_byte=1e-9),
        replace(one, sum_cpu_s=1e-3),
        replace(one, cpu_cores=0.5, cpu_period_s=0.02),
        replace(one, beta=Figure.given(1.2)),
        replace(one, jitter=0.1),
    ):
        other = replace(made, sizes=(changed,))
        (of_other, *_) = staged_validation.validation(other, c, ChannelModel.of(other))
        assert staged_validation.joining(of_other, ALONE) is of_other.ranks
