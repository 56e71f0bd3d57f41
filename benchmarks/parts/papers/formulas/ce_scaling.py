"""CE-scaling's time and price of an epoch (equations 2 to 5), corrected, for every kind of store.

    D          bytes of the data         M     bytes of the model
    n, m       functions, and the memory of each
    b_z, k     bytes of data that a function uses in a step; steps of an epoch, D/(n b_z)
    B_S3       bytes a second in which a function reads its data
    u(m)       seconds to compute one byte of data with memory m
    b_s, l_s   bytes a second and latency of the store
    t_p        seconds in which a step's gradients are summed up
    p_invk, p_f(m)   dollars of an invocation, and of a second of a function
    p_s        dollars of a request, or of a minute

Equations 2, 4 and 5 as printed count the steps twice: D/n bytes are all that a function computes in
an epoch, and t' is a whole epoch's time already.
"""

from __future__ import annotations


def steps(data_bytes: float, functions: int, batch_bytes: float) -> float:
    """k = D/(n b_z), of an epoch."""
    return data_bytes / (functions * batch_bytes)


def stateless_sync_s(
    functions: int, size_bytes: float, bytes_per_s: float, latency_s: float
) -> float:
    """Equation 3 for S3, DynamoDB and ElastiCache: t_p = (3n - 2)(M/b_s + l_s).

    3n - 2 models move: n up, one of which is the sum, and n - 1 down to the function that sums up,
    and n - 1 down again. They go one after another, as if the store carried one at a time. Where
    only a function's own line is a limit, all-reduce takes (n + 2) M/w (`all_reduce_s`).
    """
    return (3 * functions - 2) * (size_bytes / bytes_per_s + latency_s)


def server_sync_s(functions: int, size_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """Equation 3 for a parameter server on a machine (VM-PS): t_p = (2n - 2)(M/b_s + l_s).

    So n - 1 models go in, and n - 1 out: one function's is there already. dayfly's server is a
    process of its own, to which all n push, and 2n move.
    """
    return (2 * functions - 2) * (size_bytes / bytes_per_s + latency_s)


def epoch_s(
    data_bytes: float,
    functions: int,
    loading_bytes_per_s: float,
    compute_s_per_byte: float,
    steps: float,
    sync_s: float,
) -> float:
    """Equation 2 corrected: t' = D/(n B_S3) + (D/n) u(m) + k t_p."""
    each_bytes = data_bytes / functions
    return each_bytes / loading_bytes_per_s + each_bytes * compute_s_per_byte + steps * sync_s


def requests_usd(steps: float, functions: int, usd_per_request: float) -> float:
    """Equation 5 for stores that bill requests: c_s = k (10n + 2) p_s.

    Their implementation makes 10n + 2 requests a step. dayfly's all-reduce makes 3n - 2
    (`k_reduce_requests`), beside those that ask in vain whether a message is there.
    """
    return steps * (10 * functions + 2) * usd_per_request


def minutes_usd(epoch_s: float, usd_per_minute: float) -> float:
    """Equation 5 for stores that bill time: c_s = (t'/60 + 1) p_s."""
    return (epoch_s / 60 + 1) * usd_per_minute


def epoch_usd(
    functions: int,
    usd_per_invocation: float,
    epoch_s: float,
    usd_per_function_s: float,
    store_usd: float,
) -> float:
    """Equation 4 corrected: c' = n p_invk + n t' p_f(m) + c_s."""
    return functions * usd_per_invocation + functions * epoch_s * usd_per_function_s + store_usd


def halving_shares(stages: int, factor: float = 2.0) -> tuple[float, ...]:
    """Which part of all resources each stage takes where every trial gets as much (section II-C).

    Successive halving: a stage has 1/factor of the trials of the one before.
    """
    trials = [factor**-stage for stage in range(stages)]
    return tuple(one / sum(trials) for one in trials)
