"""What functions of one memory size may differ in: vCPUs, where they are sold apart, and a GPU.

A plan's functions are all of one kind, so the planners go through the kinds one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dayfly.dataclass_json import Count, Matches


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionKind:
    """What functions of one memory size may differ in.

    Attributes:
        vcpus: of a function; None: what comes with its memory.
        gpu_share: of a GPU, of its memory and of its time; None: no GPU.
    """

    vcpus: float | None = None
    gpu_share: float | None = None

    @property
    def settings(self) -> dict[str, float]:
        """By the names of a run's settings; without those that say nothing."""
        own = {"cpu_cores": self.vcpus, "gpu_share": self.gpu_share}
        return {name: value for name, value in own.items() if value is not None}

    @classmethod
    def of_settings(cls, own: Any) -> FunctionKind:
        """Of settings by their names."""
        return cls(vcpus=own.get("cpu_cores"), gpu_share=own.get("gpu_share"))

    def __str__(self) -> str:
        """` and 2 vCPUs and 0.25 of a GPU`; empty: of no kind of their own."""
        vcpus, share = self.vcpus, self.gpu_share
        said = "" if vcpus is None else f" and {vcpus:g} vCPU{'' if vcpus == 1 else 's'}"
        if share is None:
            return said
        return f"{said} and {'a GPU' if share == 1 else f'{share:g} of a GPU'}"


#: Functions of which memory says all.
BY_MEMORY = FunctionKind()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledGpu:
    """The GPU that a profile's functions have a share of.

    Attributes:
        type: its name.
        memory_mib: of a whole one.
        derived: whether times on it follow from published figures (`planning.gpus`); else they were
            measured on one.
    """

    type: Annotated[str, Matches(".+", "the type of a GPU, such as T4")]
    memory_mib: Count
    derived: bool = False


def memory_label(
    memory_mib: int | None, vcpus: float | None = None, gpu_share: float | None = None
) -> str:
    """`512 MiB`, or that memory is not limited; with the kind of the functions, if it is given."""
    memory = "unlimited memory" if memory_mib is None else f"{memory_mib} MiB"
    return f"{memory}{FunctionKind(vcpus=vcpus, gpu_share=gpu_share)}"
