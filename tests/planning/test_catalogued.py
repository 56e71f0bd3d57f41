"""Profiles made from the catalogue and FLOPs: by hand, and in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.catalogued import Assumed, JobFacts, profile_of
from dayfly.planning.profile import Affine, LayerBytes, Profile, dump_profile, load_profile

LAYERS = (
    LayerBytes(name="0 Linear", parameters=4000, trained=4000, activations=8.0, output=16.0),
    LayerBytes(name="1 BatchNorm", parameters=400, trained=200, buffers=100, output=16.0),
)
FACTS = JobFacts(
    job="small",
    listed=True,
    samples=1000,
    validation_samples=100,
    sample_bytes=700.0,
    state_per_trained_byte=2.0,
    layers=LAYERS,
    flops=(Affine(0.0, 2e9), Affine(1e9, 1e9)),
)
BOX = FunctionPlatform(
    name="box",
    prices=None,
    memory_min_mib=512,
    memory_max_mib=4096,
    memory_step_mib=512,
    mib_per_vcpu=1024,
    vcpus_max=2,
    vcpu_flops_per_s=1e10,
    uplink_by_memory=((512, 1e7), (1024, 3e7)),
    downlink_bytes_per_s=7e7,
    cold_start_s=0.25,
)
SHELF = StoreFacts(name="shelf", latency_s=0.04)
ASSUMED = Assumed(base_mib=300.0)


def made(
    *memory_mib: int,
    platform: FunctionPlatform = BOX,
    store: StoreFacts = SHELF,
    facts: JobFacts = FACTS,
    **assumed: Any,
) -> Profile:
    return profile_of(facts, platform, store, memory_mib, replace(ASSUMED, **assumed))


def test_a_size_by_hand() -> None:
    """Half a vCPU of 512 MiB does 5e9 operations a second."""
    profile = made(512)
    (size,) = profile.sizes
    assert size.cpu_cores == 0.5
    assert size.forward == (Affine(0.0, 0.4), Affine(0.2, 0.2))
    assert size.backward == (Affine(0.0, 0.8), Affine(0.4, 0.4))
    assert size.data == Affine(0.0, 700 / 7e7)
    assert size.up.message_s(1e6) == pytest.approx(0.04 + 0.1)
    assert size.down.message_s(7e6) == pytest.approx(0.04 + 0.1)
    assert size.init_s.value == 0.25
    # 4500 bytes of the model, and 2 x 4200 of the optimizer's.
    assert size.start_s.value == pytest.approx(0.04 + 12_900 / 7e7)
    assert size.base_mib.value == 300.0
    assert (profile.platform, profile.imitate) == ("local", "box")
    assert (profile.channel, profile.how) == ("shelf", "catalogue")
    assert load_profile(dump_profile(profile)) == profile


def test_sizes_rise_and_come_once() -> None:
    profile = made(2048, 512, 2048, 1024)
    assert [size.memory_mib for size in profile.sizes] == [512, 1024, 2048]
    assert [size.up.peak_bytes_per_s.value for size in profile.sizes] == [1e7, 3e7, 3e7]


def test_the_fit_is_the_layers_sum_where_time_falls_with_memory() -> None:
    """FasDL's equation 4 is exact up to the most vCPUs, and says nothing beyond them."""
    profile = made(512, 2048)
    assert profile.fit is not None
    for size in profile.sizes:
        assert size.memory_mib is not None
        step_s = sum(one(8) for one in (*size.forward, *size.backward))
        assert profile.fit.step_s(8, size.memory_mib) == pytest.approx(step_s)
    assert made(512, 4096).fit is None
    assert made(512, 2048, threads=1).fit is None


def test_a_store_of_few_bytes_a_second_limits_one_function_too() -> None:
    (size,) = made(1024, store=replace(SHELF, bytes_per_s=2e7)).sizes
    assert (size.up.peak_bytes_per_s.value, size.down.peak_bytes_per_s.value) == (2e7, 2e7)


