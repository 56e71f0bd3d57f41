"""`kernels` on whole arrays: for NumPy alone. Names, arguments and results are the same."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dayfly.planning.choose.arrays import Array, Bools, Ints
from dayfly.planning.choose.pipelines.kernels import FIELDS

#: Labels that are compared at once.
_BLOCK = 64


def tables(
    stages: Array,
    sides: Array,
    opened: Bools,
    cost: Ints,
    most: float,
    columns: int,
) -> Array:
    """`bound_kernels.tables` in NumPy: for a last layer and an option, all first layers at once."""
    forward, own, lag_f, lag_b, tail = stages
    below_forward, below, below_lag_f, _ = sides
    count, options = below.shape
    last = columns - 1
    found = np.full((3, count + 1, columns), np.inf)
    found[:, 0, :] = 0.0
    fits = opened & (lag_f <= most) & (below_lag_f <= most)
    for r in range(count):
        for k in range(options):
            (first,) = np.nonzero(fits[r, : r + 1, k])
            if not len(first):
                continue
            # Most often these are all the layers from one on, and a slice is quicker.
            q = slice(first[0], r + 1) if len(first) == r + 1 - first[0] else first
            m = min(int(cost[k]), last)
            way, whole = below_forward[q, k], below[q, k] + own[r, q, k]
            b = way + own[r, q, k] + tail[r, q, k]
            adds = np.stack([way + forward[r, q, k], b, b + lag_b[r, q, k]])[:, :, None]
            for to, of in ((slice(m, last), slice(last - m)), (slice(last, None),) * 2):
                before = found[:, q, of]
                reached = before[:1] + adds
                np.maximum(reached[1:], before[1:] + whole[:, None], out=reached[1:])
                here = found[:, r + 1, to]
                np.minimum(here, reached.min(axis=1), out=here)
    return found


def descend(
    found: Array,
    stages: Array,
    sides: Array,
    opened: Bools,
    cost: Ints,
    most: float,
    columns: Ints,
) -> Ints:
    """`bound_kernels.descend` in NumPy: all first layers and options of a stage at once."""
    _, own, lag_f, lag_b, tail = stages
    below_forward, below, below_lag_f, _ = sides
    closed = ~opened | (lag_f > most) | (below_lag_f > most)
    last, paths = found.shape[2] - 1, np.full((len(columns), len(below), 2), -1)
    for path, column in zip(paths, columns.tolist(), strict=True):
        c, end, n = column, len(below), 0
        while end:
            r, q = end - 1, np.arange(end)[:, None]
            at = c - cost if c < last else np.full(len(cost), last)
            fr, k_ = found[0][q, np.maximum(at, 0)], found[2][q, np.maximum(at, 0)]
            b = fr + below_forward[:end] + own[r, :end] + tail[r, :end] + lag_b[r, :end]
            value = np.maximum(k_ + below[:end] + own[r, :end], b)
            value[closed[r, :end] | (at < 0)] = np.inf
            best = int(value.argmin())
            if not np.isfinite(value.flat[best]):
                path[:] = -1
                break
            first, k = divmod(best, len(cost))
            path[n] = r, k
            c, end, n = int(at[k]), first, n + 1
    return paths


def weigh(
    path: Ints,
    stages: Array,
    sides: Array,
    opened: Bools,
    tails: Array,
    uses: Ints,
    deepest: Ints,
    most: Ints,
) -> Array:
    """`bound_kernels.weigh` in NumPy; sums are added in the same order, so to the same bits."""
    r, k = path.T
    q = np.append(r[1:] + 1, 0)
    fits = opened[r, q, k] & (np.arange(1, len(path) + 1) <= deepest[r, q, k])
    if not fits.all() or (uses[:2, k].sum(axis=1) > most).any():
        return np.full(len(tails), np.inf)
    forward, own, lag_f, lag_b, _ = stages[:, r, q, k]
    below_forward, below, below_lag_f, below_lag_b = sides[:, q, k]
    behind = np.maximum.accumulate(np.stack([lag_b, below_lag_b], axis=1).ravel())[::2]
    h, psi = 0.0, np.zeros(len(tails))
    for i, tail in enumerate(tails[:, r, q, k].T):
        h += own[i]
        psi = np.maximum(psi + forward[i], h + behind[i] + tail) + below_forward[i]
        h += below[i]
    taken: Array = psi + max(lag_f.max(), below_lag_f.max())
    return taken


def reach(classes: Array, bounds: Array, tau: Array) -> Array:
    """`bound_kernels.reach` in NumPy: all classes and prices of a boundary at once."""
    return np.stack([_reach(rows, classes, tau) for rows in bounds[:, ::-1, :-1].swapaxes(0, 2)])


def _reach(rows: Array, classes: Array, tau: Array) -> Array:
    """`reach` of one boundary. rows: (3, V, columns), its K, KB and FR by class."""
    columns = rows.shape[2]
    rows = rows + classes[:, :1]
    found = np.full(rows.shape, -np.inf)
    falls = np.ones(columns, dtype=bool)
    falls[1:] = (rows[:, :, 1:] != rows[:, :, :-1]).any(axis=(0, 1))
    for m in np.flatnonzero(falls & np.isfinite(rows).any(axis=(0, 1))):
        np.maximum(found, tau[m : m + columns] - rows[:, :, m, None], out=found)
    above: Array = np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
    return above


def open_stages(
    stages: Array,
    sides: Array,
    opened: Bools,
    cost: Ints,
    most: float,
    limits: Array,
) -> Bools:
    """`bound_kernels.open_stages` in NumPy: all last layers and prices of a first layer at once."""
    forward, own, lag_f, lag_b, tail = stages
    below_forward, below, below_lag_f, below_lag_b = sides
    count, options = below.shape
    columns = limits.shape[2]
    last = columns - 1
    found = np.zeros((count, count, options), dtype=bool)
    suffix = np.full((2, count + 1, columns), np.inf)  # h and psi
    suffix[:, count, 0] = 0.0
    fits = opened & (lag_f <= most) & (below_lag_f <= most)
    for q in reversed(range(count)):
        for k in range(options):
            r = np.flatnonzero(fits[:, q, k])
            if not len(r):
                continue
            m = min(int(cost[k]), last)
            h = suffix[0, r + 1] + own[r, q, k, None]
            lagged = lag_b[r, q, k] + tail[r, q, k]
            psi = np.maximum(suffix[1, r + 1] + forward[r, q, k, None], h + lagged[:, None])
            psi += below_forward[q, k]
            h += below[q, k]
            db = np.maximum(lag_b[r, q, k], below_lag_b[q, k])[:, None]
            to = np.minimum(np.arange(columns) + m, last)
            by_h, by_db, by_psi = limits[q][:, to]
            here = (h < by_h) & (h + db < by_db) & (psi < by_psi)
            found[r, q, k] = here.any(axis=1)
            for row, values in zip(suffix[:, q], (h, psi), strict=True):
                least = np.where(here, values, np.inf).min(axis=0)
                row[m:last] = np.minimum(row[m:last], least[: last - m])
                row[last] = min(row[last], least[last - m :].min())
    return found


def expand(
    q: int,
    stages: Array,
    sides: Array,
    opened: Bools,
    price: Array,
    uses: Ints,
    deepest: Ints,
    labels: Array,
    begins: Ints,
    most: Ints,
    fewest: Ints,
    classes: Array,
    limits: Array,
    tau: Array,
) -> tuple[Array, Ints, int]:
    """`kernels.expand` in NumPy: all labels of an option at once."""
    forward, own, lag_f, lag_b, tail = stages
    below_forward, below, below_lag_f, below_lag_b = sides
    made, origin, left_out = [], [], 0
    for k in range(below.shape[1]):
        at = np.flatnonzero(opened[begins - 1, q, k])
        if not len(at):
            continue
        r, old = begins[at] - 1, labels[at]
        c = old[:, 0] + price[k]
        df = np.maximum(np.maximum(old[:, 3], lag_f[r, q, k]), below_lag_f[q, k])
        h = old[:, 1] + own[r, q, k]
        db = np.maximum(old[:, 4], lag_b[r, q, k])
        psi = np.maximum(old[:, 2] + forward[r, q, k], h + db + tail[r, q, k])
        h += below[q, k]
        psi += below_forward[q, k]
        db = np.maximum(db, below_lag_b[q, k])
        if q:
            v = np.searchsorted(classes[:, 1], df)
            inside = np.minimum(v, len(classes) - 1)
            i = np.minimum(c.astype(np.int64), limits.shape[2] - 1)
            by_h, by_db, by_psi = limits[:, inside, i]
            left = np.minimum(np.minimum(by_h - h, by_db - h - db), by_psi - psi)
            left[v == len(classes)] = -np.inf
        else:
            left = tau[np.minimum(c.astype(np.int64), len(tau) - 1)] - psi - df
        used = old[:, 5:8] + uses[:, k]
        allowed = (used[:, :2] + fewest[:, q] <= most).all(axis=1)
        allowed &= used[:, 2] <= deepest[r, q, k]
        left_out += int(np.count_nonzero((left > 0) & ~allowed))
        keep = (left > 0) & allowed
        made.append(np.stack([c, h, psi, df, db, *used.T, left], axis=1)[keep])
        origin.append(np.stack([np.full(len(at), k), at], axis=1)[keep])
    if not made:
        return np.empty((0, FIELDS)), np.empty((0, 2), dtype=np.int64), left_out
    return np.concatenate(made), np.concatenate(origin), left_out


def undominated(labels: Array, order: Ints, backward: float, by_uses: bool) -> Ints:
    """`kernels.undominated` in NumPy: a block of labels against all that are kept."""
    labels = labels[order]
    latest = np.maximum(labels[:, 2], labels[:, 1] + labels[:, 4] + backward)

    def dominates(of: Ints, others: Ints) -> NDArray[np.bool_]:
        """(of, others): whether label i of the former dominates one of the latter."""
        a, b = labels[of][:, None], labels[others][None]
        lag_f = np.maximum(a[..., 3] - b[..., 3], 0.0)
        taken = a[..., 1] + lag_f + np.maximum(a[..., 4] - b[..., 4], 0.0)
        found: NDArray[np.bool_] = taken <= b[..., 1]
        found &= a[..., 2] + lag_f <= latest[others]
        if by_uses:
            found &= (a[..., 5:8] <= b[..., 5:8]).all(axis=-1)
        return found

    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(labels), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(labels)))
        if len(kept):
            block = block[~dominates(kept, block).any(axis=0)]
        among = np.triu(dominates(block, block), k=1)
        stays = np.ones(len(block), dtype=bool)
        for i in np.flatnonzero(among.any(axis=0)):
            stays[i] = not (among[:, i] & stays).any()
        kept = np.concatenate([kept, block[stays]])
    return order[kept]


def transfers(
    paces: Array, limits: Array, longest: int, between: Array, shards: int, deepest: Ints
) -> Array:
    """`kernels.transfers` in NumPy: all ends and lengths of a shard at once."""
    t, r, s = paces[:, :, :longest]
    allowed = (t <= limits[0]) & (r <= limits[1]) & (s <= limits[2])
    forbidden = np.where(allowed, 0.0, np.inf)
    every, least = np.arange(len(forbidden)), np.full(len(forbidden), np.inf)
    least[0] = 0.0
    reached = np.full(longest + len(between), np.inf)  # nothing ends before the first layer
    (step,) = reached.strides
    by_length = as_strided(reached[longest - 1 :], allowed.shape, (step, -step))
    deepest_least = deepest[:, :longest][allowed].min(initial=shards)
    lengths: list[Ints] = []
    for shard in range(shards):
        reached[longest:] = least[:-1] + between
        taken = by_length + forbidden
        if deepest_least < shards - shard:
            taken[deepest[:, :longest] < shards - shard] = np.inf
        best = taken.argmin(axis=1)
        least = taken[every, best]
        lengths.append(best + 1)
    found = np.full(shards + 1, np.inf)
    found[0] = least[-1]
    if np.isfinite(least[-1]):
        end = len(least) - 1
        for i, length in enumerate(reversed(lengths)):
            found[i + 1] = length[end]
            end -= int(length[end])
    return found
