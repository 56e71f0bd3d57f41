"""What each function of a run gets: what was asked for, over what the imitated platform gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.runs.functions import FunctionSettings, catalogue
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.shaping import Rates


@dataclass(frozen=True, slots=True)
class FunctionResources:
    """What a function gets, and who keeps it to that.

    Attributes:
        spec: limits that the platform imposes.
        rates: of the links to the store, which the worker imposes; None: not limited.
    """

    spec: FunctionSpec
    rates: Rates | None


def resources_of(settings: FunctionSettings) -> FunctionResources:
    """What these settings allot, with the catalogue that they name. Raises as `resources` does."""
    return resources_under(settings, imitated_by(settings))


def imitated_by(settings: FunctionSettings) -> FunctionPlatform | None:
    """Returns the platform that is imitated, by the catalogue that the settings name.

    Args:
        settings: of functions.

    Raises:
        RequestError: the catalogue has none of that name.
    """
    name = settings.imitate
    return None if name is None else catalogue(settings).platform(name)


def resources_under(
    settings: FunctionSettings,
    imitated: FunctionPlatform | None = None,
    *,
    of_mib: int | None = None,
) -> FunctionResources:
    """What these settings allot: what they ask for, and otherwise what the imitated platform gives.

    of_mib: of functions of this memory, where kinds differ in it; None: of the settings' own.

    That is its lifetime and payload, and vCPUs and bandwidth by memory. Latency is the store's, and
    cold starts do not happen at every start there: both only come if they are asked for.

    Raises RequestError for what the platform does not have, without a memory size, and for a
    platform with GPUs, unless the functions are to have a share of one that it has.
    """
    memory_mib = settings.memory_mib if of_mib is None else of_mib
    lifetime_s, cpu_cores = settings.lifetime_s, settings.cpu_cores
    up_bytes_per_s = _times(1e6, settings.uplink_mb_per_s)
    down_bytes_per_s = _times(1e6, settings.downlink_mb_per_s)
    payload_bytes = _times(1000, settings.payload_kb)
    if imitated is not None:
        if imitated.gpu is not None and settings.gpu_share is None:
            raise RequestError(
                f"--imitate {imitated.name}: its functions have GPUs and these have none: give "
                "--gpu, imitate one without, or see the bill afterwards by dayfly report DIR "
                f"--prices {imitated.name}"
            )
        if memory_mib is None:
            raise RequestError(
                f"--imitate {imitated.name} needs --memory or --stage-memory, as CPU and "
                "bandwidth come with it: "
                f"give MiB, {imitated.memory_min_mib or 1} to {imitated.memory_max_mib or 'any'}"
            )
        imitated.check(memory_mib=memory_mib, lifetime_s=lifetime_s, gpu_share=settings.gpu_share)
        if settings.gpu_share is not None:
            imitated.check(gpu_share=settings.gpu_share, vcpus=cpu_cores)
        lifetime_s = lifetime_s or imitated.lifetime_max_s
        cpu_cores = cpu_cores or imitated.vcpus(memory_mib)
        up_bytes_per_s = up_bytes_per_s or imitated.up_bytes_per_s(memory_mib)
        down_bytes_per_s = down_bytes_per_s or imitated.down_bytes_per_s(memory_mib)
        payload_bytes = payload_bytes or imitated.payload_sync_bytes
    rates = Rates(
        up_bytes_per_s=up_bytes_per_s,
        down_bytes_per_s=down_bytes_per_s,
        latency_s=(settings.latency_ms or 0.0) / 1000,
    )
    spec = FunctionSpec(
        memory_mib=memory_mib,
        lifetime_s=lifetime_s,
        cpu_cores=cpu_cores,
        cold_start_s=settings.cold_start_s or 0.0,
        payload_bytes=None if payload_bytes is None else max(1, int(payload_bytes)),
        gpu_share=settings.gpu_share,
    )
    return FunctionResources(spec, rates if rates.limited else None)


def vcpus_sold(settings: FunctionSettings) -> float | None:
    """Returns the vCPUs that functions are billed for; None: what comes with their memory."""
    return settings.cpu_cores if settings.imitate is not None else None


def check_payload(told: Mapping[str, Any], payload_bytes: int | None, instead: str) -> None:
    """Raise RequestError if a payload cannot be so long.

    Args:
        told: to a worker, at most.
        instead: what else to do than to give more.
    """
    size = len(json.dumps(told).encode())
    if payload_bytes is not None and size > payload_bytes:
        raise RequestError(
            f"payloads of {payload_bytes / 1000:g} KB are too small: what a worker is told when it "
            f"starts takes up to {size / 1000:.1f} KB here; give --payload {-(-size // 1000)} or "
            f"more, or {instead}"
        )


def in_words(resources_of: FunctionResources, name: str) -> str:
    """What an imitation means: `imitating aws-lambda: 1024 MiB, 0.579 CPUs, ...`."""
    spec, rates = resources_of.spec, resources_of.rates or Rates()
    up, down = rates.up_bytes_per_s, rates.down_bytes_per_s
    given = {
        "CPU": None if spec.cpu_cores is None else f"{spec.cpu_cores:.3g} CPUs",
        "lifetime": None if spec.lifetime_s is None else f"{spec.lifetime_s:g} s to live",
        "uplink": None if up is None else f"{up / 1e6:g} MB/s up",
        "downlink": None if down is None else f"{down / 1e6:g} MB/s down",
        "payload": None
        if spec.payload_bytes is None
        else f"payloads of {spec.payload_bytes / 1000:g} KB",
    }
    known = [f"{spec.memory_mib} MiB", *(words for words in given.values() if words is not None)]
    if spec.gpu_share is not None:
        known.insert(1, f"{spec.gpu_share:g} of a GPU")
    missing = [what for what, words in given.items() if words is None]
    said = f"imitating {name}: {', '.join(known)}"
    return (
        f"{said}; not limited, as the catalogue lacks it: {', '.join(missing)}" if missing else said
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value
