"""Short steps under a CPU limit: what waited runs at full speed, all take their share at most."""

from __future__ import annotations

import math
from itertools import product
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.bursts import Bursts
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, Profile
from dayfly.wire.processor import SharedProcessor
from tests.planning.by_hand import layer, profile, size, transfer

AWS = Catalogue().platform("aws-lambda")
PERIOD_S = 0.02


def quick(share: float, pass_s: float, *, latency_s: float = 0.0) -> Profile:
    """A layer of so many CPU seconds a sample, on functions that get a share of a core every 20
    ms."""
    way = transfer(1e9, latency_s)
    return profile(
        [layer("a", 250)],
        size(
            1,
            cpu_cores=share,
            cpu_period_s=PERIOD_S,
            forward=(Affine(0.0, pass_s / share / 2),),
            backward=(Affine(0.0, pass_s / share / 2),),
            up=way,
            down=way,
        ),
    )


@given(st.sampled_from([0.1, 0.25, 0.5, 0.75]), st.floats(0.0005, 0.2))
def test_a_burst_takes_what_a_processor_takes_for_it(share: float, work_s: float) -> None:
    """On average over where in a period it begins, and over works up to a period's CPU time more,
    as standstills come one by one. What a CPU keeps of a slice is left out."""
    bursts = Bursts.of(size(1, cpu_cores=share, cpu_period_s=PERIOD_S), 2, math.inf)
    took_s, formed_s = [], []
    for phase, part in product(range(20), range(20)):
        more_s = work_s + share * PERIOD_S * part / 20
        processor = SharedProcessor(share, PERIOD_S, PERIOD_S * phase / 20)
        processor.add(more_s, 0, 0.0)
        took_s.append(processor.next_s())
        even_s = more_s / share
        formed_s.append(bursts.step_s(even_s + 1.0, even_s, 0.0, 0.0) - 1.0)
        assert more_s - 1e-9 <= formed_s[-1] <= even_s + 1e-9
    assert mean(formed_s) == pytest.approx(mean(took_s), abs=0.15 * PERIOD_S)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("sync", ["bsp", "local-sgd"])
def test_steps_that_do_not_wait_take_their_work_over_the_share(sync: str, workers: int) -> None:
    """Also where a few have room in the CPU time with which a function begins: 1 ms of 5."""
    asked = Configuration(
        workers=workers,
        memory_mib=(1024,),
        batch_size=workers,
        sync=sync,
        k=4 if sync == "local-sgd" else None,
        collective="scatter-reduce",
    )
    for most_simulated in (64, 0):
        found = predict(quick(0.25, 0.001), asked, AWS, most_simulated=most_simulated)
        assert found.step_s == pytest.approx(0.004, rel=0.03)


@pytest.mark.parametrize("most_simulated", [64, 0])
def test_steps_that_wait_compute_at_full_speed(most_simulated: int) -> None:
    """2 ms of each 12 are fewer than half: without them the step takes its four latencies."""
    asked = Configuration(workers=2, memory_mib=(1024,), batch_size=2, collective="scatter-reduce")
    made = quick(0.5, 0.002, latency_s=0.0025)
    found = predict(made, asked, AWS, most_simulated=most_simulated)
    assert found.step_s == pytest.approx(0.012, rel=0.03)


def test_functions_on_one_core_do_not_save_each_others_time() -> None:
    """Three functions of half a core on two: two of them are on one, and compute at once."""
    half = size(1, cpu_cores=0.5, cpu_period_s=PERIOD_S)
    saved = [Bursts.of(half, workers, 2.0).saved for workers in (1, 2, 3, 4)]
    assert saved == [0.5, 0.5, 0.0, 0.0]
    assert Bursts.of(half, 8, 2.0).slowed == 2.0
    assert Bursts.of(size(1, cpu_cores=None), 8, 2.0).slowed == 4.0
    assert Bursts.of(size(1, cpu_cores=1.75, cpu_period_s=PERIOD_S), 2, math.inf).saved == 0.0
