"""`dayfly bench collectives`: time of an all-reduce over the bound, and beside gloo.

    capped     every collective at given rates and latency, over the bound 2(n-1)/n s/w
    uncapped   as fast as it goes, beside gloo
    tbf        at rates that the kernel's token bucket imposes, beside ours
    servers    over two Redis servers of limited bandwidth, beside one
    memory     what a collective takes beside the buffer
    auth       what it takes to authenticate messages, beside moving them
    cpu        CPU time of ranks and stores, beside gloo, redis-py and obstore

All seven, unless some are named. A process a rank, one thread each; every result is checked to the
bit, outside of what is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.parts import (
    authentication,
    beside_gloo,
    by_kernel,
    cpu_time,
    held_memory,
    namespaces,
    sums,
    two_servers,
    under_caps,
)
from benchmarks.parts.arguments import add_parts, asked_parts, new_parser, refuse_figures
from benchmarks.parts.cases import Case, size_bytes
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.predictions import NAMES, AllReduce, fitting
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reducer import Reducer
from benchmarks.parts.spread import say
from benchmarks.parts.stores import STORES, Store, abilities_of, running
from dayfly.errors import RequestError
from dayfly.life.sessions import Session
from dayfly.wire.channels.kind import Abilities

#: The aims, unless others are given: workers, MB, MB/s, ms. The larger buffer is for these three.
_WORKERS, _MB, _RATE, _LATENCY_MS = (4, 8), 8.0, 10.0, 20.0
_LARGE = (4, 64.0, 70.0, 20.0)
_COMPARED = ("overlapped", "scatter-reduce", "pipelined")
#: Without caps: workers, MB, and collectives. These rounds are short.
_FREE_WORKERS, _FREE_MB, _FREE = (2, 4), (1.0, 25.0, 100.0), ("scatter-reduce", "overlapped")
_FREE_ROUNDS_A_ROUND = 2
#: The cross-check has so many times fewer operations in a row, and each twice.
_TBF_SHARE = 5
_MEMORY_WORKERS, _MEMORY_MB = 4, 64.0
#: What CPU time is measured over, unless asked otherwise: stores, workers, MB.
_CPU_STORES, _CPU_WORKERS, _CPU_MB = ("files", "redis", "s3", "ps", "tcp"), (2, 4), 25.0
#: What --quick makes of sizes, operations and rounds.
_QUICK_SHARE, _QUICK_OPERATIONS, _QUICK_ROUNDS = 1 / 64, 2, 1


Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a part measures, over a store and with ranks that other parts use, too.

    store: its name or URL. ranks: how many. measure: given those.
    """

    store: str
    ranks: int
    measure: Callable[[Ranks, Store], Rows]


