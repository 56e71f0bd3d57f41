"""CPU time of the wire: of all-reduces beside gloo's, and of messages beside plain clients' values.

all-reduces   a rank's processes, and apart from them all else: store and coordinator's end
messages      put and get by one process, dayfly's channel and redis-py or obstore in turns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts import beside_gloo, plain_clients
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.spread import columns, framed, shown
from benchmarks.parts.stores import STORES, Store
from dayfly.wire.channels import channel_kind
from dayfly.wire.collectives import default_collective

Json = dict[str, Any]


def measure(
    ranks: Ranks,
    stores: Mapping[str, Store],
    workers: Sequence[int],
    mb: float,
    rounds: int,
    *,
    quick: bool,
) -> Json:
    """Rows of `all_reduces`, one a number of workers and store, and of `messages`.

    Every channel runs the all-reduce that suits it best.
    """
    all_reduces = [
        {"channel": name, **row}
        for count in workers
        for name, store in stores.items()
        for row in beside_gloo.measure(ranks, store, [count], [mb], [_usual(name)], rounds)
    ]
    messages = [
        {"channel": name, **row}
        for name, store in stores.items()
        if name in plain_clients.CLIENTS
        for row in plain_clients.measure(store, plain_clients.CLIENTS[name], rounds, quick)
    ]
    return {"all_reduces": all_reduces, "messages": messages}


def _usual(store: str) -> str:
    kind = channel_kind(STORES.get(store, store))
    able = kind.abilities
    return default_collective(sums=able.sums, direct=able.direct, immediate=kind.immediate)


def table(result: Json, rounds: int) -> Table:
    """For a person."""
    reductions = columns(
        ["channel", "collective"], ["n", "rank", "gloo", "ratio", "least to most", "store", "moved"]
    )
    for row in result["all_reduces"]:
        nbytes = 1e6 * row["mb"]
        reductions.add_row(
            row["channel"],
            row["collective"],
            str(row["workers"]),
            _s_per_gb(row["cpu_took_s"], nbytes),
            _s_per_gb(row["gloo_cpu_s"], nbytes),
            *shown(row, "cpu_ratio", 2),
            _s_per_gb(median(row["store_cpu_seconds"]), nbytes),
            _s_per_gb(row["cpu_took_s"], row["moved_bytes"]),
        )
    messages = columns(
        ["channel", "beside"], ["KiB", "dayfly", "other", "ratio", "least to most", "store"]
    )
    for row in result["messages"]:
        moved = 2 * row["bytes"]
        messages.add_row(
            row["channel"],
            row["client"],
            f"{row['bytes'] // 1024}",
            _s_per_gb(row["cpu_took_s"], moved),
            _s_per_gb(row["client_cpu_s"], moved),
            *shown(row, "cpu_ratio", 2),
            _s_per_gb(median(row["store_cpu_seconds"]), moved),
        )
    return framed(
        f"CPU seconds of an all-reduce, a GB of buffer, without caps: medians of {rounds} rounds",
        reductions,
        "rank: mean of the ranks' processes; store: all other processes; ratio: rank / gloo",
        "moved: a rank's CPU seconds, a GB that it put or got",
        "",
        "CPU seconds of a put and a get by one process, a GB put or got",
        messages,
        "other: the plain client, values as large; store: all other processes, dayfly's messages",
    )


def _s_per_gb(cpu_s: float, nbytes: float) -> str:
    return f"{1e9 * cpu_s / nbytes:.2f}"
