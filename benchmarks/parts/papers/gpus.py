"""The papers' GPUs: what layers take on one, as `dayfly.planning.gpus` derives it, or by FLOPs.

The catalogue has published peaks alone. dayfly takes half of them as reached, and says of such
times that they may be twice or half as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.parts.papers.models import BACKWARD, Layer, layers_of
from benchmarks.parts.papers.rows import given
from dayfly.catalogue.gpu import GpuFacts
from dayfly.catalogue.lookup import Catalogue
from dayfly.models import MODELS
from dayfly.planning.gpus import Roofline
from dayfly.planning.profile import Affine, LayerBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. flops_per_s: which it computes with whatever the layer; None: as is derived."""

    facts: GpuFacts
    flops_per_s: float | None = None

    @property
    def memory_mib(self) -> int:
        """Of its own."""
        return int(given(self.facts.memory_mib, f"memory of {self.facts.name}"))

    @property
    def host_bytes_per_s(self) -> float:
        """To the memory of its machine, each way."""
        return given(self.facts.host_bytes_per_s, f"link of {self.facts.name}")

    def forward(self, layers: Sequence[Layer], sample_bytes: float) -> tuple[Affine, ...]:
        """Seconds of each layer's forward pass of n samples. sample_bytes: of what enters."""
        if self.flops_per_s is not None:
            return tuple(Affine(0.0, one.flops / self.flops_per_s) for one in layers)
        sizes = [
            LayerBytes(
                name="",
                parameters=one.parameter_bytes,
                trained=one.parameter_bytes,
                activations=one.kept_bytes,
                output=one.output_bytes,
            )
            for one in layers
        ]
        flops = [Affine(0.0, one.flops) for one in layers]
        return Roofline(self.facts, 1.0).forward(sizes, flops, sample_bytes)

    def step_s(self, name: str, samples: float, ends: int = 0) -> float:
        """Seconds of a forward and a backward pass of a model.

        ends: layers that are left out at either end.
        """
        each = model_forward(self, name)
        return (1 + BACKWARD) * sum(one(samples) for one in each[ends : len(each) - ends])

    def apply_s(self, size_bytes: float) -> float:
        """Seconds of an optimizer's step without a state; what is summed passes the link twice."""
        return Roofline(self.facts, 1.0).apply(0.0)(size_bytes)


@cache
def derived(name: str) -> Gpu:
    """A type of the catalogue."""
    return Gpu(facts=Catalogue().gpu(name))


@cache
def model_forward(gpu: Gpu, name: str) -> tuple[Affine, ...]:
    """Of each layer of a model of `dayfly.models.MODELS`."""
    sample = MODELS[name].sample(1)
    return gpu.forward(layers_of(name), sample.numel() * sample.element_size())
