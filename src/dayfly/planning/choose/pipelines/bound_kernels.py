"""The loops of bounds, one number after another: for numba; `vectorised` is the same on arrays.

    q           layers below a boundary: those of a prefix; the first layer of the stage above it
    r, k        last layer of a stage, and its option
    c, m        price of a prefix, and of a stage, in units (`units`)
    FR, KB, K   least seconds with which a prefix can still be done (`bounds`)
    h, psi      of a label; Db: its largest backward lag (`search`)
    v           class of plans, by their forward lag: rows of (more than, at most)
    tau         what a step has to stay below, by price (`incumbents`)

Arguments of several loops:

    stages      (5, L, L, K), by last layer, first layer and option: `model` says what
    sides       (4, L, K), of the boundary below, by first layer and option
    opened      (L, L, K), which stages there are
    cost        (K,), units of each option
    most        forward lag of stages, at most

Last column of a table: of any price; of the others, of so many units at most.
"""

from __future__ import annotations

import numpy as np

from dayfly.planning.choose.arrays import Array, Bools, Ints


def tables(
    stages: Array, sides: Array, opened: Bools, cost: Ints, most: float, columns: int
) -> Array:
    """FR, KB, K (3, L + 1, columns) of stages whose forward lag is `most` at most.

    A row's values fall between two columns, `begins` and `ends`, and are constant after `ends`. A
    stage is added to the falling columns only; what it makes of the constant ones is collected in
    `level` and entered once for each last layer. An option is left out of those of the three tables
    in which an earlier option of the same layers costs no more and takes no longer.
    """
    forward, own, lag_f, lag_b, tail = stages[0], stages[1], stages[2], stages[3], stages[4]
    below_forward, below, below_lag_f = sides[0], sides[1], sides[2]
    count, options = below.shape
    last = columns - 1
    found = np.full((3, count + 1, columns), np.inf)
    found[:, 0, :] = 0.0
    fr = found[0]
    begins, ends = np.zeros(count + 1, dtype=np.int64), np.zeros((3, count + 1), dtype=np.int64)
    level = np.full((3, columns), np.inf)
    before, n = np.empty((options, 5)), 0
    for r in range(count):
        for q in range(r + 1):
            if fr[q, last] == np.inf:
                continue
            n = 0
            for k in range(options):
                if not opened[r, q, k] or lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                    continue
                m = min(cost[k], last)
                f = below_forward[q, k] + forward[r, q, k]
                whole = below[q, k] + own[r, q, k]
                b = below_forward[q, k] + own[r, q, k] + tail[r, q, k]
                lagged = b + lag_b[r, q, k]
                by_fr, by_kb, by_k = True, True, True
                for i in range(n):
                    if before[i, 0] <= m:
                        by_fr &= before[i, 1] > f
                        by_kb &= (before[i, 2] > whole) | (before[i, 3] > b)
                        by_k &= (before[i, 2] > whole) | (before[i, 4] > lagged)
                        if not (by_fr or by_kb or by_k):
                            break
                before[n, 0], before[n, 1], before[n, 2] = m, f, whole
                before[n, 3], before[n, 4] = b, lagged
                n += 1
                # The last column goes on from itself, the others from what their price leaves.
                fr0, begin, room = fr[q, last], begins[q], last - m
                if by_fr:
                    fr[r + 1, last] = min(fr[r + 1, last], fr0 + f)
                    end = min(ends[0, q], room)
                    fr_to, fr_of = fr[r + 1, m + begin : m + end], fr[q, begin:end]
                    for c in range(len(fr_to)):  # written so that it becomes vector instructions
                        x = fr_of[c] + f
                        fr_to[c] = x if x < fr_to[c] else fr_to[c]
                    if end < room:
                        level[0, m + end] = min(level[0, m + end], fr[q, end] + f)
                for kind in range(1, 3):  # KB and K: from their own column or from FR's, if later
                    if not (by_kb if kind == 1 else by_k):
                        continue
                    of, to, later = found[kind, q], found[kind, r + 1], b if kind == 1 else lagged
                    to[last] = min(to[last], max(of[last] + whole, fr0 + later))
                    end = min(ends[kind, q], room)
                    _put(to[m + begin : m + end], of[begin:end], whole, fr[q, begin:end], later)
                    if end < room:
                        x = max(of[end] + whole, fr[q, end] + later)
                        level[kind, m + end] = min(level[kind, m + end], x)
        for kind in range(3):
            row, least = found[kind, r + 1], np.inf
            for c in range(last):
                least = min(least, level[kind, c])
                level[kind, c] = np.inf
                row[c] = min(row[c], least)
            end = last
            while end > 1 and row[end - 2] == row[last - 1]:
                end -= 1
            ends[kind, r + 1] = max(end - 1, 0)
            if kind:  # they go on from FR, too
                ends[kind, r + 1] = max(ends[kind, r + 1], ends[0, r + 1])
        begin = 0
        while begin < last and fr[r + 1, begin] == np.inf:
            begin += 1
        begins[r + 1] = begin
    return found


