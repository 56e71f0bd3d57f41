"""What FuncPipe compares itself with (section 5.1): LambdaML and HybridPS, with and without GA.

    LambdaML     functions of the most memory, each with as many samples as fit; scatter-reduce
    HybridPS     the same, summed by a server: all push, then all pull
    ...-GA       as many functions, one sample at a time, of the least memory that is enough

They compute, then sum: nothing overlaps. A local batch is a power of two, so that it divides the
global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.parts.papers.funcpipe.setting import BASE_MIB, MIB, Setting
from benchmarks.parts.papers.models import BACKWARD, Layer
from benchmarks.parts.papers.sums import sum_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to train a whole model. usd_for_1_s: of functions and server."""

    functions: int
    memory_mib: int
    compute_s: float
    sum_s: float
    usd_for_1_s: float

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.compute_s + self.sum_s

    @property
    def total_mib(self) -> int:
        """Of all functions."""
        return self.functions * self.memory_mib


def peers(model: Layer, batch: int, at: Setting) -> dict[str, Peer]:
    """All four, by name. Raises ValueError if not even one sample fits a function."""
    make = partial(_peer, model, batch, at)
    return {
        "LambdaML": make(server=False, accumulate=False),
        "HybridPS": make(server=True, accumulate=False),
        "LambdaML-GA": make(server=False, accumulate=True),
        "HybridPS-GA": make(server=True, accumulate=True),
    }


def lambda_ml(model: Layer, batch: int, at: Setting) -> Peer:
    """LambdaML alone."""
    return _peer(model, batch, at, server=False, accumulate=False)


def hybrid_ps_s(size_bytes: float, workers: int, at: Setting) -> float:
    """Seconds to sum at a server: 2 max(s/w, n s/W) + 2 t_lat.

    s = size_bytes, n = workers, w and W the links of a worker and of the server, each way: all
    push, then all pull, and either the workers' links are busy or the server's.
    """
    if workers == 1:
        return 0.0
    worker_s = size_bytes / at.rate(1)
    return 2 * max(worker_s, workers * size_bytes / at.server_bytes_per_s) + 2 * at.latency_s


def local_batch(model: Layer, batch: int, at: Setting) -> int:
    """Samples of a function of the most memory."""
    most, local = max(at.memory_mib), batch
    while local > 1 and _needed_mib(model, local, batch // local) > most:
        local //= 2
    if _needed_mib(model, local, batch // local) > most:
        raise ValueError(f"a sample needs more than {most} MiB")
    return local


def _peer(model: Layer, batch: int, at: Setting, *, server: bool, accumulate: bool) -> Peer:
    local = local_batch(model, batch, at)
    workers, memory = batch // local, max(at.memory_mib)
    if accumulate:
        least = _needed_mib(model, 1, workers)
        memory = min(size for size in at.memory_mib if size >= least)
    if server:
        summed_s = hybrid_ps_s(model.parameter_bytes, workers, at)
    else:
        rate = at.rate(workers)
        summed_s = sum_s("scatter-reduce", workers, model.parameter_bytes, rate, at.latency_s)
    return Peer(
        functions=workers,
        memory_mib=memory,
        compute_s=local * (1 + BACKWARD) * model.flops / at.flops(memory),
        sum_s=summed_s,
        usd_for_1_s=workers * at.usd_for_1_s(memory) + (at.server_usd_for_1_s if server else 0.0),
    )


def _needed_mib(model: Layer, samples: int, workers: int) -> float:
    """Equation 3b with one stage."""
    copies = 2 if workers == 1 else 4
    return (samples * model.activation_bytes + copies * model.parameter_bytes) / MIB + BASE_MIB
