"""Times on a GPU that nobody measured: derived from what is published of its type.

    forward of n samples   (FLOPs(n) / F + bytes(n) / B) / (reached x share)
    bytes(n)               parameters + n (input + activations kept + output)
    backward               twice as long
    F, B                   peak FLOP/s of float32, and bytes/s of the GPU's memory
    optimizer's step       (3 + 2 states) bytes over B for each that it trains: gradient, parameter
                           and states are read, parameter and states written
    to the machine's memory and back   gradients and sums, and samples, over the GPU's link

A roofline (Williams, Waterman and Patterson, 2009) has the greater of both terms, as computing
hides the memory or the other way round; the sum is at most twice that, and a line in n. Training
does not reach published peaks. `REACHED` of them is taken, and an interval of twice and half of
that time: from a quarter of the peaks to all of them. TensorFlow's published benchmarks (2017) of
ResNet-50 on a K80 are 52 pictures a second, at about 25 GFLOP each: 0.3 of its FLOP/s. The launch
of kernels is not counted, so a model of tiny layers reaches less than a quarter.

Functions that share a GPU take turns: a share of it is a share of its memory and of its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dayfly.catalogue.gpu import GpuFacts
from dayfly.errors import RequestError
from dayfly.planning.function_kinds import ProfiledGpu
from dayfly.planning.profile import Affine, Figure, LayerBytes, Profile, SizeProfile

#: Of published peaks, in the middle of `SPREAD`.
REACHED = 0.5
#: By how many times what is derived may be longer or shorter, nine times of ten.
SPREAD = 2.0
#: MiB of a machine's memory that a process takes for CUDA: "a gigabyte or more" (docs/gpus.md).
CUDA_HOST_MIB = 1024.0
#: Where a profile says so, in words of a plan.
DERIVED = "derived from published figures, not measured"


class Roofline:
    """A type of GPU, or a share of one, as its published figures have it.

    Args:
        facts: of the type.
        share: of its time.

    Raises:
        RequestError: a figure is not known.
    """

    def __init__(self, facts: GpuFacts, share: float) -> None:
        part = REACHED * share
        self._s_per_flop = 1 / (part * _row(facts, "flops_per_s"))
        self._s_per_byte = 1 / (part * _row(facts, "memory_bytes_per_s"))
        #: Seconds a byte to the machine's memory, or from there.
        self.host_s_per_byte = 1 / (part * _row(facts, "host_bytes_per_s"))

    def forward(
        self, layers: Sequence[LayerBytes], flops: Sequence[Affine], sample_bytes: float
    ) -> tuple[Affine, ...]:
        """Returns the seconds of each layer's forward pass of so many samples.

        Args:
            layers: of the model.
            flops: of each layer, for so many samples.
            sample_bytes: of the first layer's input.
        """
        found, entering = [], sample_bytes
        for layer, work in zip(layers, flops, strict=True):
            moved = Affine(layer.parameters, entering + layer.activations + layer.output)
            found.append(work.times(self._s_per_flop) + moved.times(self._s_per_byte))
            entering = layer.output
        return tuple(found)

    def apply(self, state_per_trained_byte: float) -> Affine:
        """Returns the seconds of the optimizer's step and of moving gradients and sums.

        Args:
            state_per_trained_byte: bytes of the optimizer's state.
        """
        read_and_written = 3 + 2 * state_per_trained_byte
        return Affine(0.0, read_and_written * self._s_per_byte + 2 * self.host_s_per_byte)


def _row(facts: GpuFacts, name: str) -> float:
    found: float | None = getattr(facts, name)
    if found is None:
        raise RequestError(
            f"the catalogue has no {name} of GPU {facts.name}: add the row, with its source, to "
            "gpus/ of a catalogue of your own"
        )
    return found


def derived_gpu(
    platform: str, gpu: str, facts: GpuFacts | None, memory_mib: int | None
) -> ProfiledGpu:
    """Returns the GPU of functions that are to have derived times.

    Args:
        platform: its name.
        gpu: the type, by the platform's row.
        facts: of that type; None: the catalogue does not know it.
        memory_mib: of a GPU, by the platform's row; None: as the type's.

    Raises:
        RequestError: the type, or its memory, is not known.
    """
    if facts is None:
        raise RequestError(
            f"{platform} has a GPU {gpu}, of which the catalogue has no figures: add "
            f"gpus/{gpu}.toml, with its sources, to a catalogue of your own, or profile the job on "
            "such a GPU (dayfly profile --gpu)"
        )
    found = memory_mib or int(_row(facts, "memory_mib"))
    return ProfiledGpu(type=gpu, memory_mib=found, derived=True)


def profiled_gpu(found: Mapping[str, Any] | None, wanted: str | None) -> ProfiledGpu | None:
    """Returns the GPU that a profile was measured on; None: it had none.

    Args:
        found: name, as CUDA has it, and memory_mib.
        wanted: the type that was asked for; None: any.

    Raises:
        RequestError: it is another type.
    """
    if found is None:
        return None
    words = str(found["name"]).replace("-", " ").split()
    if wanted is not None and wanted not in words:
        raise RequestError(
            f"--gpu {wanted}: the GPU of this machine is {found['name']}: give its type, one of "
            "these words, or measure where there is the other"
        )
    return ProfiledGpu(type=wanted or words[-1], memory_mib=found["memory_mib"])


def sharing(size: SizeProfile, share: float | None) -> SizeProfile:
    """Returns functions of a size as they are while others have the rest of the GPU's time.

    Args:
        size: measured alone, in part of a GPU's memory and all of its time.
        share: of the GPU; None: no GPU.
    """
    if share is None:
        return size
    longer = 1 / share

    def times(figures: tuple[Figure, ...]) -> tuple[Figure, ...]:
        return tuple(
            Figure(one.value * longer, one.low * longer, one.high * longer, one.count)
            for one in figures
        )

    base = size.base_mib
    return replace(
        size,
        gpu_share=share,
        forward=tuple(one.times(longer) for one in size.forward),
        backward=tuple(one.times(longer) for one in size.backward),
        apply=size.apply.times(longer),
        passes=tuple(
            replace(one, forward=times(one.forward), backward=times(one.backward), held_mib=None)
            for one in size.passes
        ),
        # What started without CUDA was measured.
        base_mib=Figure(
            base.value + CUDA_HOST_MIB,
            base.low + CUDA_HOST_MIB,
            base.high + CUDA_HOST_MIB,
            base.count,
        ),
    )


def gpu_room_mib(profile: Profile, size: SizeProfile) -> float | None:
    """Returns the MiB of GPU memory that a function of this size has; None: it has no GPU."""
    if profile.gpu is None or size.gpu_share is None:
        return None
    return size.gpu_share * profile.gpu.memory_mib
