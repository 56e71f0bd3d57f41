"""The loops of the search, one number after another: for numba; `vectorised` is the same on arrays.

    q           layers before a boundary: 0 to q-1 are below it, a prefix; l: a label's first layer
    c           price of stages, in units; column `units` - 1 of a table: any price
    D           most forward lag of a class of plans
    FR, KB, K   least seconds with which a prefix can still be done; see `bounds`
    h, psi      a label's: see `labels`
    Df, Db      largest forward and backward lag of a label
    tau         what a step has to stay below at a price; see `incumbents`

Arrays of stages are (L, L, K), by last layer, first layer and option; see `model`.
"""

from __future__ import annotations

import numpy as np

from dayfly.plan.choose.arrays import Array, Ints


def tables(
    forward: Array,
    own: Array,
    lag_f: Array,
    lag_b: Array,
    tail: Array,
    below_forward: Array,
    below: Array,
    below_lag_f: Array,
    cost: Ints,
    most: float,
    columns: int,
) -> Array:
    """FR, KB, K (3, L + 1, columns) of stages whose forward lag is `most` (D) at most.

    cost: units of each option. Last column: of any price.
    """
    count, options = below.shape
    last = columns - 1
    found = np.full((3, count + 1, columns), np.inf)
    found[:, 0, :] = 0.0
    fr, kb, k_ = found[0], found[1], found[2]
    for r in range(count):
        for l in range(r + 1):
            if fr[l, last] == np.inf:
                continue
            for k in range(options):
                if lag_f[r, l, k] > most or below_lag_f[l, k] > most:
                    continue
                m = cost[k]
                f = below_forward[l, k] + forward[r, l, k]
                whole = below[l, k] + own[r, l, k]
                b = below_forward[l, k] + own[r, l, k] + tail[r, l, k]
                lagged = b + lag_b[r, l, k]
                # The last column reads its own kind; the others, what is left of their price.
                fr0, kb0, k0 = fr[l, last], kb[l, last], k_[l, last]
                fr[r + 1, last] = min(fr[r + 1, last], fr0 + f)
                kb[r + 1, last] = min(kb[r + 1, last], max(kb0 + whole, fr0 + b))
                k_[r + 1, last] = min(k_[r + 1, last], max(k0 + whole, fr0 + lagged))
                fr_to, kb_to, k_to = fr[r + 1, m:last], kb[r + 1, m:last], k_[r + 1, m:last]
                fr_of, kb_of, k_of = fr[l], kb[l], k_[l]
                for c in range(last - m):
                    x = fr_of[c] + f
                    y, y2 = kb_of[c] + whole, fr_of[c] + b
                    z, z2 = k_of[c] + whole, fr_of[c] + lagged
                    y = y if y > y2 else y2
                    z = z if z > z2 else z2
                    fr_to[c] = x if x < fr_to[c] else fr_to[c]
                    kb_to[c] = y if y < kb_to[c] else kb_to[c]
                    k_to[c] = z if z < k_to[c] else k_to[c]
    return found


def can_improve(
    q: int,
    c: float,
    h: float,
    psi: float,
    df: float,
    db: float,
    classes: Array,
    bounds: Array,
    tau: Array,
) -> bool:
    """Whether some prefix of q layers may make a label a plan that is better than what is known.

    classes: (V, 2), more than, and at most, which forward lag. bounds: (V, 3, L + 1, columns), the
    tables of each class.
    """
    last, end = bounds.shape[3] - 1, len(tau) - 1
    for v in range(len(classes)):
        if classes[v, 1] < df:
            continue
        lag = max(df, classes[v, 0])
        fr, kb, k_ = bounds[v, 0, q], bounds[v, 1, q], bounds[v, 2, q]
        least = max(h + kb[last] + db, h + k_[last], psi + fr[last]) + lag
        # Bounds and tau both fall with m. Where a bound is not below tau, it has to fall below that
        # very tau first: all m before can be passed over.
        start, m = int(c), 0
        limit = tau[min(start, end)]
        while least < limit:
            past = m
            for row, most in ((kb, limit - lag - h - db), (k_, limit - lag - h), (fr, limit - lag - psi)):
                if row[m] >= most:
                    low, high = m, last
                    while high - low > 1:
                        middle = (low + high) // 2
                        if row[middle] >= most:
                            low = middle
                        else:
                            high = middle
                    m = high
            limit = tau[min(start + m, end)]
            if max(h + kb[m] + db, h + k_[m], psi + fr[m]) + lag < limit:
                return True
            if m == past:
                m += 1
                if m > last: 
                    break
                limit = tau[min(start + m, end)]
    return False


