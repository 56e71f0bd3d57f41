"""Requests against a platform's limits: what cannot be had is refused with the limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError

KNOWN = Catalogue()


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        (
            "aws-lambda",
            {"memory_mib": 20480},
            "aws-lambda has no functions of 20480 MiB: give 128 to 10240 MiB in steps of 1",
        ),
        (
            "aws-lambda",
            {"memory_mib": 127},
            "aws-lambda has no functions of 127 MiB: give 128 to 10240 MiB in steps of 1",
        ),
        (
            "aws-lambda",
            {"lifetime_s": 1200},
            "aws-lambda ends functions after 900 s, so none lives 1200 s: give a lifetime of at "
            "most 900 s",
        ),
        (
            "aws-lambda",
            {"payload_bytes": 2**20 + 1, "asynchronous": True},
            "aws-lambda takes at most 1048576 bytes with an asynchronous invocation, not 1048577: "
            "send the rest through a store",
        ),
        (
            "aws-lambda",
            {"payload_bytes": 7 * 2**20},
            "aws-lambda takes at most 6291456 bytes with a synchronous invocation, not 7340032: "
            "send the rest through a store",
        ),
        (
            "aws-lambda",
            {"vcpus": 7},
            "aws-lambda has no functions of 7 vCPUs: give at most 6",
        ),
        (
            "alibaba-fc",
            {"memory_mib": 1000},
            "alibaba-fc has no functions of 1000 MiB: give 128 to 32768 MiB in steps of 64",
        ),
        (
            "alibaba-fc",
            {"vcpus": 32},
            "alibaba-fc has no functions of 32 vCPUs: give 0.05 to 16",
        ),
        (
            "fargate",
            {"memory_mib": 31744},
            "fargate has no functions of 31744 MiB: give 512 to 122880 MiB in steps of 512 up to "
            "512, of 1024 up to 30720, of 4096 up to 61440, of 8192 up to 122880",
        ),
        (
            "azure-containers",
            {"memory_mib": 1500},
            "azure-containers has no functions of 1500 MiB: give another size in steps of 1024",
        ),
        (
            "cloud-run",
            {"memory_mib": 40000},
            "cloud-run has no functions of 40000 MiB: give 512 to 32768 MiB",
        ),
        (
            "vm-m5-large",
            {"memory_mib": 9000},
            "vm-m5-large has no functions of 9000 MiB: give at most 8192 MiB",
        ),
        ("vm-m5-large", {"vcpus": 4}, "vm-m5-large has no functions of 4 vCPUs: give at most 2"),
    ],
)
def test_what_cannot_be_had_is_refused(name: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        KNOWN.platform(name).check(**asked)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("aws-lambda", {"memory_mib": 128, "lifetime_s": 900, "payload_bytes": 6 * 2**20}),
        ("aws-lambda", {"memory_mib": 10240, "payload_bytes": 2**20, "asynchronous": True}),
        ("alibaba-fc", {"memory_mib": 32768, "lifetime_s": 86400, "vcpus": 16}),
        ("fargate", {"memory_mib": 32768, "lifetime_s": 10**7}),
        ("fargate", {"memory_mib": 512}),
        ("vm-c5-9xlarge", {"memory_mib": 100}),
        ("aws-lambda", {}),
    ],
)
def test_what_can_be_had_is_not(name: str, asked: dict[str, Any]) -> None:
    KNOWN.platform(name).check(**asked)


@given(st.sampled_from(KNOWN.platforms()), st.integers(1, 130_000))
def test_every_size_is_refused_or_can_be_had_as_it_is(name: str, memory_mib: int) -> None:
    platform = KNOWN.platform(name)
    try:
        platform.check(memory_mib=memory_mib)
    except RequestError:
        return
    if platform.machine_vcpus is None:
        assert platform.next_size_mib(memory_mib) == memory_mib


def platform(**values: Any) -> FunctionPlatform:
    return FunctionPlatform(name="p", prices=None, **values)


def test_what_no_source_gives_is_none_and_not_checked() -> None:
    bare = platform()
    assert bare.vcpus(1024) is None
    assert bare.up_bytes_per_s(1024) is bare.down_bytes_per_s(1024) is bare.one_vcpu_mib is None
    bare.check(memory_mib=10**9, lifetime_s=1e9, vcpus=1e6, payload_bytes=10**12)


def test_vcpus() -> None:
    steps = platform(vcpus_by_memory=((4096, 1), (8192, 2)))
    assert [steps.vcpus(size) for size in (1, 4096, 4097, 8192, 9000)] == [1, 1, 2, 2, 2]
    assert steps.one_vcpu_mib == 4096
    line = platform(mib_per_vcpu=1000, vcpus_min=0.5, vcpus_max=2)
    assert [line.vcpus(size) for size in (100, 1500, 5000)] == [0.5, 1.5, 2]
    assert line.one_vcpu_mib == 1000


def test_what_goes_with_a_part_of_a_gpu() -> None:
    t4 = Catalogue().platform("alibaba-fc-t4")
    t4.check(memory_mib=8192, vcpus=2, gpu_share=0.25)
    t4.check(memory_mib=32768, vcpus=8, gpu_share=1.0)
    with pytest.raises(
        RequestError, match=r"of 8256 MiB with 0.25 of a GPU: give at most 8192 MiB"
    ):
        t4.check(memory_mib=8256, gpu_share=0.25)
    with pytest.raises(
        RequestError, match=r"of 2.05 vCPUs with 0.25 of a GPU: give at most 2 vCPU"
    ):
        t4.check(vcpus=2.05, gpu_share=0.25)


def test_bandwidth_lies_between_the_measured_sizes() -> None:
    known = platform(
        uplink_by_memory=((1000, 10e6), (2000, 30e6)),
        uplink_bytes_per_s=1e6,
        downlink_bytes_per_s=5e6,
    )
    assert [known.up_bytes_per_s(m) for m in (500, 1000, 1500, 2000, 3000)] == [
        10e6,
        10e6,
        20e6,
        30e6,
        30e6,
    ]
    assert known.down_bytes_per_s(500) == 5e6
    only = platform(downlink_by_memory=((1000, 10e6),))
    assert only.down_bytes_per_s(1) == only.down_bytes_per_s(10**6) == 10e6
