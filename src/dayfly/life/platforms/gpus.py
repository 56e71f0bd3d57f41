"""The GPUs of this machine, and which function has which.

KubeML, section 3.4.7, "sticky GPU choice": function f has GPU f mod g of g, and so has every
function that follows it under its name. So N functions spread evenly over the GPUs,

    worker   0  1  2  3  4  5        GPU 0: 0 2 4       GPU 1: 1 3 5

and no GPU has more than its even part. A function of share s leaves room for floor(1/s) on a GPU.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping

import torch

from dayfly.catalogue.gpu import CONTEXT_MIB
from dayfly.errors import RequestError
from dayfly.life.failure import origins

_NUMBER = re.compile(r"[0-9]+$")
#: What a share is rounded by: ten tenths are a whole.
_ROUNDING = 1e-9


def gpus_of_this_machine() -> tuple[str, ...]:
    """Each GPU that torch can use, as CUDA_VISIBLE_DEVICES names it; not for a function's parent.

    torch counts them, and not nvidia-smi, because what counts is what torch can use: a build
    without CUDA has none, whatever the machine has. torch asks NVML, but where there is none it
    initialises CUDA. So the zygote must not ask, as no fork of it could use CUDA then; the process
    that starts the zygote may, as what it executes inherits nothing of it.
    """
    return names(torch.cuda.device_count(), os.environ)


def names(count: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the `count` GPUs that a process sees: numbers, or UUIDs if it was given such.

    CUDA_VISIBLE_DEVICES counts up to its first entry that is none of a device, so a process's
    devices are the first ones of the list.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(number) for number in range(count))
    return tuple(name.strip() for name in visible.split(",")[:count])


def gpu_of(function: str, gpus: int) -> int:
    """The GPU of a function, of so many: by the number at the end of its name, or else its name."""
    return number_of(function) % gpus


def number_of(function: str) -> int:
    """The number at the end of a function's name, or else one that follows from its name."""
    found = _NUMBER.search(function)
    return int(found[0]) if found else zlib.crc32(function.encode())


def fit_on_one(share: float) -> int:
    """How many functions of this share fit on one GPU."""
    return math.floor(1 / share + _ROUNDING)


def full(shares: Iterable[float]) -> bool:
    """Whether these are more than one GPU."""
    return math.fsum(shares) > 1 + _ROUNDING


def check_gpus(share: float, functions: int, gpus: int) -> None:
    """Raise RequestError if so many functions of this share cannot be had at once."""
    if not gpus:
        raise RequestError(f"--gpu {share:g}: this machine has no GPU that torch can use")
    room = fit_on_one(share) * gpus
    if functions > room:
        has = "one GPU" if gpus == 1 else f"{gpus} GPUs"
        raise RequestError(
            f"--gpu {share:g} for {functions} functions needs "
            f"{math.ceil(functions / fit_on_one(share))} GPUs, and this machine has {has}: "
            f"give a share of at most 1/{math.ceil(functions / gpus)}, or at most {room} workers"
        )


def allocator_fraction(share: float, total_bytes: int) -> float:
    """The part of a GPU that torch's allocator may take, so that all the process takes the share.

    A process that has the GPU alone may take what there is. Raises RuntimeError, as CUDA does for
    want of memory, if the share is no more than what each process takes anyway.
    """
    if share == 1:
        return 1.0
    own_bytes = share * total_bytes - CONTEXT_MIB * 2**20
    if own_bytes <= 0:
        raise RuntimeError(
            f"CUDA out of memory: {share:g} of this GPU is {share * total_bytes / 2**20:.0f} MiB, "
            f"and CUDA itself takes up to {CONTEXT_MIB} MiB in each process"
        )
    return own_bytes / total_bytes


def become(name: str, share: float) -> None:
    """Let this process see one GPU and take its share of it, from when CUDA is initialised on.

    To be called before that; initialises nothing. The processes that it starts see the same GPU,
    but nothing holds them to the share.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    # torch calls it as soon as CUDA is initialised, before anything is allocated.
    torch.cuda._lazy_call(lambda: _hold_to(share))  # type: ignore[no-untyped-call]


def _hold_to(share: float) -> None:
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(allocator_fraction(share, total_bytes), 0)


def is_gpu_memory_error(error: BaseException) -> bool:
    """Whether an exception, or what it came from, says that a GPU's memory did not suffice."""
    return any(
        isinstance(one, torch.OutOfMemoryError)
        or (isinstance(one, RuntimeError) and any(sign in str(one) for sign in _SIGNS))
        for one in origins(error)
    )


#: Of torch, CUDA's runtime and its libraries.
_SIGNS = ("CUDA out of memory", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
