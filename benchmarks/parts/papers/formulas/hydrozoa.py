"""Hydrozoa's time of a step (sections 3.3, 3.4 and appendix A.1), prices, throughput per dollar.

    A, B       replicas of the model, and shards of it: A x B workers
    f_j, b_j   seconds of shard j's forward and backward pass of a micro-batch, j = 1 to B
    c_j        seconds of what passes between shards j-1 and j, each way: a_(j-1)/D
    a_j, D     bytes of the output of shard j's last layer, of a micro-batch; bytes a second
    M          micro-batches of a replica
    |p_j|      bytes of shard j's parameters
    alpha, beta   seconds a byte and a round that a ring takes beside sending, fitted

Messages go from worker to worker and take no time at their reader, nor any latency. A gradient is
as large as the activation that it belongs to. In virtual time both is exact for such links and
sizes; over a store a message goes up, then down, and FuncPipe's form holds (`formulas.funcpipe`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dayfly.catalogue.prices import FunctionPrices


def boundary_s(activation_bytes: float, bytes_per_s: float) -> float:
    """Section 3.3: c = a/D."""
    return activation_bytes / bytes_per_s


def iteration_s(pipeline_s: float, synchronisations_s: Sequence[float]) -> float:
    """Section 3.4: T = max over j of T^M + T^D_j. synchronisations_s: of each shard."""
    return pipeline_s + max(synchronisations_s)


def worker_usd_per_hour(
    prices: FunctionPrices, vcpus: float, memory_gb: float, gpu_share: float = 1.0
) -> float:
    """Section 5.3, with table 3: what a worker costs an hour."""
    return 3600 * prices.usd_for_1_s(1024 * memory_gb, vcpus, gpu_share)


def samples_per_usd(samples_per_s: float, usd_per_hour: float) -> float:
    """Section 5.1: throughput per dollar, T/C with C by the second."""
    return samples_per_s / (usd_per_hour / 3600)
