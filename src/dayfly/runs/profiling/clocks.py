"""Clocks of what a function computes: its CPU time, and on a GPU wall time.

A function that has used its share of the CPU stands still, so CPU time tells what its work takes.
A GPU works beside the thread that asks it: there the clock waits until all that was asked for is
done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dayfly.planning.gpus import profiled_gpu


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of what a function computes.

    Attributes:
        thread: seconds of the training thread.
        process: seconds of all threads of the function.
    """

    thread: Callable[[], float]
    process: Callable[[], float]

    @classmethod
    def of(cls, device: torch.device) -> Clocks:
        """Returns those of a worker whose model is on a device."""
        if device.type == "cpu":
            return cls(time.thread_time, time.process_time)
        module: Any = getattr(torch, device.type, None)
        wait = getattr(module, "synchronize", None)

        def done() -> float:
            if wait is not None:
                wait()
            return time.perf_counter()

        return cls(done, done)


def gpu_of(device: torch.device) -> dict[str, Any] | None:
    """Returns the name and the MiB of a function's GPU; None: it computes on the CPU."""
    if device.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(device)
    return {"name": found.name, "memory_mib": found.total_memory // 2**20}


def check_gpu(wanted: str | None) -> None:
    """Refuses to measure on a GPU of another type, before anything starts.

    Args:
        wanted: the type; None: any.

    Raises:
        RequestError: this machine's first GPU is another. Where it has none, the platform says so.
    """
    if wanted is not None and torch.cuda.device_count():
        profiled_gpu(gpu_of(torch.device("cuda")), wanted)
