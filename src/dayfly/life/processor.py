"""The CPU that functions compute on, and the instruction sets that libraries may use on it.

The bits of a result depend on the kernels that torch, oneDNN and MKL choose, which they choose by
the CPU. Each of them reads a variable of the environment, once, when it is first used:

    ATEN_CPU_CAPABILITY    torch's own loops: sums, activations, random numbers
    ONEDNN_MAX_CPU_ISA     convolutions, and what is in bf16 or fp16; also their block sizes
    MKL_CBWR               matrix products, linear algebra, FFT: one branch of the code, with fixed
                           cache sizes and fixed orders of sums

They say no more than what a library would choose here by itself, so nothing gets slower by them.
Written down, they hold in every process of a run, and on a machine that can do more.

MKL knows branches for Intel's instruction sets on Intel's CPUs only. On others it takes any of them
for AUTO, without a word, or COMPATIBLE, which is SSE2. On an AMD EPYC (Zen 3) AUTO gives the bits
and the speed of no setting at all, but for QR, which has the same speed and other bits; a product
of matrices takes 4 times as long by COMPATIBLE.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dayfly.errors import RequestError

ATEN, ONEDNN, MKL = "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"
#: What libraries read to choose their kernels.
VARIABLES = (ATEN, ONEDNN, MKL)

_INTEL = "GenuineIntel"
_AVX = frozenset({"avx"})
_AVX2 = _AVX | {"avx2", "fma"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_FP16 = _BF16 | {"avx512_fp16", "avx_vnni"}
_AMX = _FP16 | {"amx_tile", "amx_int8", "amx_bf16"}
_AMX_FP16 = _AMX | {"amx_fp16"}
#: The flags of /proc/cpuinfo that a value stands for, the best value first.
_NEEDS: Mapping[str, Mapping[str, frozenset[str]]] = {
    ATEN: {"avx512": _AVX512, "avx2": _AVX2, "default": frozenset()},
    ONEDNN: {
        "AVX512_CORE_AMX_FP16": _AMX_FP16,
        "AVX512_CORE_AMX": _AMX,
        "AVX512_CORE_FP16": _FP16,
        "AVX512_CORE_BF16": _BF16,
        "AVX512_CORE_VNNI": _VNNI,
        "AVX512_CORE": _AVX512,
        "AVX2_VNNI": _AVX2 | {"avx_vnni"},
        "AVX2": _AVX2,
        "AVX": _AVX,
        "SSE41": frozenset({"sse4_1"}),
    },
    MKL: {"AVX512": _AVX512, "AVX2": _AVX2, "AVX": _AVX, "SSE4_2": frozenset({"sse4_2"})},
}
#: On CPUs that are not Intel's, MKL knows no other that is fast.
_ANY_BRANCH = "AUTO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A CPU, as /proc/cpuinfo has its first core.

    Args:
        name: for people, as hypervisors shorten it.
        flags: what it can do, as far as the hypervisor and the kernel let it.
    """

    vendor: str
    family: str
    model: str
    name: str
    flags: frozenset[str]

    @property
    def type(self) -> str:
        """What libraries tell CPUs apart by, besides their flags.

        Vendor and family choose kernels (MKL's, above all); the model stands for the caches, by
        which oneDNN and MKL choose block sizes, and so the order of sums. Not the stepping: where
        it matters (Skylake, Cascade Lake and Cooper Lake are one model), flags differ, which the
        variables level. Nor the name: it has the clock's rate, and a hypervisor may hide it.
        """
        return f"{self.vendor} family {self.family} model {self.model}"

    @classmethod
    def parse(cls, cpuinfo: str) -> Processor:
        """From the text of /proc/cpuinfo; unknown where it does not say."""
        first: dict[str, str] = {}
        for line in cpuinfo.split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            first[name.strip()] = value.strip()

        def found(*names: str) -> str:
            return next((first[name] for name in names if first.get(name)), "unknown")

        # The second names are Arm's.
        return cls(
            vendor=found("vendor_id", "CPU implementer"),
            family=found("cpu family", "CPU architecture"),
            model=found("model", "CPU part"),
            name=found("model name") if "model name" in first else platform.machine(),
            flags=frozenset((first.get("flags") or first.get("Features") or "").split()),
        )

    @classmethod
    def here(cls) -> Processor:
        """This machine's. Unknown in all parts if there is no /proc/cpuinfo."""
        file = Path("/proc/cpuinfo")
        return cls.parse(file.read_text() if file.exists() else "")

    @property
    def best(self) -> dict[str, str]:
        """The variables' values that leave libraries all that this CPU can do; of x86 only."""
        if "sse2" not in self.flags:
            return {}
        best = {
            name: next((value for value, flags in known.items() if flags <= self.flags), None)
            for name, known in _NEEDS.items()
        }
        if self.vendor != _INTEL:
            best[MKL] = _ANY_BRANCH
        return {name: value for name, value in best.items() if value is not None}

    def lacks(self, variables: Mapping[str, str]) -> str | None:
        """The first of the variables that asks for instructions this CPU lacks, as NAME=VALUE."""
        for name, value in variables.items():
            known = {key.lower(): flags for key, flags in _NEEDS.get(name, {}).items()}
            if not known.get(value.lower(), frozenset()) <= self.flags:
                return f"{name}={value}"
        return None

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables of a run that begins here: the user's own, or else the best.

        Raises RequestError if the user's own are unknown to torch, or ask for what this CPU lacks:
        a function would die of an illegal instruction.
        """
        own = {name: environment[name] for name in VARIABLES if environment.get(name)}
        if ATEN in own:
            own[ATEN] = own[ATEN].lower()  # torch passes over what is not
            if ATEN in self.best and own[ATEN] not in _NEEDS[ATEN]:
                raise RequestError(
                    f"{ATEN}={own[ATEN]} is set in the environment: give one of "
                    f"{', '.join(_NEEDS[ATEN])}, or unset it"
                )
        if (lacking := self.lacks(own)) is not None:
            raise RequestError(
                f"{lacking} is set in the environment, and {self.type} has no such instructions: "
                "unset it, or give a lesser one"
            )
        return {**self.best, **own}
