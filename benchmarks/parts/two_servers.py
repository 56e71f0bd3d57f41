"""Two servers beside one: the same all-reduces over Redis whose servers the kernel limits.

A star of network namespaces with the ranks in its hub, and a Redis server at the end of each cable.
`tc tbf` at both ends of each cable is a server's bandwidth; ranks are not limited. With two servers
the messages are spread by the hash of their keys, as `redis://h1,h2` has it.

Beside it the same schedules in virtual time, as plans have it: over a store that carries the rate
of all servers, less what the kernel counts beside messages (headers of TCP, requests).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts.cases import Case
from benchmarks.parts.predictions import ITEM_BYTES, algorithm
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.redis_server import RedisOptions, RedisServer
from benchmarks.parts.reducer import Reducer
from benchmarks.parts.reductions import Reductions
from benchmarks.parts.spread import columns, framed, number, say, shown, spread
from benchmarks.parts.star import Star
from benchmarks.parts.stores import Store
from dayfly.life.platforms import network
from dayfly.life.sessions import Session
from dayfly.wire.channels.kinds import Redis
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import CompiledSchedule
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Rank, Shared, Stream

Json = dict[str, Any]
_SERVERS = 2


def measure(session: Session, case: Case, operations: int, rounds: int) -> list[Json]:
    """A row a collective of the case, whose rate is a server's; its latency is left out."""
    took: dict[str, dict[int, list[float]]] = {
        name: {1: [], _SERVERS: []} for name in case.collectives
    }
    shares: list[float] = []
    with Star(_SERVERS) as star, ExitStack() as stack:
        servers = [_server(star, number, stack) for number in range(_SERVERS)]
        ranks = stack.enter_context(Ranks(Reducer, case.workers, spaces=[star.hub] * case.workers))
        for one in range(rounds):
            for count in (1, _SERVERS):
                hosts = ",".join(f"{server.host}:{server.port}" for server in servers[:count])
                place = Store(f"redis://{hosts}/0", f"two-{one}-{count}", session).place()
                log = (case.workers, case.size_bytes, operations)
                with Reductions(ranks, place, *log, star.in_hub) as reductions:
                    for name, row in took.items():
                        before = reductions.traffic_bytes()
                        with star.limited(case.bytes_per_s):
                            row[count].append(reductions.measure(name, operations).wall_s)
                            messages = reductions.traffic_bytes() - before
                            shares.append(messages / star.sent_bytes())
            for name, row in took.items():
                ratio = row[1][-1] / row[_SERVERS][-1]
                say(f"  round {one + 1} of {rounds}: {name:<15} one / two {ratio:.3f}")
    return [
        {
            "workers": case.workers,
            "mb": case.mb,
            "rate_mb_per_s": case.rate_mb_per_s,
            "collective": name,
            "operations": operations,
            "one_seconds": row[1],
            "two_seconds": row[_SERVERS],
            "message_share": median(shares),
            "one_virtual_s": _virtual_s(name, case, 1, median(shares)),
            "two_virtual_s": _virtual_s(name, case, _SERVERS, median(shares)),
            **spread("ratio", [a / b for a, b in zip(row[1], row[_SERVERS], strict=True)]),
        }
        for name, row in took.items()
    ]


def _virtual_s(name: str, case: Case, servers: int, share: float) -> float:
    """Seconds of an all-reduce in virtual time, over servers whose links alone take time."""
    at_once, chunk_bytes = Redis.abilities.in_flight, Redis.abilities.chunk_bytes
    plans = [
        CompiledSchedule(
            algorithm(name, case.workers).schedule(
                rank, case.workers, case.size_bytes // ITEM_BYTES, chunk=chunk_bytes // ITEM_BYTES
            )
        )
        for rank in range(case.workers)
    ]
    free = Direction(occupied_s=lambda nbytes: 0.0)
    ranks = [
        Rank(
            streams=[
                Stream(plan=plan, name=name, member=rank, members=case.workers, in_flight=at_once)
            ],
            up=free,
            down=free,
            header_bytes=HEADER_BYTES,
            held=True,
            early=True,
        )
        for rank, plan in enumerate(plans)
    ]
    rate = share * servers * case.bytes_per_s
    moments = run(ranks, Shared(store_bytes_per_s=rate))
    return max(max(stream.done_s) for of_rank in moments for stream in of_rank)


def _server(star: Star, number: int, stack: ExitStack) -> RedisServer:
    """A server at the end of a cable; its thread stays, as it ends with that."""
    thread = stack.enter_context(ThreadPoolExecutor(1, f"dayfly-server-{number}"))

    def there(work: Callable[[], Any]) -> Any:
        return thread.submit(work).result()

    there(lambda: network.enter(star.spaces[number]))
    server: RedisServer = there(lambda: RedisServer(RedisOptions(host=star.host(number))))
    stack.callback(lambda: there(server.close))
    return server


def table(rows: Sequence[Json], rounds: int) -> Table:
    """For a person."""
    made = columns(
        ["collective"], ["one s", "virtual", "two s", "virtual", "one / two", "least to most"]
    )
    for row in rows:
        each = (
            value
            for one in ("one", "two")
            for value in (median(row[f"{one}_seconds"]), row[f"{one}_virtual_s"])
        )
        made.add_row(row["collective"], *map(number, each), *shown(row, "ratio"))
    first = rows[0]
    return framed(
        f"two servers beside one: {first['workers']} workers, {first['mb']:g} MB, Redis servers of "
        f"{first['rate_mb_per_s']:g} MB/s each way by tc tbf,\nmedian of {rounds} rounds",
        made,
        "seconds of an all-reduce; virtual: the same in virtual time, at the rate that is left\n"
        f"for messages ({first['message_share']:.0%}); one / two: so many times as fast are two",
    )
