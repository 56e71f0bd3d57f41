"""FasDL's model of K-REDUCE (section V) and its batch sizes (sections IV-B and VI).

    S_m, S_d   bytes of the parameters, and of the training data      D  samples of the data
    W, K       workers; aggregators among them, which sum up          M  memory of a worker
    S_s        bytes of a shard, S_m/K
    B^a, B^n   samples of a step for an aggregator, and for another worker;  B^g  for all
    I, E       steps of an epoch, D/B^g; epochs
    tp         bytes a second of a worker, up and down, for a message of S_s; its latency left out
    a, b, m    coefficients of a step's training time
    t_lat      latency of a message (not in the paper)

Equation 2, tp = p (1 - exp(-t S_s)), is `figures.Transfer.throughput`, and equation 4,
T_train = a (B + b)/(M + m), is `profile.Fit.step_s`. Equations 1 stand here as printed, and
`communication_s` is what K-REDUCE really takes, by `collectives.k_reduce`.
"""

from __future__ import annotations

from collections.abc import Callable

from dayfly.wire.collectives.k_reduce import k_reduce_bytes, k_reduce_requests


def upload_s(size_bytes: float, up_bytes_per_s: float) -> float:
    """Equation 1a: T_up = S_m/tp_up."""
    return size_bytes / up_bytes_per_s


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


def download_s(size_bytes: float, down_bytes_per_s: float) -> float:
    """Equation 1c: T_down = S_m/tp_down."""
    return size_bytes / down_bytes_per_s


def printed_communication_s(
    size_bytes: float,
    workers: int,
    aggregators: int,
    up_bytes_per_s: float,
    down_bytes_per_s: float,
) -> float:
    """Equation 3 as printed: T_comm = T_up + T_agg + T_down = C_1/K + C_2, without latencies.

    An upper bound, but for the latencies: see `communication_s`.
    """
    up, down = up_bytes_per_s, down_bytes_per_s
    aggregated_s = aggregate_s(size_bytes, workers, aggregators, up, down)
    return upload_s(size_bytes, up) + aggregated_s + download_s(size_bytes, down)


def communication_s(
    size_bytes: float,
    workers: int,
    aggregators: int,
    up_bytes_per_s: float,
    down_bytes_per_s: float,
    latency_s: float,
) -> float:
    """Equation 3 corrected: an aggregator sends itself nothing, and four phases pay a latency.

    With u = S_s/tp_up and v = S_s/tp_down, an aggregator has uploaded after (K-1) u, and summed up
    after (W-1) v more. Only the last one, in charge of the shard that others upload last, may
    have to wait for that: its parts of aggregators take (K-1) v, and those of the W-K others are
    there a u later. It uploads its sum in u, and reads K-1 others; who aggregates nothing reads K.
    With tp_up = tp_down that is `k_reduce_s`. Exact in virtual time if K divides the buffer.
    """
    n, k = workers, aggregators
    if n == 1:
        return 0.0
    u, v = size_bytes / k / up_bytes_per_s, size_bytes / k / down_bytes_per_s
    summed = (k - 1) * u + (n - 1) * v + u
    if n == k:
        return summed + (k - 1) * v + 4 * latency_s
    last = (k - 1) * u + max(u, (k - 1) * v) + (n - k) * v + u
    return max(summed + k * v, last + max(1, k - 1) * v) + 4 * latency_s


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

    Aggregators wait for the sums of their step; the others put their shards, take the sums of the
    step before (their staleness is 1) and go on. Whichever takes longer sets the pace:

        aggregator   B^a  | K-1 shards up | W-1 parts down | sum up | K-1 sums down |
        other        B^n      | K shards up | K sums down |

    The paper's equation 7 has the first alone, as equation 16 makes the second no longer. Exact for
    the mean of many steps, if K divides the buffer and K < W; W = K is no hybrid, but `k_reduce`.
    """
    k = aggregators
    u, v = size_bytes / k / up_bytes_per_s, size_bytes / k / down_bytes_per_s
    aggregator_s = k * u + (workers - 1 + k - 1) * v + (4 if k > 1 else 2) * latency_s
    other_s = k * (u + v) + 2 * latency_s
    return max(aggregator_train_s + aggregator_s, other_train_s + other_s)


def others_batch(
    train_s: Callable[[int], float],
    aggregators_samples: int,
    aggregated_s: float,
    *,
    workers: int,
    aggregators: int,
    most_samples: int,
    most_global_samples: int,
) -> int:
    """Equation 16 as a cap: the most samples B^n of a step for who does not aggregate.

    T_train(B^n) <= T_train(B^a) + T_agg, B^n <= what memory allows, and B^g <= its limit, rounded
    down. train_s: rises with samples, such as `Fit.step_s`. aggregated_s: T_agg. most_samples:
    by memory. Raises ValueError if there are no such workers, or no samples for them.
    """
    others = workers - aggregators
    left = most_global_samples - aggregators * aggregators_samples
    if others < 1 or left < others:
        raise ValueError(
            f"{workers} workers, {aggregators} of them aggregators with {aggregators_samples} "
            f"samples each: none of {most_global_samples} samples are left for others"
        )
    limit_s = train_s(aggregators_samples) + aggregated_s
    low, high = 0, min(most_samples, left // others)
    while low < high:  # the last of low to high that keeps the limit
        middle = (low + high + 1) // 2
        if train_s(middle) <= limit_s:
            low = middle
        else:
            high = middle - 1
    return low


def run_s(
    load_s: float, train_s: float, communicate_s: float, steps: float, epochs: float
) -> float:
    """Equation 7: T = (T_load + (T_train + T_comm) I) E. A function lives for an epoch."""
    return (load_s + (train_s + communicate_s) * steps) * epochs


def functions_usd(usd_per_unit_s: float, run_s: float, memory: float, workers: int) -> float:
    """Equation 8: C_lambda = pr T M W. usd_per_unit_s: of memory's unit."""
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


def transfer_usd(
    usd_per_byte: float,
    data_bytes: float,
    size_bytes: int,
    workers: int,
    steps: float,
    epochs: float,
) -> float:
    """Equation 10: C_EC = pr E (2 S_d + I S_m (3W - 2)), where bytes are billed."""
    moved = sum(k_reduce_bytes(size_bytes, workers))
    return usd_per_byte * epochs * (2 * data_bytes + steps * moved)


def degradation(found_usd: float, best_usd: float) -> float:
    """Section VIII-C: by which part a plan costs more than the best."""
    return found_usd / best_usd - 1
