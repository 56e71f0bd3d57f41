"""FasDL's problem from a profile, and its plans' dollars beside a bill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import MeteredInvocation, StoreTraffic, bill
from dayfly.errors import RequestError
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.k_reduce_from_profile import k_reduce_problem, most_samples, training
from dayfly.planning.choose.k_reduce_problem import KReduceProblem
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import peak_mib
from dayfly.planning.profile import Affine, Profile
from dayfly.wire.collectives.k_reduce import k_reduce_bytes, k_reduce_requests
from tests.planning.by_hand import given, layer, profile, size

LAMBDA, S3 = Catalogue().platform("aws-lambda"), Catalogue().store("s3")
MIB = 2**20


def large(*memories: int) -> Profile:
    """A model of 40 MB, 1 MiB of activations a sample."""
    layers = (layer("a", 10**7, passed=MIB / 2), layer("b", 10))
    sizes = (size(2, memory, step_s=given(0.5), data=Affine(0.0, 0.01)) for memory in memories)
    return profile(layers, *sizes, samples=960, epochs=2)


def asked(made: Profile) -> KReduceProblem:
    return k_reduce_problem(made, LAMBDA, S3, workers=range(1, 9), most_global_samples=64)


def test_the_problem_is_the_profiles() -> None:
    p = asked(large(2048, 512))
    small, big = p.sizes
    assert (small.memory_mib, big.memory_mib) == (512, 2048)
    # Two layers of 1 and 2 ms forward and backward, 10 ms to read; and what any step takes.
    assert (small.train.fixed, small.train.each) == pytest.approx((0.5, 0.016))
    assert training(large(512), large(512).sizes[0]) == small.train
    assert big.usd_per_s == pytest.approx(2 * 1.66667e-5)
    assert p.size_bytes == pytest.approx(4e7, rel=1e-5)
    assert (p.samples, p.epochs, p.data_bytes) == (960, 2, 0.0)
    assert p.aggregators_samples == (48, 64)
    assert plan_k_reduce(p).cheapest.plan.workers == 1


def test_memory_holds_what_it_says_whatever_the_number_of_workers() -> None:
    made, held = large(512), {"collective": "k-reduce", "aggregators": 1}
    most = most_samples(made, 512, range(1, 9), 10**4, **held)

    def fits(samples: int, workers: int) -> bool:
        c = Configuration(
            workers=workers,
            memory_mib=(512,),
            batch_size=samples * workers,
            collective="k-reduce",
            aggregators=1,
        )
        return peak_mib(made, c, 0) <= 512

    assert 10 < most < 500
    assert all(fits(most, workers) for workers in range(1, 9))
    assert not all(fits(most + 1, workers) for workers in range(1, 9))
    assert most_samples(made, 512, (2,), 5, **held) == 5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match=r"fits nowhere: with a single sample .* has 128:"):
        asked(large(128))
    with pytest.raises(RequestError, match="no functions of limited memory"):
        asked(profile((layer("a"),), size(1, None)))
    unpriced = replace(LAMBDA, prices=None)
    with pytest.raises(RequestError, match="no prices of aws-lambda"):
        k_reduce_problem(large(512), unpriced, workers=(1,), most_global_samples=32)


def test_dollars_are_those_of_a_bill() -> None:
    """Functions that live for an epoch, and their messages; a bill rounds milliseconds up."""
    p = asked(large(1024, 2048))
    points = [point for point in plan_k_reduce(p).points if 960 % point.plan.global_samples == 0]
    assert points
    for point in points:
        w, k, epochs = point.plan.workers, point.plan.aggregators, int(p.epochs)
        steps = epochs * p.samples // point.plan.global_samples
        used = [
            MeteredInvocation(
                function=f"worker-{rank}",
                attempt=epoch,
                memory_mib=point.plan.memory_mib,
                init_s=0.0,
                run_s=point.seconds / epochs,
                outcome="returned",
            )
            for rank in range(w)
            for epoch in range(epochs)
        ]
        puts, gets = (steps * count for count in k_reduce_requests(w, k))
        up, down = (steps * moved for moved in k_reduce_bytes(int(p.size_bytes), w))
        moved = StoreTraffic(
            puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down
        )
        billed = bill(used, LAMBDA, S3, {"worker-0": moved})
        assert point.usd == pytest.approx(billed.cost_usd, rel=1e-4)
