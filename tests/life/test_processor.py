"""What a CPU is called, and which instruction sets a run on it begins with."""

from __future__ import annotations

import os

import pytest
import torch

from dayfly.errors import RequestError
from dayfly.life.processor import ATEN, MKL, ONEDNN, Processor

ZEN = "sse2 sse4_1 sse4_2 avx fma avx2 vaes"
SKYLAKE = f"{ZEN} avx512f avx512bw avx512dq avx512vl"
SAPPHIRE = (
    f"{SKYLAKE} avx512_vnni avx_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16 avx512cd"
)


def processor(vendor: str, flags: str, model: str = "85") -> Processor:
    return Processor(
        vendor=vendor, family="6", model=model, name="a CPU", flags=frozenset(flags.split())
    )


def test_the_type_is_what_cpuinfo_says_of_the_first_core() -> None:
    found = Processor.parse(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
        "model name\t: AMD EPYC\nstepping\t: 1\nflags\t\t: fpu sse2 avx2\npower management:\n\n"
        "processor\t: 1\nvendor_id\t: Other\n"
    )
    assert found.type == "AuthenticAMD family 25 model 1"
    assert (found.name, found.flags) == ("AMD EPYC", {"fpu", "sse2", "avx2"})


def test_an_arm_has_a_type_and_no_variables() -> None:
    found = Processor.parse(
        "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"
    )
    assert found.type == "0x41 family 8 model 0xd40"
    assert found.best == {}


def test_a_machine_that_tells_nothing_has_a_type_too() -> None:
    assert Processor.parse("").type == "unknown family unknown model unknown"


@pytest.mark.parametrize(
    ("vendor", "flags", "aten", "onednn", "mkl"),
    [
        ("AuthenticAMD", ZEN, "avx2", "AVX2", "AUTO"),
        ("AuthenticAMD", SKYLAKE, "avx512", "AVX512_CORE", "AUTO"),
        ("GenuineIntel", ZEN, "avx2", "AVX2", "AVX2"),
        ("GenuineIntel", f"{ZEN} avx_vnni", "avx2", "AVX2_VNNI", "AVX2"),
        ("GenuineIntel", SKYLAKE, "avx512", "AVX512_CORE", "AVX512"),
        ("GenuineIntel", f"{SKYLAKE} avx512_vnni", "avx512", "AVX512_CORE_VNNI", "AVX512"),
        ("GenuineIntel", SAPPHIRE, "avx512", "AVX512_CORE_AMX", "AVX512"),
        ("GenuineIntel", f"{SAPPHIRE} amx_fp16", "avx512", "AVX512_CORE_AMX_FP16", "AVX512"),
        ("GenuineIntel", "sse2 sse4_1 sse4_2 avx", "default", "AVX", "AVX"),
    ],
)
def test_libraries_may_use_all_that_is_there(
    vendor: str, flags: str, aten: str, onednn: str, mkl: str
) -> None:
    assert processor(vendor, flags).best == {ATEN: aten, ONEDNN: onednn, MKL: mkl}


def test_what_this_machine_may_use_is_what_torch_would_use() -> None:
    """Otherwise the setting made something slower."""
    if ATEN in os.environ:
        pytest.skip(f"{ATEN} is set here")
    assert Processor.here().best[ATEN] == torch.backends.cpu.get_cpu_capability().lower()


def test_the_users_own_go_before() -> None:
    zen = processor("AuthenticAMD", ZEN)
    found = zen.variables({ATEN: "DEFAULT", MKL: "COMPATIBLE", "HOME": "/root"})
    assert found == {ATEN: "default", ONEDNN: "AVX2", MKL: "COMPATIBLE"}


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({ATEN: "avx512"}, "ATEN_CPU_CAPABILITY=avx512 is set.*model 85 has no such instructions"),
        ({ONEDNN: "avx512_core"}, "ONEDNN_MAX_CPU_ISA=avx512_core is set"),
        ({ATEN: "avx9"}, "ATEN_CPU_CAPABILITY=avx9 .*: give one of avx512, avx2, default"),
    ],
)
def test_what_the_cpu_lacks_is_refused(own: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        processor("AuthenticAMD", ZEN).variables(own)