def _put(to: Array, of: Array, whole: float, fr: Array, b: float) -> None:
    """Lowers each of `to` to the larger of `of + whole` and `fr + b`, where that is less."""
    for c in range(len(to)):  # written so that it becomes vector instructions
        x, y = of[c] + whole, fr[c] + b
        x = x if x > y else y
        to[c] = x if x < to[c] else to[c]


def descend(
    found: Array,
    stages: Array,
    sides: Array,
    opened: Bools,
    cost: Ints,
    most: float,
    columns: Ints,
) -> Ints:
    """Stages that K leads to, from the end of each of some columns.

    As K takes the least of both its sides apart, plans may take longer than K says.

    Args:
        found: `tables` of `most`.

    Returns:
        (columns, L, 2) of last layer and option, last stage first, then -1; of -1 alone, if nothing
        fits.
    """
    own, lag_f, lag_b, tail = stages[1], stages[2], stages[3], stages[4]
    below_forward, below, below_lag_f = sides[0], sides[1], sides[2]
    count, options = below.shape
    fr, k_ = found[0], found[2]
    last = k_.shape[1] - 1
    paths = np.full((len(columns), count, 2), -1, dtype=np.int64)
    for at in range(len(columns)):
        c, end, n = columns[at], count, 0
        while end:
            best, best_q, best_k, best_c = np.inf, -1, -1, 0
            r = end - 1
            for q in range(end):
                for k in range(options):
                    if not opened[r, q, k] or lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                        continue
                    if c < last and cost[k] > c:
                        continue
                    i = c - cost[k] if c < last else last
                    b = fr[q, i] + below_forward[q, k] + own[r, q, k] + tail[r, q, k]
                    value = max(k_[q, i] + below[q, k] + own[r, q, k], b + lag_b[r, q, k])
                    if value < best:
                        best, best_q, best_k, best_c = value, q, k, i
            if best_q < 0:
                paths[at] = -1
                break
            paths[at, n, 0], paths[at, n, 1] = r, best_k
            n += 1
            c, end = best_c, best_q
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
    """Seconds of a step of a plan, (ways,); inf, if it uses too much, or a stage does not fit.

    Args:
        path: (stages, 2) of last layer and option, last stage first.
        opened: stages that fit.
        tails: (ways, L, L, K), of each way by which replicas sum.
        uses, deepest, most: as of `expand`.
    """
    forward, own, lags_f, lags_b = stages[0], stages[1], stages[2], stages[3]
    found = np.full(len(tails), np.inf)
    functions, vcpus = 0, 0
    for at in range(len(path)):
        r, k = path[at]
        q = path[at + 1, 0] + 1 if at + 1 < len(path) else 0
        functions, vcpus = functions + uses[0, k], vcpus + uses[1, k]
        if not opened[r, q, k] or at + 1 > deepest[r, q, k]:
            return found
    if functions > most[0] or vcpus > most[1]:
        return found
    for way in range(len(tails)):
        h, psi, lag_f, lag_b = 0.0, 0.0, 0.0, 0.0
        for at in range(len(path)):
            r, k = path[at]
            q = path[at + 1, 0] + 1 if at + 1 < len(path) else 0
            h += own[r, q, k]
            lag_f = max(lag_f, lags_f[r, q, k], sides[2, q, k])
            lag_b = max(lag_b, lags_b[r, q, k])
            psi = max(psi + forward[r, q, k], h + lag_b + tails[way, r, q, k])
            psi += sides[0, q, k]
            h += sides[1, q, k]
            lag_b = max(lag_b, sides[3, q, k])
        found[way] = psi + lag_f
    return found


