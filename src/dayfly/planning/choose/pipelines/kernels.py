"""The loops of the search, one number after another: for numba; `vectorised` is the same on arrays.

    q           layers below a boundary: the first layer of the stage above it
    r, k        last layer of a stage, and its option
    c           price of a label, in units (`units`)
    h, psi      of a label; Df, Db: its largest forward and backward lag (`search`)
    v           class of plans, by their forward lag: rows of (more than, at most)
    tau         what a step has to stay below, by price (`incumbents`)

Arrays of stages are as those of `bound_kernels`.
"""

from __future__ import annotations

import numpy as np

from dayfly.planning.choose.arrays import Array, Bools, Ints

#: Columns of a label: c, h, psi, Df, Db, its functions, vCPUs and stages, where these count, and
#: what it has left (`expand`).
FIELDS = 9


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
        limits: (3, V, columns), `reach` of q.
    """
    forward, own, lag_f, lag_b, tail = stages[0], stages[1], stages[2], stages[3], stages[4]
    below_forward, below, below_lag_f, below_lag_b = sides[0], sides[1], sides[2], sides[3]
    options, columns, count = below.shape[1], limits.shape[2], len(classes)
    room, n, left_out = 1024, 0, 0
    made = np.empty((room, FIELDS))
    origin = np.empty((room, 2), dtype=np.int64)
    choices, many, r = np.empty(options, dtype=np.int64), 0, -1
    for at in range(len(labels) - 1, -1, -1):
        if begins[at] - 1 != r:  # labels of one boundary stand together
            r, many = begins[at] - 1, 0
            for k in range(options):
                if opened[r, q, k]:
                    choices[many] = k
                    many += 1
        of = 0
        while of < count and classes[of, 1] < labels[at, 3]:
            of += 1
        for k in choices[:many]:
            c = labels[at, 0] + price[k]
            df = max(labels[at, 3], lag_f[r, q, k], below_lag_f[q, k])
            h = labels[at, 1] + own[r, q, k]
            db = max(labels[at, 4], lag_b[r, q, k])
            psi = max(labels[at, 2] + forward[r, q, k], h + db + tail[r, q, k])
            h += below[q, k]
            psi += below_forward[q, k]
            db = max(db, below_lag_b[q, k])
            if q:
                v = of
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
            depth = labels[at, 7] + uses[2, k]
            if (
                functions + fewest[0, q] > most[0]
                or vcpus + fewest[1, q] > most[1]
                or depth > deepest[r, q, k]
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
            made[n, 7], made[n, 8] = depth, left
            origin[n, 0], origin[n, 1] = k, at
            n += 1
    return made[:n], origin[:n], left_out


def undominated(labels: Array, order: Ints, backward: float, by_uses: bool) -> Ints:
    """Which labels of one boundary to keep, in their order (see `labels` for the rule).

    Few labels dominate most others, and those near to each other: what dominated the one before is
    tried first.

    Args:
        order: of labels by rising c.
        backward: least seconds of all layers below, of one micro-batch.
        by_uses: whether fewer functions, vCPUs and stages are an advantage.
    """
    kept = np.empty(len(order), dtype=np.int64)
    tried = np.empty(len(order), dtype=np.int64)  # the same, by their number, in another order
    rows = np.empty((len(order), FIELDS))  # of the same, near to each other in memory
    n = 0
    for i in order:
        h, df, db = labels[i, 1], labels[i, 3], labels[i, 4]
        latest = max(labels[i, 2], h + db + backward)
        dominated = False
        for at in range(n):
            j = tried[at]
            lag_f = max(rows[j, 3] - df, 0.0)
            if (
                rows[j, 1] + lag_f + max(rows[j, 4] - db, 0.0) <= h
                and rows[j, 2] + lag_f <= latest
                and not (
                    by_uses
                    and (
                        rows[j, 5] > labels[i, 5]
                        or rows[j, 6] > labels[i, 6]
                        or rows[j, 7] > labels[i, 7]
                    )
                )
            ):
                dominated = True
                for before in range(at, 0, -1):
                    tried[before] = tried[before - 1]
                tried[0] = j
                break
        if not dominated:
            for field in range(FIELDS):
                rows[n, field] = labels[i, field]
            kept[n], tried[n] = i, n
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
