"""CE-scaling's problem from a profile."""

from __future__ import annotations

import pytest
from benchmarks.parts.choosing.store_problem import StoreOption, StoreProblem, store_problem
from benchmarks.parts.choosing.stores import plan_stores

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.profile import Profile
from tests.choose.test_k_reduce_profile import large

CATALOGUE = Catalogue()
LAMBDA = CATALOGUE.platform("aws-lambda")
STORES = (
    StoreOption.of_store(CATALOGUE.store("s3"), bytes_per_s=70e6),
    StoreOption.of_machine(CATALOGUE.platform("vm-c5-9xlarge"), bytes_per_s=70e6, latency_s=0.001),
)


def asked(made: Profile, batch_size: int = 64) -> StoreProblem:
    return store_problem(
        made, LAMBDA, STORES, workers=range(1, 101), batch_size=batch_size, at_once=80
    )


def test_a_step_of_the_problem_is_one_of_the_profile() -> None:
    """960 samples in batches of 64, by one function: 15 steps of 0.5 s and 64 times 16 ms."""
    p = asked(large(2048))
    lone = next(one for one in plan_stores(p).points if one.plan.workers == 1)
    assert lone.seconds == pytest.approx(2 * 15 * (0.5 + 64 * 0.016))
    assert lone.usd == pytest.approx(lone.seconds * 2 * 1.66667e-5 + 2 * 2e-7, rel=1e-6)


def test_no_more_functions_than_samples_or_than_at_once() -> None:
    assert plan_stores(asked(large(2048))).fastest.plan.workers <= 64
    p = asked(large(2048), 500)
    assert max(one.plan.workers for one in plan_stores(p).points) <= 80


def test_what_memory_does_not_hold_takes_more_functions() -> None:
    """Of 900 samples a function of 512 MiB has no room for all, and several have."""
    p = asked(large(512), 900)
    held = p.sizes[0].most_batch_bytes / p.sample_bytes
    assert 10 < held < 500
    fewest = min(one.plan.workers for one in plan_stores(p).points)
    assert fewest >= 900 / held
    with pytest.raises(RequestError, match="fits nowhere: with a single sample"):
        asked(large(128))