def slacks(q: int, labels: Array, classes: Array, bounds: Array, tau: Array) -> Array:
    """By how much each label may improve on what is known: its largest tau over bound, or 1."""
    last, end = bounds.shape[3] - 1, len(tau) - 1
    found = np.ones(len(labels))
    for i in range(len(labels)):
        c, h, psi = labels[i, 0], labels[i, 1], labels[i, 2]
        df, db = labels[i, 3], labels[i, 4]
        for v in range(len(classes)):
            if classes[v, 1] < df:
                continue
            lag = max(df, classes[v, 0])
            fr, kb, k_ = bounds[v, 0, q], bounds[v, 1, q], bounds[v, 2, q]
            for m in range(0, last + 1, 4):
                limit = tau[min(int(c) + m, end)]
                least = max(h + kb[m] + db, h + k_[m], psi + fr[m]) + lag
                if least < limit:
                    found[i] = max(found[i], limit / least)
    return found


def reach(q: int, classes: Array, bounds: Array, tau: Array) -> Array:
    """Most h, h + Db and psi of a label of price c that may improve: (3, V, columns), by c.

    Of classes v and above, each of the three by itself: what is not below them all cannot. What is,
    may.
    """
    count, columns = bounds.shape[0], bounds.shape[3]
    found = np.full((3, count, columns), -np.inf)
    for v in range(count - 1, -1, -1):
        for kind, table in ((0, 2), (1, 1), (2, 0)):
            most = found[kind, v]
            if v + 1 < count:
                most[:] = found[kind, v + 1]
            row = bounds[v, table, q]
            before = np.inf
            for m in range(columns):
                if row[m] < before:
                    before = row[m]
                    least = before + classes[v, 0]
                    limits = tau[m:m + columns]
                    for c in range(columns):
                        x = limits[c] - least
                        most[c] = x if x > most[c] else most[c]
    return found


def expand(
    l: int,
    forward: Array,
    own: Array,
    lag_f: Array,
    lag_b: Array,
    tail: Array,
    below_forward: Array,
    below: Array,
    below_lag_f: Array,
    below_lag_b: Array,
    price: Array,
    replicas: Ints,
    starts: Ints,
    labels: Array,
    most_functions: int,
    least_functions: int,
    classes: Array,
    bounds: Array,
    tau: Array,
) -> tuple[Array, Ints]:
    """All labels whose first stage begins at layer l, that may become better than what is known.

    labels: (n, 6) of c, h, psi, Df, Db, functions; those that begin at layer q are
    starts[q]:starts[q + 1] from the end, see `labels`. Gives the new ones, (m, 6), and (m, 2) of
    their options and of the label that each goes on from.
    """
    count, options = below.shape
    room = 1024
    made = np.empty((room, 6))
    origin = np.empty((room, 2), dtype=np.int64)
    n = 0
    limits = reach(l, classes, bounds, tau)
    columns = bounds.shape[3]
    for r in range(l, count):
        for k in range(options):
            if lag_f[r, l, k] == np.inf:
                continue
            for at in range(starts[r + 1, 0], starts[r + 1, 1]):
                functions = labels[at, 5] + replicas[k]
                if functions + (least_functions if l else 0) > most_functions:
                    continue
                c = labels[at, 0] + price[k]
                df = max(labels[at, 3], lag_f[r, l, k], below_lag_f[l, k])
                h = labels[at, 1] + own[r, l, k]
                db = max(labels[at, 4], lag_b[r, l, k])
                psi = max(labels[at, 2] + forward[r, l, k], h + db + tail[r, l, k])
                h += below[l, k]
                psi += below_forward[l, k]
                db = max(db, below_lag_b[l, k])
                if l:
                    v = 0
                    while v < len(classes) and classes[v, 1] < df:
                        v += 1
                    if v == len(classes):
                        continue
                    at_c = min(int(c), columns - 1)
                    if h >= limits[0, v, at_c] or h + db >= limits[1, v, at_c] or psi >= limits[2, v, at_c]:
                        continue
                    if not can_improve(l, c, h, psi, df, db, classes, bounds, tau):
                        continue
                elif psi + df >= tau[min(int(c), len(tau) - 1)]:
                    continue
                if n == room:
                    room *= 2
                    more, more_origin = np.empty((room, 6)), np.empty((room, 2), dtype=np.int64)
                    more[:n], more_origin[:n] = made, origin
                    made, origin = more, more_origin
                made[n, 0], made[n, 1], made[n, 2] = c, h, psi
                made[n, 3], made[n, 4], made[n, 5] = df, db, functions
                origin[n, 0], origin[n, 1] = k, at
                n += 1
    return made[:n], origin[:n]


