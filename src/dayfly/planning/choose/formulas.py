"""The papers' equations on which the planners stand, as pure functions (docs/formulas.md).

FasDL, K-REDUCE (sections IV-B, V and VI):

    S_m, S_d   bytes of the parameters, and of the training data      D  samples of the data
    W, K       workers; aggregators among them, which sum up          M  memory of a worker
    S_s        bytes of a shard, S_m/K
    B^a, B^n   samples of a step for an aggregator, and for another worker;  B^g  for all
    I, E       steps of an epoch, D/B^g; epochs
    tp         bytes a second of a worker, up and down, for a message of S_s; its latency left out
    t_lat      latency of a message (not in the paper)

Hydrozoa, over direct links (sections 3.3, 3.4 and appendix A.1):

    A, B       replicas of the model, and shards of it: A x B workers
    f_j, b_j   seconds of shard j's forward and backward pass of a micro-batch, j = 1 to B
    c_j        seconds of what passes between shards j-1 and j, each way
    M          micro-batches of a replica
    |p_j|, D   bytes of shard j's parameters; bytes a second

They are what the papers say, corrected where they are wrong (docs/errata.md). Equations that only
reproduce the papers' figures are in benchmarks/parts/papers/formulas/.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from dayfly.wire.collectives.cost import AllReduce, over_plain_links
from dayfly.wire.collectives.k_reduce import (
    SCATTER_REDUCE,
    hybrid_costs,
    k_reduce_requests,
    reduce_cost,
)
from dayfly.wire.collectives.link import plain_link
from dayfly.wire.collectives.pipelined import PIPELINED
from dayfly.wire.collectives.ring import ring_s


def aggregate_s(
    size_bytes: float,
    workers: int,
    aggregators: int,
    up_bytes_per_s: float,
    down_bytes_per_s: float,
) -> float:
    """Equation 1b: T_agg = (W - 1)/K S_m/tp_down + 1/K S_m/tp_up."""
    shard_bytes = size_bytes / aggregators
    return (workers - 1) * shard_bytes / down_bytes_per_s + shard_bytes / up_bytes_per_s


def communication_s(
    size_bytes: float,
    workers: int,
    aggregators: int,
    up_bytes_per_s: float,
    down_bytes_per_s: float,
    latency_s: float,
) -> float:
    """Equation 3 corrected: the collective's own cost (`wire.collectives.k_reduce`).

    An aggregator sends itself nothing, and four phases pay a latency. Exact in virtual time if K
    divides the buffer.
    """
    if workers == 1:
        return 0.0
    way_s = size_bytes / up_bytes_per_s, size_bytes / down_bytes_per_s
    cost = partial(reduce_cost, aggregators=aggregators)
    return over_plain_links(cost, workers, *way_s, latency_s)


def loading_s(
    size_bytes: float,
    data_bytes: float,
    others_samples: float,
    global_samples: float,
    down_bytes_per_s: float,
) -> float:
    """Equation 5: T_load = (S_m + S_d B^n/B^g)/tp_down, of a worker that is no aggregator."""
    return (size_bytes + data_bytes * others_samples / global_samples) / down_bytes_per_s


def global_batch(
    workers: int, aggregators: int, aggregators_samples: float, others_samples: float
) -> float:
    """Equation 6: B^g = B^a K + B^n (W - K)."""
    return aggregators_samples * aggregators + others_samples * (workers - aggregators)


def hybrid_step_s(
    aggregator_train_s: float,
    other_train_s: float,
    size_bytes: float,
    workers: int,
    aggregators: int,
    up_bytes_per_s: float,
    down_bytes_per_s: float,
    latency_s: float,
) -> float:
    """Seconds from step to step under the hybrid asynchronous protocol (section IV-B).

    The rounds of both roles (`rounds_of`) with their training: whichever takes longer sets the
    pace. The paper's equation 7 has the aggregator's alone, as equation 16 makes the other no
    longer. Exact for the mean of many steps, if K divides the buffer. K = W is equation 3.
    """
    u, v = (size_bytes / aggregators / rate for rate in (up_bytes_per_s, down_bytes_per_s))
    aggregator_s, other_s = (
        up * u + down * v + late * latency_s for up, down, late in rounds_of(workers, aggregators)
    )
    return max(aggregator_train_s + aggregator_s, other_train_s + other_s)


#: Times of a shard up, a shard down, and a latency, in a round.
Parts = tuple[float, float, float]


def rounds_of(workers: int, aggregators: int) -> tuple[Parts, Parts]:
    """Returns what rounds of an aggregator and of another worker have beside training.

    The collective's own costs (`wire.collectives.k_reduce.hybrid_costs`) are asked for shards up,
    shards down and latencies one by one, which are whole numbers; elementwise. All being
    aggregators (bsp), there is no other, and its round takes nothing.
    """
    length, each = aggregators * 2**10, 2.0**-12  # a shard is 4096 bytes, and takes 1
    found = [
        hybrid_costs(
            AllReduce(members=workers, length=length, link=plain_link(*units)),
            aggregators=aggregators,
        )
        for units in ((each, 0.0, 0.0), (0.0, each, 0.0), (0.0, 0.0, 1.0))
    ]
    up, down, late = ([one.seconds for one in parts] for parts in found)
    return (up[0], down[0], late[0]), (up[1] + up[2], down[1] + down[2], late[1] + late[2])


def run_s(
    load_s: float, train_s: float, communicate_s: float, steps: float, epochs: float
) -> float:
    """Equation 7: T = (T_load + (T_train + T_comm) I) E. A function lives for an epoch."""
    return (load_s + (train_s + communicate_s) * steps) * epochs


def functions_usd(usd_per_unit_s: float, run_s: float, memory: float, workers: int) -> float:
    """Equation 8: C_lambda = pr T M W.

    Args:
        usd_per_unit_s: of memory's unit.
    """
    return usd_per_unit_s * run_s * memory * workers


def requests_usd(
    usd_per_put: float,
    usd_per_get: float,
    workers: int,
    aggregators: int,
    steps: float,
    epochs: float,
) -> float:
    """Equation 9 corrected: C_S3 = E I (pr_put K W + pr_get 2K(W - 1)); E is not in the paper."""
    puts, gets = k_reduce_requests(workers, aggregators)
    return epochs * steps * (usd_per_put * puts + usd_per_get * gets)


def pipeline_s(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    boundaries_s: Sequence[float],
    micro_batches: int,
) -> float:
    """Appendix A.1: sum (f + b) + 2 sum c + (M - 1)(t_B + r_1).

    t_B = max of all f and c, the time between two micro-batches at the last shard's forward pass;
    r_1 = max of all b and c, the same at the first shard's backward pass.

    Args:
        boundaries_s: B-1 of them.
    """
    lag = max(*forward_s, *boundaries_s, 0.0) + max(*backward_s, *boundaries_s, 0.0)
    once = sum(forward_s) + sum(backward_s) + 2 * sum(boundaries_s)
    return once + (micro_batches - 1) * lag


def synchronisation_s(
    shard_bytes: float,
    replicas: int,
    bytes_per_s: float,
    alpha_s_per_byte: float = 0.0,
    beta_s: float = 0.0,
) -> float:
    """Section 3.4 corrected: T^D = 2(A - 1)(|p|/(A D) + alpha |p|/A + beta).

    The ring has as many members as the shard has replicas, A, and sends twice around; the paper
    prints B, its number of shards, and half of the rounds.
    """
    return ring_s(shard_bytes, replicas, bytes_per_s, alpha_s_per_byte, beta_s)


@lru_cache(maxsize=1024)
def gamma_and_delta(replicas: int, *, pipelined: bool) -> tuple[float, float]:
    """How often a stage's bytes pass a link of its functions, and how often a latency."""
    cost = (PIPELINED if pipelined else SCATTER_REDUCE).cost
    assert cost is not None, "dayfly's own state their costs"
    return (
        over_plain_links(cost, replicas, 1.0, 1.0, 0.0),
        over_plain_links(cost, replicas, 0.0, 0.0, 1.0),
    )
