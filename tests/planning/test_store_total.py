"""What a store carries for all functions together, and a host for those on it, is shared by them,
in every prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.catalogued import over_store
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile, dump_profile, load_profile
from dayfly.wire.streams import HostLink
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()
LAMBDA = KNOWN.platform("aws-lambda")


def step_s(made: Profile, workers: int, collective: str, most_simulated: int = 64) -> float:
    c = Configuration(
        workers=workers,
        replicas=workers,
        memory_mib=(4096,),
        collective=collective,
        batch_size=64,
    )
    return predict(made, c, LAMBDA, most_simulated=most_simulated).step_s


def alone_and_shared(
    collective: str, most_simulated: int, **limit: Any
) -> tuple[Prediction, Prediction]:
    """Of eight workers with 90 MB: without a limit that they share, and with it."""
    c = Configuration(
        workers=8,
        replicas=8,
        memory_mib=(4096,),
        collective=collective,
        aggregators=2 if collective == "k-reduce" else None,
        batch_size=64,
    )
    made = job(3, 30.0)
    alone, shared = (
        predict(one, c, LAMBDA, most_simulated=most_simulated)
        for one in (made, replace(made, **limit))
    )
    return alone, shared


@pytest.mark.parametrize("collective", ["scatter-reduce", "overlapped", "ring", "k-reduce"])
@pytest.mark.parametrize("most_simulated", [64, 0])
def test_no_step_is_shorter_than_the_store_takes_for_its_bytes(
    collective: str, most_simulated: int
) -> None:
    """In virtual time and by closed forms. Of 90 MB, each of 8 reads 2 x 7/8 at least."""
    rate = 1e8
    alone, shared = alone_and_shared(collective, most_simulated, store_bytes_per_s=rate)
    least_s = shared.step_volume.bytes_down / rate
    assert alone.step_s < least_s < shared.step_s
    if collective != "k-reduce":
        assert shared.step_s < 2.5 * least_s


@pytest.mark.parametrize("collective", ["scatter-reduce", "overlapped", "ring", "k-reduce"])
@pytest.mark.parametrize("most_simulated", [64, 0])
def test_no_step_is_shorter_than_a_host_takes_for_its_bytes(
    collective: str, most_simulated: int
) -> None:
    """The first of two hosts has four of the eight, and with them half of the bytes; by k-reduce at
    least."""
    host = HostLink(functions=4, bytes_per_s=5e7)
    alone, shared = alone_and_shared(collective, most_simulated, host=host)
    least_s = shared.step_volume.bytes_down / 2 / host.bytes_per_s
    assert alone.step_s < least_s < shared.step_s
    if collective != "k-reduce":
        assert shared.step_s < 2.5 * least_s


def test_functions_on_hosts_of_their_own_share_nothing() -> None:
    made = job(3, 30.0)
    spread = replace(made, host=HostLink(functions=1, bytes_per_s=70e6 * 1.01))
    for most_simulated in (64, 0):
        taken = [step_s(one, 8, "overlapped", most_simulated) for one in (made, spread)]
        assert taken[1] == pytest.approx(taken[0], rel=0.01)


def test_a_host_is_said_by_rows_of_a_platform() -> None:
    platform = replace(LAMBDA, host_functions=4, host_bytes_per_s=5e7)
    made = over_store(replace(job(3, 30.0), how="catalogue"), platform, KNOWN.store("s3"))
    assert made.host == HostLink(functions=4, bytes_per_s=5e7)
    assert load_profile(dump_profile(made)) == made
    # One alone has the host's rate at most.
    assert max(size.up.peak_bytes_per_s.value for size in made.sizes) == 5e7
    with pytest.raises(RequestError, match="give both rows, above 0, or neither"):
        replace(LAMBDA, host_functions=4)


def test_one_function_alone_has_all_of_it() -> None:
    """Its link is the narrower one: 70 MB/s."""
    made = job(3, 30.0)
    shared = replace(made, store_bytes_per_s=70e6 * 2.01)
    for collective in ("scatter-reduce", "overlapped"):
        assert step_s(shared, 2, collective) == pytest.approx(step_s(made, 2, collective), rel=0.01)


def test_stores_of_the_catalogue_say_it_in_the_profile() -> None:
    made = replace(job(3, 30.0), how="catalogue")
    store = replace(KNOWN.store("alibaba-oss"), latency_s=0.04)
    there = over_store(made, LAMBDA, store)
    assert there.store_bytes_per_s == store.bytes_per_s == 1.25e9
    assert load_profile(dump_profile(there)) == there
    assert over_store(there, LAMBDA, KNOWN.store("s3")).store_bytes_per_s is None
    # 32 functions of 70 MB/s ask for 2.24 GB/s.
    assert step_s(there, 32, "scatter-reduce", 0) > 1.4 * step_s(made, 32, "scatter-reduce", 0)
