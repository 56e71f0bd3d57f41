"""The loops of the search, one number after another: for numba; `vectorised` is the same on arrays.

    q           layers below a boundary: those of a prefix; the first layer of the stage above it
    r, k        last layer of a stage, and its option
    c, m        price of stages, and of a prefix, in units (`units`)
    FR, KB, K   least seconds with which a prefix can still be done (`bounds`)
    h, psi      of a label; Df, Db: its largest forward and backward lag (`labels`)
    v           class of plans, by their forward lag: rows of (more than, at most)
    tau         what a step has to stay below, by price (`incumbents`)

Arrays of stages are (L, L, K), by last layer, first layer and option, or (L, K), by first layer and
option (`model`). Last column of a table: of any price; of the others, of so many units at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.choose.arrays import Array, Ints

#: Columns of a label: c, h, psi, Df, Db, its functions, vCPUs and stages, where these count, and
#: what it has left (`expand`).
FIELDS = 9


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
    """FR, KB, K (3, L + 1, columns) of stages whose forward lag is `most` at most.

    Args:
        cost: units of each option.
    """
    count, options = below.shape
    last = columns - 1
    found = np.full((3, count + 1, columns), np.inf)
    found[:, 0, :] = 0.0
    fr, kb, k_ = found[0], found[1], found[2]
    for r in range(count):
        for q in range(r + 1):
            if fr[q, last] == np.inf:
                continue
            for k in range(options):
                if lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                    continue
                m = min(cost[k], last)
                f = below_forward[q, k] + forward[r, q, k]
                whole = below[q, k] + own[r, q, k]
                b = below_forward[q, k] + own[r, q, k] + tail[r, q, k]
                lagged = b + lag_b[r, q, k]
                # The last column goes on from itself, the others from what their price leaves.
                fr0, kb0, k0 = fr[q, last], kb[q, last], k_[q, last]
                fr[r + 1, last] = min(fr[r + 1, last], fr0 + f)
                kb[r + 1, last] = min(kb[r + 1, last], max(kb0 + whole, fr0 + b))
                k_[r + 1, last] = min(k_[r + 1, last], max(k0 + whole, fr0 + lagged))
                fr_to, kb_to, k_to = fr[r + 1, m:last], kb[r + 1, m:last], k_[r + 1, m:last]
                fr_of, kb_of, k_of = fr[q], kb[q], k_[q]
                for c in range(last - m):  # written so that it becomes vector instructions
                    x = fr_of[c] + f
                    y, y2 = kb_of[c] + whole, fr_of[c] + b
                    z, z2 = k_of[c] + whole, fr_of[c] + lagged
                    y = y if y > y2 else y2
                    z = z if z > z2 else z2
                    fr_to[c] = x if x < fr_to[c] else fr_to[c]
                    kb_to[c] = y if y < kb_to[c] else kb_to[c]
                    k_to[c] = z if z < k_to[c] else k_to[c]
    return found


def descend(
    found: Array,
    own: Array,
    lag_f: Array,
    lag_b: Array,
    tail: Array,
    below_forward: Array,
    below: Array,
    below_lag_f: Array,
    cost: Ints,
    most: float,
    column: int,
) -> Ints:
    """Stages that K leads to, from its end: (stages, 2) of last layer and option, last stage first.

    Nothing, if nothing fits. As K takes the least of both its sides apart, the plan may take longer
    than K says.

    Args:
        found: `tables` of `most`.
    """
    count, options = below.shape
    fr, k_ = found[0], found[2]
    last, c, end, n = k_.shape[1] - 1, column, count, 0
    path = np.empty((count, 2), dtype=np.int64)
    while end:
        best, best_q, best_k, best_c = np.inf, -1, -1, 0
        r = end - 1
        for q in range(end):
            for k in range(options):
                if lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                    continue
                if c < last and cost[k] > c:
                    continue
                at = c - cost[k] if c < last else last
                b = fr[q, at] + below_forward[q, k] + own[r, q, k] + tail[r, q, k] + lag_b[r, q, k]
                value = max(k_[q, at] + below[q, k] + own[r, q, k], b)
                if value < best:
                    best, best_q, best_k, best_c = value, q, k, at
        if best_q < 0:
            return path[:0]
        path[n, 0], path[n, 1] = r, best_k
        n += 1
        c, end = best_c, best_q
    return path[:n]


def reach(q: int, classes: Array, bounds: Array, tau: Array) -> Array:
    """What h, h + Db and psi of a label have to stay below, to improve: (3, V, columns), by c.

    Of classes v and above, and each of the three by itself: a necessary condition.

    Args:
        bounds: (V, 3, L + 1, columns), the tables of each class.
    """
    count, columns = bounds.shape[0], bounds.shape[3]
    found = np.full((3, count, columns), -np.inf)
    for v in range(count - 1, -1, -1):
        for kind in range(3):
            most = found[kind, v]
            for c in range(columns if v + 1 < count else 0):
                most[c] = found[kind, v + 1, c]
            row = bounds[v, 2 - kind, q]
            before = np.inf
            for m in range(columns):
                if row[m] < before:
                    before = row[m]
                    least = before + classes[v, 0]
                    limits = tau[m : m + columns]
                    for c in range(columns):
                        x = limits[c] - least
                        most[c] = x if x > most[c] else most[c]
    return found


def open_stages(
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
    limits: Array,
) -> NDArray[np.bool_]:
    """Which stages a plan may have that is better than what is known: (L, L, K).

    Of the stages behind a boundary, the least h and the least psi of each price are put on each
    stage before it, as if one suffix had both. If that leaves nothing for any price, no better plan
    has the stage.

    Args:
        limits: (L, 3, columns), `reach` of each q, of the one class whose lag is `most` at most.
    """
    count, options = below.shape
    columns = limits.shape[2]
    last, width = columns - 1, 2 * columns
    found = np.zeros((count, count, options), dtype=np.bool_)
    # Of layers from each on, by exact price; the last column is of any higher one, too, and what
    # comes beyond it is put there.
    h_ = np.full((count + 1, width), np.inf)
    psi_ = np.full((count + 1, width), np.inf)
    h_[count, 0] = psi_[count, 0] = 0.0
    ends = np.zeros(count + 1, dtype=np.int64)  # columns up to the last that is reached
    ends[count] = 1
    by_h, by_db, by_psi = np.empty(width), np.empty(width), np.empty(width)
    for q in range(count - 1, -1, -1):
        for c in range(width):
            at = min(c, last)
            by_h[c], by_db[c], by_psi[c] = limits[q, 0, at], limits[q, 1, at], limits[q, 2, at]
        for r in range(q, count):
            for k in range(options):
                if lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                    continue
                m, some = min(cost[k], last), 0
                f, itself, lagged = forward[r, q, k], own[r, q, k], lag_b[r, q, k] + tail[r, q, k]
                db = max(lag_b[r, q, k], below_lag_b[q, k])
                on, on_f = below[q, k], below_forward[q, k]
                h_of, psi_of, h_to, psi_to = h_[r + 1], psi_[r + 1], h_[q, m:], psi_[q, m:]
                h_at, db_at, psi_at = by_h[m:], by_db[m:], by_psi[m:]
                for c in range(ends[r + 1]):  # written so that it becomes vector instructions
                    h = h_of[c] + itself
                    psi, psi2 = psi_of[c] + f, h + lagged
                    psi = (psi if psi > psi2 else psi2) + on_f
                    h += on
                    opened = (h < h_at[c]) & (h + db < db_at[c]) & (psi < psi_at[c])
                    h = h if opened else np.inf
                    psi = psi if opened else np.inf
                    h_to[c] = h if h < h_to[c] else h_to[c]
                    psi_to[c] = psi if psi < psi_to[c] else psi_to[c]
                    some += opened
                found[r, q, k] = some > 0
        for c in range(width):
            if h_[q, c] < np.inf:
                at = min(c, last)
                h_[q, at], psi_[q, at] = min(h_[q, at], h_[q, c]), min(psi_[q, at], psi_[q, c])
                ends[q] = at + 1
    return found


def expand(
    q: int,
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
    """All labels whose first stage begins at layer q, that may become better than what is known.

    What a label has left is the least of its limits over what it takes itself. Gives the new ones,
    (m, 2) of their options and of the label that each goes on from, and how many were left out for
    having too many functions, vCPUs or stages alone.

    Args:
        labels: (n, FIELDS), those of later layers, the last layers first.
        begins: (n,), where their first stages begin.
        uses: (3, K), functions and vCPUs of options, and whether stages count.
        deepest: (L, L, K), stages from one to the last with which it fits, at most.
        most: (2,), of a plan.
        fewest: (2, L + 1), of a prefix of so many layers at least.
        limits: `reach` of q.
    """
    options, columns, count = below.shape[1], limits.shape[2], len(classes)
    room, n, left_out = 1024, 0, 0
    made = np.empty((room, FIELDS))
    origin = np.empty((room, 2), dtype=np.int64)
    for at in range(len(labels) - 1, -1, -1):
        r = begins[at] - 1
        for k in range(options):
            if lag_f[r, q, k] == np.inf:
                continue
            c = labels[at, 0] + price[k]
            df = max(labels[at, 3], lag_f[r, q, k], below_lag_f[q, k])
            h = labels[at, 1] + own[r, q, k]
            db = max(labels[at, 4], lag_b[r, q, k])
            psi = max(labels[at, 2] + forward[r, q, k], h + db + tail[r, q, k])
            h += below[q, k]
            psi += below_forward[q, k]
            db = max(db, below_lag_b[q, k])
            if q:
                v = 0
                while v < count and classes[v, 1] < df:
                    v += 1
                if v == count:
                    continue
                i = min(int(c), columns - 1)
                left = min(limits[0, v, i] - h, limits[1, v, i] - h - db, limits[2, v, i] - psi)
            else:
                left = tau[min(int(c), len(tau) - 1)] - psi - df
            if left <= 0:
                continue
            functions, vcpus = labels[at, 5] + uses[0, k], labels[at, 6] + uses[1, k]
            stages = labels[at, 7] + uses[2, k]
            if (
                functions + fewest[0, q] > most[0]
                or vcpus + fewest[1, q] > most[1]
                or stages > deepest[r, q, k]
            ):
                left_out += 1
                continue
            if n == room:
                room *= 2
                more, more_origin = np.empty((room, FIELDS)), np.empty((room, 2), dtype=np.int64)
                for i in range(n):
                    for j in range(FIELDS):
                        more[i, j] = made[i, j]
                    more_origin[i, 0], more_origin[i, 1] = origin[i, 0], origin[i, 1]
                made, origin = more, more_origin
            made[n, 0], made[n, 1], made[n, 2] = c, h, psi
            made[n, 3], made[n, 4], made[n, 5], made[n, 6] = df, db, functions, vcpus
            made[n, 7], made[n, 8] = stages, left
            origin[n, 0], origin[n, 1] = k, at
            n += 1
    return made[:n], origin[:n], left_out


def undominated(labels: Array, backward: float, by_uses: bool) -> Ints:
    """Which labels of one boundary to keep; they come by rising c (see `labels` for the rule).

    Few labels dominate most others, and those near to each other: what dominated the one before is
    tried first.

    Args:
        backward: least seconds of all layers below, of one micro-batch.
        by_uses: whether fewer functions, vCPUs and stages are an advantage.
    """
    kept = np.empty(len(labels), dtype=np.int64)
    tried = np.empty(len(labels), dtype=np.int64)  # the same, in another order
    n = 0
    for i in range(len(labels)):
        h, df, db = labels[i, 1], labels[i, 3], labels[i, 4]
        latest = max(labels[i, 2], h + db + backward)
        dominated = False
        for at in range(n):
            j = tried[at]
            lag_f = max(labels[j, 3] - df, 0.0)
            if (
                labels[j, 1] + lag_f + max(labels[j, 4] - db, 0.0) <= h
                and labels[j, 2] + lag_f <= latest
                and not (
                    by_uses
                    and (
                        labels[j, 5] > labels[i, 5]
                        or labels[j, 6] > labels[i, 6]
                        or labels[j, 7] > labels[i, 7]
                    )
                )
            ):
                dominated = True
                for before in range(at, 0, -1):
                    tried[before] = tried[before - 1]
                tried[0] = j
                break
        if not dominated:
            kept[n] = tried[n] = i
            n += 1
    return kept[:n]


def transfers(
    paces: Array, limits: Array, longest: int, between: Array, shards: int, deepest: Ints
) -> Array:
    """Hydrozoa's least C, and its shards: (shards + 1,), C and the lengths from the last shard on.

    C is inf if none are allowed.

    Args:
        paces: (3, L + 1, L), by a shard's end and length - 1; what is not within limits (3,) is not
            allowed.
        longest: length of those that are, at most.
        between: (L,), transfer before each layer.
        deepest: (L + 1, L), shards from one to the last with which it fits, at most.
    """
    count = len(between)
    lengths = np.zeros((shards, count + 1), dtype=np.int64)
    least = np.full(count + 1, np.inf)
    least[0] = 0.0
    for shard in range(shards):
        reached = np.full(count + 1, np.inf)
        for q in range(1, count + 1):
            for m in range(min(longest, q)):
                taken = least[q - m - 1] + between[q - m - 1]
                if (
                    taken < reached[q]
                    and paces[0, q, m] <= limits[0]
                    and paces[1, q, m] <= limits[1]
                    and paces[2, q, m] <= limits[2]
                    and deepest[q, m] >= shards - shard
                ):
                    reached[q] = taken
                    lengths[shard, q] = m + 1
        least = reached
    found = np.full(shards + 1, np.inf)
    found[0] = least[count]
    if least[count] < np.inf:
        end = count
        for i in range(shards):
            found[i + 1] = lengths[shards - 1 - i, end]
            end -= lengths[shards - 1 - i, end]
    return found
