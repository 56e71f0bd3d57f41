"""A function, described for every place that can run it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """What a function gets. None: not limited, or what the platform has by default.

    Args:
        memory_mib: memory in MiB, as the platforms count it, the runtime's own included.
        lifetime_s: seconds from the start of the handler's process to its kill. The cold start
            comes before, as Lambda's 900 s do not count initialisation.
        cpu_cores: seconds of CPU time a second, from 0.001, all threads together.
        cold_start_s: seconds that each start takes longer, before the handler begins.
        payload_bytes: the longest payload, and the longest result, as JSON.
        gpu_share: of one GPU, its memory included; None: no GPU.
        image: of a container, as its registry names it; None: the platform's own runtime.
        environment: variables that the function finds beside those of the platform. They are shown
            in logs and records, so secrets do not belong here.

    Raises:
        ValueError: a value that no function can have.
    """

    memory_mib: int | None = None
    lifetime_s: float | None = None
    cpu_cores: float | None = None
    cold_start_s: float = 0.0
    payload_bytes: int | None = None
    gpu_share: float | None = None
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.memory_mib is not None and self.memory_mib < 1:
            raise ValueError(f"memory of {self.memory_mib} MiB: must be at least 1")
        if self.lifetime_s is not None and not self.lifetime_s > 0:
            raise ValueError(f"lifetime of {self.lifetime_s} s: must be above 0")
        if self.cpu_cores is not None and not self.cpu_cores >= 0.001:
            raise ValueError(f"a share of {self.cpu_cores} CPUs: must be at least 0.001")
        if not 0 <= self.cold_start_s < float("inf"):
            raise ValueError(f"a cold start of {self.cold_start_s} s: must be 0 or more")
        if self.payload_bytes is not None and self.payload_bytes < 1:
            raise ValueError(f"payloads of {self.payload_bytes} bytes: must be at least 1")
        if self.gpu_share is not None and not 0 < self.gpu_share <= 1:
            raise ValueError(f"a share of {self.gpu_share} of a GPU: must be above 0, at most 1")
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"variable {name!r} cannot be in an environment")