def reach(classes: Array, bounds: Array, tau: Array) -> Array:
    """What h, h + Db and psi of a label have to stay below, to improve: (L, 3, V, columns).

    By q and c, of classes v and above, and each of the three by itself: a necessary condition.
    Where tau does not fall any more, only the least of a row counts, which is its last.

    Args:
        bounds: (V, 3, L + 1, columns), the tables of each class.
    """
    count, layers, columns = bounds.shape[0], bounds.shape[2] - 1, bounds.shape[3]
    found = np.full((layers, 3, count, columns), -np.inf)
    level = len(tau) - 1  # from which on tau is the same
    while level > 0 and tau[level - 1] == tau[level]:
        level -= 1
    for q in range(layers):
        for v in range(count - 1, -1, -1):
            for kind in range(3):
                most = found[q, kind, v]
                for c in range(columns if v + 1 < count else 0):
                    most[c] = found[q, kind, v + 1, c]
                row = bounds[v, 2 - kind, q]
                before, lowest = np.inf, columns - 1
                while lowest > 0 and row[lowest - 1] == row[lowest]:
                    lowest -= 1
                for m in range(lowest + 1):
                    if row[m] < before:
                        before = row[m]
                        least = before + classes[v, 0]
                        limits = tau[m : m + columns]
                        end = columns if m == lowest else min(max(level - m, 0), columns)
                        for c in range(end):
                            x = limits[c] - least
                            most[c] = x if x > most[c] else most[c]
    return found


def open_stages(
    stages: Array, sides: Array, opened: Bools, cost: Ints, most: float, limits: Array
) -> Bools:
    """Which stages a plan may have that is better than what is known: (L, L, K).

    Of the stages behind a boundary, the least h and the least psi of each price are put on each
    stage before it, as if one suffix had both. If that leaves nothing for any price, no better plan
    has the stage. A price of which neither is less than of a lower one is left out, as limits fall
    with the price.

    Args:
        limits: (L, 3, columns), `reach` of each q, of the one class whose lag is `most` at most.
    """
    forward, own, lag_f, lag_b, tail = stages[0], stages[1], stages[2], stages[3], stages[4]
    below_forward, below, below_lag_f, below_lag_b = sides[0], sides[1], sides[2], sides[3]
    count, options = below.shape
    columns = limits.shape[2]
    last, width = columns - 1, 2 * columns
    found = np.zeros((count, count, options), dtype=np.bool_)
    # Of layers from each on, by price; the last column is of any higher one, too, and what comes
    # beyond it is put there.
    h_ = np.full((count + 1, width), np.inf)
    psi_ = np.full((count + 1, width), np.inf)
    h_[count, 0] = psi_[count, 0] = 0.0
    # Columns from the first to the last that is reached.
    begins, ends = np.zeros(count + 1, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    ends[count] = 1
    by_h, by_db, by_psi = np.empty(width), np.empty(width), np.empty(width)
    for q in range(count - 1, -1, -1):
        for c in range(width):
            at = min(c, last)
            by_h[c], by_db[c], by_psi[c] = limits[q, 0, at], limits[q, 1, at], limits[q, 2, at]
        for r in range(q, count):
            for k in range(options):
                if not opened[r, q, k] or lag_f[r, q, k] > most or below_lag_f[q, k] > most:
                    continue
                m, some = min(cost[k], last), 0
                f, itself, lagged = forward[r, q, k], own[r, q, k], lag_b[r, q, k] + tail[r, q, k]
                db = max(lag_b[r, q, k], below_lag_b[q, k])
                on, on_f = below[q, k], below_forward[q, k]
                begin, end = begins[r + 1], ends[r + 1]
                h_of, psi_of = h_[r + 1, begin:end], psi_[r + 1, begin:end]
                begin, end = m + begin, m + end
                h_to, psi_to = h_[q, begin:end], psi_[q, begin:end]
                h_at, db_at, psi_at = by_h[begin:end], by_db[begin:end], by_psi[begin:end]
                for c in range(len(h_of)):  # written so that it becomes vector instructions
                    h = h_of[c] + itself
                    psi, psi2 = psi_of[c] + f, h + lagged
                    psi = (psi if psi > psi2 else psi2) + on_f
                    h += on
                    better = (h < h_at[c]) & (h + db < db_at[c]) & (psi < psi_at[c])
                    h = h if better else np.inf
                    psi = psi if better else np.inf
                    h_to[c] = h if h < h_to[c] else h_to[c]
                    psi_to[c] = psi if psi < psi_to[c] else psi_to[c]
                    some += better
                found[r, q, k] = some > 0
        for c in range(columns, width):
            h_[q, last], psi_[q, last] = min(h_[q, last], h_[q, c]), min(psi_[q, last], psi_[q, c])
        h, psi, begins[q] = np.inf, np.inf, columns
        for c in range(columns):
            if h_[q, c] < h or psi_[q, c] < psi:
                h, psi = h_[q, c], psi_[q, c]
                begins[q], ends[q] = min(begins[q], c), c + 1
            else:
                h_[q, c] = psi_[q, c] = np.inf
    return found