def undominated(labels: Array, backward: float, by_functions: bool) -> Ints:
    """Which labels of one boundary to keep; they come by rising c.

    backward: least seconds of all layers below, of one micro-batch. by_functions: whether fewer
    functions are an advantage.
    """
    kept = np.empty(len(labels), dtype=np.int64)
    n = 0
    for i in range(len(labels)):
        h, psi, df, db = labels[i, 1], labels[i, 2], labels[i, 3], labels[i, 4]
        latest = max(psi, h + db + backward)
        dominated = False
        for at in range(n):
            j = kept[at]
            lag_f = max(labels[j, 3] - df, 0.0)
            if (
                labels[j, 1] + lag_f + max(labels[j, 4] - db, 0.0) <= h
                and labels[j, 2] + lag_f <= latest
                and not (by_functions and labels[j, 5] > labels[i, 5])
            ):
                dominated = True
                break
        if not dominated:
            kept[n] = i
            n += 1
    return kept[:n]


def descend(
    found: Array,
    forward: Array,
    own: Array,
    lag_f: Array,
    lag_b: Array,
    tail: Array,
    below_forward: Array,
    below: Array,
    below_lag_f: Array,
    below_lag_b: Array,
    cost: Ints,
    most: float,
    column: int,
) -> tuple[float, Ints]:
    """A plan that K leads to from its end: its seconds, and (stages, 2) of last layer and option.

    From the last stage to the first. As K takes the least of both of its sides apart, the plan may
    take more than K says. No stages: nothing fits. found: `tables` of `most`.
    """
    count, options = below.shape
    fr, k_ = found[0], found[2]
    last, c, end, n = k_.shape[1] - 1, column, count, 0
    path = np.empty((count, 2), dtype=np.int64)
    h = psi = df = db = 0.0
    while end:
        best, best_l, best_k, best_c = np.inf, -1, -1, 0
        r = end - 1
        for l in range(end):
            for k in range(options):
                if lag_f[r, l, k] > most or below_lag_f[l, k] > most:
                    continue
                if c < last and cost[k] > c:
                    continue
                at = c - cost[k] if c < last else last
                lagged = fr[l, at] + below_forward[l, k] + own[r, l, k] + tail[r, l, k]
                value = max(k_[l, at] + below[l, k] + own[r, l, k], lagged + lag_b[r, l, k])
                if value < best:
                    best, best_l, best_k, best_c = value, l, k, at
        if best_l < 0:
            return np.inf, path[:0]
        l, k = best_l, best_k
        df = max(df, lag_f[r, l, k], below_lag_f[l, k])
        h += own[r, l, k]
        db = max(db, lag_b[r, l, k])
        psi = max(psi + forward[r, l, k], h + db + tail[r, l, k]) + below_forward[l, k]
        h += below[l, k]
        db = max(db, below_lag_b[l, k])
        path[n, 0], path[n, 1] = r, k
        n += 1
        c, end = best_c, l
    return psi + df, path[:n]