def test_what_is_said_goes_before_the_rows() -> None:
    (size,) = made(
        512,
        vcpu_flops_per_s=1e12,
        vcpus=4.0,
        latency_s=0.0,
        down_bytes_per_s=5e8,
        cold_start_s=3.0,
        beta=1.2,
    ).sizes
    assert size.cpu_cores == 4.0
    assert size.forward[0] == Affine(0.0, 2e9 / 4e12)
    assert size.up.latency_s.value == 0.0
    assert size.down.peak_bytes_per_s.value == 5e8
    assert (size.init_s.value, size.beta.value) == (3.0, 1.2)


def test_a_worker_of_one_thread_gains_nothing_of_a_second_vcpu() -> None:
    small, large = made(1024, 2048, threads=1).sizes
    assert small.forward == large.forward
    assert large.cpu_cores == 2.0


@pytest.mark.parametrize(
    ("row", "of", "flag"),
    [
        ("vcpu_flops_per_s", "box", "--flops-per-vcpu"),
        ("mib_per_vcpu", "box", "--cpu"),
        ("downlink_bytes_per_s", "box", "--downlink"),
        ("cold_start_s", "box", "--cold-start"),
    ],
)
def test_what_no_row_has_is_asked_for(row: str, of: str, flag: str) -> None:
    rows: dict[str, Any] = {row: None}
    platform = replace(BOX, **rows)
    with pytest.raises(RequestError, match=f"the catalogue has no {row} of {of}: give {flag}"):
        made(512, platform=platform)
    with pytest.raises(RequestError, match="no latency_s of shelf: give --latency"):
        made(512, store=StoreFacts(name="shelf"))


def test_sizes_that_the_platform_has_not() -> None:
    with pytest.raises(RequestError, match="box has no functions of 8192 MiB"):
        made(512, 8192)
    with pytest.raises(RequestError, match="no memory size of box"):
        made()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vcpu_flops_per_s", 0.0),
        ("threads", 0),
        ("up_bytes_per_s", -1.0),
        ("latency_s", -0.1),
        ("base_mib", -1.0),
        ("beta", 0.9),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{name} is"):
        replace(ASSUMED, **{name: value})


def test_layers_and_flops_fit() -> None:
    with pytest.raises(ValueError, match="FLOPs of 1 layers, and 2 layers"):
        replace(FACTS, flops=(Affine(0.0, 1.0),))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 64), st.floats(1, 10))
def test_more_memory_flops_and_bandwidth_are_never_slower(
    one: int, other: int, samples: int, factor: float
) -> None:
    """And less latency."""

    def step_s(profile: Profile) -> list[float]:
        return [
            sum(passes(samples) for passes in (*size.forward, *size.backward))
            for size in profile.sizes
        ]

    def message_s(profile: Profile, nbytes: float = 1e6) -> list[float]:
        return [size.up.message_s(nbytes) + size.down.message_s(nbytes) for size in profile.sizes]

    sizes = {512 * one, 512 * other}
    now = made(*sizes)
    assert step_s(now) == sorted(step_s(now), reverse=True)
    assert message_s(now) == sorted(message_s(now), reverse=True)
    quicker = made(*sizes, vcpu_flops_per_s=1e10 * factor)
    assert all(a <= b for a, b in zip(step_s(quicker), step_s(now), strict=True))
    nearer = made(*sizes, latency_s=0.04 / factor, down_bytes_per_s=7e7 * factor)
    assert all(a <= b for a, b in zip(message_s(nearer), message_s(now), strict=True))


def test_what_the_catalogue_does_not_know_takes_no_time() -> None:
    """Summing, applying and ending: nothing is added that is neither given nor computed."""
    (size,) = made(1024).sizes
    assert size.reduce_s_per_byte == 0.0
    assert size.apply == Affine(0.0, 0.0)
    assert (size.step_s.value, size.end_s.value) == (0.0, 0.0)
    assert size.data.fixed == 0.0