#: A part with a store and ranks of its own; None if it cannot be measured here.
Own = Callable[[Session], Rows | dict[str, Rows] | None]


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`.

    Raises RequestError for what cannot be measured, RunFailed if a rank fails or a sum is wrong.
    """
    asked = _arguments(args)
    on_what, began = machine(), time.monotonic()
    result: dict[str, Any] = {
        "machine": on_what,
        "quick": asked.quick,
        "rounds": asked.rounds,
        "channel": _channel(asked),
        "uncapped_channel": _channel(asked, "files"),
    }
    # All of it is planned, and refused, before anything starts.
    plans = {part: PARTS[part](asked) for part in asked_parts(asked, PARTS)}
    shared = [plan for plan in plans.values() if isinstance(plan, Plan)]
    with Session.open() as session, ExitStack() as stack:
        stores = {
            name: stack.enter_context(running(name, session))
            for name in dict.fromkeys(plan.store for plan in shared)
        }
        if shared:
            # After the stores, as ranks have the environment by which clients find them.
            ranks = stack.enter_context(Ranks(Reducer, max(plan.ranks for plan in shared)))
        for part, plan in plans.items():
            if isinstance(plan, Plan):
                result[part] = plan.measure(ranks, stores[plan.store])
            else:
                result[part] = plan(session)
    result["wall_s"] = time.monotonic() - began
    return result


def _capped(asked: argparse.Namespace) -> Plan:
    channel = _channel(asked)
    cases = _cases(asked, abilities_of(channel))
    for case in cases:
        _refuse_rounding(case.workers, asked.operations)

    def measure(ranks: Ranks, store: Store) -> Rows:
        how = (asked.operations, asked.rounds, asked.all_operations)
        return under_caps.measure(ranks, store, cases, *how)

    return Plan(store=channel, ranks=max(case.workers for case in cases), measure=measure)


def _uncapped(asked: argparse.Namespace) -> Plan:
    channel = _channel(asked, "files")
    workers = asked.workers or _FREE_WORKERS
    sizes = [asked.mb] if asked.mb else [_scaled(asked, mb) for mb in _FREE_MB]
    fit = [_fitting(asked, count, max(sizes), abilities_of(channel)) for count in workers]
    names = [name for name in fit[0] if all(name in others for others in fit)]
    if not asked.collectives:
        names = [name for name in _FREE if name in names] or names

    def measure(ranks: Ranks, store: Store) -> Rows:
        rounds = _FREE_ROUNDS_A_ROUND * asked.rounds
        return beside_gloo.measure(ranks, store, workers, sizes, names, rounds)

    return Plan(store=channel, ranks=max(workers), measure=measure)


def _tbf(asked: argparse.Namespace) -> Own:
    """It gives None if it cannot be done here, and was not asked for by name."""
    if not namespaces.possible():
        if asked.tbf:
            raise RequestError("--tbf needs root, ip and tc: sudo apt install iproute2")
        return lambda session: None
    workers = min(asked.workers) if asked.workers else _WORKERS[0]
    mb = asked.mb or _scaled(asked, _MB)
    case = Case(
        workers=workers,
        mb=mb,
        rate_mb_per_s=asked.rate or _RATE,
        latency_ms=0.0,
        collectives=_few(asked, _fitting(asked, workers, mb, abilities_of("redis"))),
    )
    operations = max(1, asked.operations // _TBF_SHARE)
    _refuse_rounding(workers, operations)

    def measure(session: Session) -> Rows:
        say(f"the kernel's token bucket: {case}")
        return by_kernel.measure(session, case, operations, asked.rounds)

    return measure


def _servers(asked: argparse.Namespace) -> Own:
    """It gives None if it cannot be done here, and was not asked for by name."""
    if not namespaces.possible():
        if asked.servers:
            raise RequestError("--servers needs root, ip and tc: sudo apt install iproute2")
        return lambda session: None
    workers = min(asked.workers) if asked.workers else _WORKERS[0]
    mb = asked.mb or _scaled(asked, _MB)
    case = Case(
        workers=workers,
        mb=mb,
        rate_mb_per_s=asked.rate or _RATE,
        latency_ms=0.0,
        collectives=_few(asked, _fitting(asked, workers, mb, abilities_of("redis"))),
    )
    operations = max(1, asked.operations // _TBF_SHARE)
    _refuse_rounding(workers, operations)

    def measure(session: Session) -> Rows:
        say(f"two servers beside one: {case}")
        return two_servers.measure(session, case, operations, asked.rounds)

    return measure


def _memory(asked: argparse.Namespace) -> Plan:
    channel = _channel(asked)
    mb = asked.mb or _scaled(asked, _MEMORY_MB)
    workers = max(asked.workers) if asked.workers else _MEMORY_WORKERS
    names = _fitting(asked, workers, mb, abilities_of(channel))

    def measure(ranks: Ranks, store: Store) -> Rows:
        return held_memory.measure(ranks, store, workers, mb, names)

    return Plan(store=channel, ranks=workers, measure=measure)


def _auth(asked: argparse.Namespace) -> Own:
    abilities_of("redis")  # it is installed

    def measure(session: Session) -> Rows:
        with running("redis", session) as store:
            return authentication.measure(store, asked.rounds, asked.quick)

    return measure


def _cpu(asked: argparse.Namespace) -> Own:
    names = [asked.channel] if asked.channel else list(_CPU_STORES)
    for name in names:
        abilities_of(name)
    workers = asked.workers or _CPU_WORKERS
    mb = asked.mb or _scaled(asked, _CPU_MB)

    def measure(session: Session) -> dict[str, Rows]:
        with ExitStack() as stack:
            stores = {name: stack.enter_context(running(name, session)) for name in names}
            ranks = stack.enter_context(Ranks(Reducer, max(workers)))
            return cpu_time.measure(ranks, stores, workers, mb, asked.rounds, quick=asked.quick)

    return measure


PARTS: dict[str, Callable[[argparse.Namespace], Plan | Own]] = {
    "capped": _capped,
    "uncapped": _uncapped,
    "tbf": _tbf,
    "servers": _servers,
    "memory": _memory,
    "auth": _auth,
    "cpu": _cpu,
}


def _cases(asked: argparse.Namespace, abilities: Abilities) -> list[Case]:
    """As asked; or the aims, if nothing was."""
    link = {
        "rate_mb_per_s": asked.rate or _RATE,
        "latency_ms": _LATENCY_MS if asked.latency is None else asked.latency,
    }
    mb = asked.mb or _scaled(asked, _MB)
    cases = [
        Case(workers=n, mb=mb, collectives=_fitting(asked, n, mb, abilities), **link)
        for n in asked.workers or _WORKERS
    ]
    if (asked.workers, asked.mb, asked.rate, asked.latency) == (None,) * 4:
        n, mb, rate, latency_ms = _LARGE
        mb = _scaled(asked, mb)
        few = _few(asked, _fitting(asked, n, mb, abilities))
        large = {"rate_mb_per_s": rate, "latency_ms": latency_ms}
        cases.append(Case(workers=n, mb=mb, collectives=few, **large))
    return cases


def _fitting(asked: argparse.Namespace, workers: int, mb: float, abilities: Abilities) -> list[str]:
    """The collectives that were asked for, or all that the channel can carry."""
    like = AllReduce(
        name=NAMES[0],
        world_size=workers,
        size_bytes=size_bytes(mb),
        bytes_per_s=1.0,
        latency_s=0.0,
        abilities=abilities,
    )
    return fitting(asked.collectives, like)


def _few(asked: argparse.Namespace, names: list[str]) -> list[str]:
    """Of these, what is compared where all would take too long; all if none of them are."""
    return names if asked.collectives else [one for one in names if one in _COMPARED] or names


def _channel(asked: argparse.Namespace, unless_asked: str = "redis") -> str:
    return asked.channel or unless_asked


def _refuse_rounding(workers: int, operations: int) -> None:
    if not sums.exact(workers, operations):
        raise RequestError(
            f"the sums of {operations} all-reduces in a row on {workers} workers are not exact in "
            "float32, so they could not be checked: give a power of 2, or fewer --operations"
        )


def _scaled(asked: argparse.Namespace, mb: float) -> float:
    return mb * _QUICK_SHARE if asked.quick else mb


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    rounds = result["rounds"]
    whole = Table.grid(padding=(1, 0))
    whole.add_row(machine_line(result["machine"]))
    if result.get("capped"):
        whole.add_row(under_caps.table(result["capped"], result["channel"], rounds))
    if result.get("uncapped"):
        over, free = result["uncapped_channel"], _FREE_ROUNDS_A_ROUND * rounds
        whole.add_row(beside_gloo.table(result["uncapped"], over, free))
    if result.get("tbf"):
        whole.add_row(by_kernel.table(result["tbf"], rounds))
    elif "tbf" in result:
        whole.add_row("the kernel's token bucket was left out: it needs root, ip and tc")
    if result.get("servers"):
        whole.add_row(two_servers.table(result["servers"], rounds))
    elif "servers" in result:
        whole.add_row("two servers were left out: they need root, ip and tc")
    if result.get("memory"):
        whole.add_row(held_memory.table(result["memory"], result["channel"]))
    if result.get("auth"):
        whole.add_row(authentication.table(result["auth"]))
    if result.get("cpu"):
        whole.add_row(cpu_time.table(result["cpu"], rounds))
    return whole


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(
        "collectives", "Time of an all-reduce over the bound, and beside gloo.", "MB: 10^6 bytes."
    )
    parts = {
        "capped": "at rates and latency, over the bound",
        "uncapped": "as fast as it goes, beside gloo",
        "tbf": "our rates beside those of the kernel (root)",
        "servers": "over two servers of limited bandwidth, beside one (root)",
        "memory": "what a collective takes beside the buffer",
        "auth": "CPU time of AES-GMAC beside moving a message",
        "cpu": "CPU time of ranks and stores, beside gloo and plain clients",
    }
    add_parts(parser, parts)
    parser.add_argument(
        "--channel",
        help=f"{', '.join(STORES)}, or a URL (default: redis; files without caps). What is left "
        "of a killed bench at a URL is removed by the next",
    )
    parser.add_argument(
        "--collectives", nargs="+", choices=NAMES, metavar="NAME", help="default: all"
    )
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="default: 4 8")
    parser.add_argument("--mb", type=float, metavar="MB", help="size of the buffer (default: 8)")
    parser.add_argument("--rate", type=float, metavar="MB/s", help="each way (default: 10)")
    parser.add_argument("--latency", type=float, metavar="MS", help="of a request (default: 20)")
    parser.add_argument(
        "--operations", type=int, metavar="N", help="in a row, a measurement (default: 10)"
    )
    parser.add_argument(
        "--all-operations",
        action="store_true",
        help="as many of collectives far above the bound, too (default: a third of the time)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3")
    parser.add_argument(
        "--quick", action="store_true", help="small buffers: to see that it works, not how fast"
    )
    asked = parser.parse_args(args)
    asked.operations = asked.operations or (_QUICK_OPERATIONS if asked.quick else 10)
    asked.rounds = asked.rounds or (_QUICK_ROUNDS if asked.quick else 3)
    _refuse(asked)
    return asked


def _refuse(asked: argparse.Namespace) -> None:
    """Raise RequestError for figures that cannot be."""
    refuse_figures(asked, ("mb", "rate", "operations", "rounds"))
    for count in asked.workers or ():
        if not 2 <= count <= 64:
            raise RequestError(f"--workers {count}: give 2 to 64")
