"""FasDL's model of K-REDUCE (section V) and its batch sizes (sections IV-B and VI).

    S_m, S_d   bytes of the parameters, and of the training data      D  samples of the data
    W, K       workers; aggregators among them, which sum up          M  memory of a worker
    S_s        bytes of a shard, S_m/K
    B^a, B^n   samples of a step for an aggregator, and for another worker;  B^g  for all
    I, E       steps of an epoch, D/B^g; epochs
    tp         bytes a second of a worker, up and down, for a message of S_s; its latency left out
    a, b, m    coefficients of a step's training time
    t_lat      latency of a message (not in the paper)

Equation 2, tp = p (1 - exp(-t S_s)), is `profile.Transfer.throughput`, and equation 4,
T_train = a (B + b)/(M + m), is `profile.Fit.step_s`. Equations 1 stand here as printed, and
`communication_s` is what K-REDUCE really takes, by `collectives.k_reduce`.
"""

from __future__ import annotations

from collections.abc import Callable

from dayfly.planning.choose.formulas import aggregate_s
from dayfly.wire.collectives.k_reduce import k_reduce_bytes


def upload_s(size_bytes: float, up_bytes_per_s: float) -> float:
    """Equation 1a: T_up = S_m/tp_up."""
    return size_bytes / up_bytes_per_s


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
