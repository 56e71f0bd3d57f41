"""What each function of a run gets: what was asked for, over what the imitated platform gives."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace

from dayfly.errors import RequestError
from dayfly.life.checkpoints import Checkpoint, Part
from dayfly.life.platforms.base import Limits
from dayfly.runs.settings import Settings
from dayfly.runs.task import Task
from dayfly.wire.shaping import Rates


@dataclass(frozen=True, slots=True)
class Allotment:
    """limits: of the function, kept by where it runs. rates: of its way to the store; None: any."""

    limits: Limits
    rates: Rates | None


def allotted(settings: Settings) -> Allotment:
    """What these settings allot."""
    rates = Rates(
        up_bytes_per_s=_times(1e6, settings.uplink_mb_per_s),
        down_bytes_per_s=_times(1e6, settings.downlink_mb_per_s),
        latency_s=(settings.latency_ms or 0.0) / 1000,
    )
    payload_bytes = _times(1000, settings.payload_kb)
    limits = Limits(
        memory_mib=settings.memory_mib,
        lifetime_s=settings.lifetime_s,
        cpu_cores=settings.cpu_cores,
        cold_start_s=settings.cold_start_s or 0.0,
        payload_bytes=None if payload_bytes is None else max(1, int(payload_bytes)),
    )
    return Allotment(limits, rates if rates.limited else None)


def check_task(task: Task, payload_bytes: int | None) -> None:
    """Raise RequestError if a worker's task may become longer than a payload can be.

    task: as it is now. What it may become: that of the last worker, at the last step, with a
    checkpoint that all workers wrote.
    """
    if payload_bytes is None:
        return
    size = len(json.dumps(_largest(task).dump()).encode())
    if size > payload_bytes:
        raise RequestError(
            f"payloads of {payload_bytes / 1000:g} KB are too small: what a worker is told when it "
            f"starts takes up to {size / 1000:.1f} KB here; give --payload {-(-size // 1000)} or "
            "more, or use fewer workers"
        )


def _largest(task: Task) -> Task:
    step, size, digest = 10**9 - 1, 10**12 - 1, "f" * 32
    ranks = range(task.world_size)
    names = [f"checkpoint/{step}/part-{rank}-of-{task.world_size}" for rank in ranks]
    parts = tuple(Part(name, size, digest) for name in [*names, f"checkpoint/{step}/tree.json"])
    return replace(
        task,
        rank=task.world_size - 1,
        attempt=10**4 - 1,
        checkpoint=Checkpoint(step, parts),
        trimmed_step=step,
        checkpoint_age_s=123456.78901234567,
    )


def crowding(workers: int, cpu_cores: float | None) -> str | None:
    """Says it if this machine has too few cores for all shares at once."""
    cores = len(os.sched_getaffinity(0))
    if cpu_cores is None or workers * cpu_cores <= cores:
        return None
    return (
        f"{workers} functions of {cpu_cores:.3g} CPUs want {workers * cpu_cores:.3g} cores, and "
        f"this machine has {cores}: they may be slower than asked for"
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value
