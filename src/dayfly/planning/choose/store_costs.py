"""What a store takes and costs in an epoch, by functions: equations 3 and 5 of CE-scaling.

n: functions; k: steps of an epoch; size_bytes: of the model. All are arrays that broadcast.
"""

from __future__ import annotations

import math

import numpy as np

from dayfly.planning.choose.arrays import Array, on_arrays
from dayfly.planning.choose.stores_problem import StoreOption
from dayfly.planning.formulas.ce_scaling import (
    minutes_usd,
    requests_usd,
    server_sync_s,
    stateless_sync_s,
)


def sync_s(
    store: StoreOption,
    n: Array,
    size_bytes: float,
    *,
    bytes_per_s: float | None = None,
    latency_s: float | None = None,
) -> Array:
    """Seconds of a step's sum (equation 3). bytes_per_s, latency_s: None: the store's.

    A lone function sums nothing up.
    """
    equation = on_arrays(server_sync_s if store.sums else stateless_sync_s)
    rate = store.bytes_per_s if bytes_per_s is None else bytes_per_s
    lag_s = store.latency_s if latency_s is None else latency_s
    return np.where(n > 1, equation(n, size_bytes, rate, lag_s), 0.0)


def asked_usd(store: StoreOption, n: Array, k: Array, size_bytes: float) -> Array:
    """Dollars of requests (equation 5), of which a step has 10n + 2.

    n put a model and 2(n - 1) get one; the others, 7n + 4, ask in vain, and are billed as gets of
    nothing. The price of a request is the mean of these.
    """
    if store.facts is None:
        return np.zeros(np.broadcast(n, k).shape)
    size = math.ceil(size_bytes)
    put_usd, get_usd = store.facts.puts_usd(1, size), store.facts.gets_usd(1, size)
    ask_usd = store.facts.gets_usd(1, 0)
    all_usd = n * put_usd + 2 * (n - 1) * get_usd + (7 * n + 4) * ask_usd
    return np.where(n > 1, on_arrays(requests_usd)(k, n, all_usd / (10 * n + 2)), 0.0)


def bytes_usd(store: StoreOption, n: Array, k: Array, size_bytes: float) -> Array:
    """Dollars of bytes, where a store bills those: n models up and 2(n - 1) down in a step."""
    if store.facts is None:
        return np.zeros(np.broadcast(n, k).shape)
    moved_usd = on_arrays(store.facts.transfer_usd)(n * size_bytes, 2 * (n - 1) * size_bytes)
    return np.where(n > 1, k * moved_usd, 0.0)


def time_usd(store: StoreOption, n: Array, epoch_s: Array, size_bytes: float) -> Array:
    """Dollars of a store's minutes (equation 5), or of what it keeps: n models, at most."""
    if store.facts is None:
        usd = on_arrays(minutes_usd)(epoch_s, store.usd_per_minute)
    else:
        size, facts = math.ceil(size_bytes), store.facts
        each = {one: facts.storage_usd(int(one) * size, 1.0) for one in np.unique(n).tolist()}
        usd = np.vectorize(each.__getitem__, otypes=[float])(n) * epoch_s
    return np.where(n > 1, usd, 0.0)
