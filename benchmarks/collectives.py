"""`dayfly bench collectives`: time of an all-reduce over the bound, and beside gloo.

    capped     every collective at given rates and latency, over the bound 2(n-1)/n s/w
    uncapped   as fast as it goes, beside gloo
    tbf        at rates that the kernel's token bucket imposes, beside ours
    memory     what a collective takes beside the buffer

All four, unless some are named. A process a rank, one thread each; every result is checked to the
bit, outside of what is timed.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from rich.table import Table

from benchmarks.parts import beside_gloo, by_kernel, held_memory, namespaces, sums, under_caps
from benchmarks.parts.cases import Case, size_bytes
from benchmarks.parts.machine import machine
from benchmarks.parts.predictions import NAMES, AllReduce, fitting
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reducer import Reducer
from benchmarks.parts.spread import say
from benchmarks.parts.stores import STORES, need, store
from dayfly.errors import RequestError
from dayfly.life.sessions import Session
from dayfly.wire.channels import channel_kind

PARTS = ("capped", "uncapped", "tbf", "memory")
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
#: What --quick makes of sizes, operations and rounds.
_QUICK_SHARE, _QUICK_OPERATIONS, _QUICK_ROUNDS = 1 / 64, 2, 1


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
        "channel": asked.channel or "redis",
        "uncapped_channel": asked.channel or "files",
    }
    parts = [name for name in PARTS if getattr(asked, name)] or list(PARTS)
    with Session.open() as session:
        scratch = session.root / "rendezvous"
        scratch.mkdir()
        # A name of its own, unless the store is the user's: there it finds what a killed one left.
        run_id = "bench" if "://" in (asked.channel or "") else f"bench-{secrets.token_hex(4)}"
        for part in parts:
            if part == "tbf":
                result["tbf"] = _tbf(asked, session)
                continue
            name = result["uncapped_channel" if part == "uncapped" else "channel"]
            with ExitStack() as stack:
                # The store comes first: ranks have the environment that its clients need.
                url = stack.enter_context(store(name, session))
                share = {"url": url, "run": run_id, "scratch": scratch}
                result[part] = _PARTS[part](asked, stack, **share)
    result["wall_s"] = time.monotonic() - began
    return result


def _capped(asked: argparse.Namespace, stack: ExitStack, **where: Any) -> list[dict[str, Any]]:
    cases = _cases(asked, where["url"])
    ranks = stack.enter_context(Ranks(Reducer, max(case.workers for case in cases)))
    how = (cases, asked.operations, asked.rounds, asked.all_operations)
    return under_caps.measure(ranks, where["url"], where["run"], where["scratch"], *how)


def _uncapped(asked: argparse.Namespace, stack: ExitStack, **where: Any) -> list[dict[str, Any]]:
    workers = asked.workers or _FREE_WORKERS
    sizes = [asked.mb] if asked.mb else [_scaled(asked, mb) for mb in _FREE_MB]
    names = asked.collectives or list(_FREE)
    for count in workers:
        _fitting(names, count, max(sizes), where["url"])
    _refuse_rounding(workers, beside_gloo.operations(min(sizes)))
    ranks = stack.enter_context(Ranks(Reducer, max(workers)))
    how = (workers, sizes, names, _FREE_ROUNDS_A_ROUND * asked.rounds)
    return beside_gloo.measure(ranks, where["url"], where["run"], where["scratch"], *how)


def _memory(asked: argparse.Namespace, stack: ExitStack, **where: Any) -> list[dict[str, Any]]:
    mb = asked.mb or _scaled(asked, _MEMORY_MB)
    workers = max(asked.workers) if asked.workers else _MEMORY_WORKERS
    names = _fitting(asked.collectives, workers, mb, where["url"])
    ranks = stack.enter_context(Ranks(Reducer, workers))
    how = (workers, mb, names)
    return held_memory.measure(ranks, where["url"], where["run"], where["scratch"], *how)


_PARTS = {"capped": _capped, "uncapped": _uncapped, "memory": _memory}


def _tbf(asked: argparse.Namespace, session: Session) -> list[dict[str, Any]] | None:
    """None if it cannot be done here, and was not asked for by name."""
    if not namespaces.possible():
        if asked.tbf:
            raise RequestError("--tbf needs root, ip and tc: sudo apt install iproute2")
        return None
    need("redis-server", "redis-server")
    case = Case(
        workers=min(asked.workers) if asked.workers else _WORKERS[0],
        mb=asked.mb or _scaled(asked, _MB),
        rate_mb_per_s=asked.rate or _RATE,
        latency_ms=0.0,
        collectives=asked.collectives or list(_COMPARED),
    )
    operations = max(1, asked.operations // _TBF_SHARE)
    _refuse_rounding([case.workers], operations)
    say(f"the kernel's token bucket: {case}")
    return by_kernel.measure(session.root / "rendezvous", case, operations, asked.rounds)


def _cases(asked: argparse.Namespace, url: str) -> list[Case]:
    """As asked; or the aims, if nothing was."""
    link = {
        "rate_mb_per_s": asked.rate or _RATE,
        "latency_ms": _LATENCY_MS if asked.latency is None else asked.latency,
    }
    mb = asked.mb or _scaled(asked, _MB)
    cases = [
        Case(workers=n, mb=mb, collectives=_fitting(asked.collectives, n, mb, url), **link)
        for n in asked.workers or _WORKERS
    ]
    if (asked.workers, asked.mb, asked.rate, asked.latency) == (None,) * 4:
        n, mb, rate, latency_ms = _LARGE
        mb = _scaled(asked, mb)
        names = _fitting(asked.collectives, n, mb, url)
        few = names if asked.collectives else [name for name in names if name in _COMPARED]
        link = {"rate_mb_per_s": rate, "latency_ms": latency_ms}
        cases.append(Case(workers=n, mb=mb, collectives=few, **link))
    _refuse_rounding([case.workers for case in cases], asked.operations)
    return cases


def _fitting(names: list[str] | None, workers: int, mb: float, url: str) -> list[str]:
    """See `fitting`."""
    whatever = {"name": "", "bytes_per_s": 1.0, "latency_s": 0.0}
    abilities = channel_kind(url).abilities
    size = size_bytes(mb)
    return fitting(
        names, AllReduce(world_size=workers, size_bytes=size, abilities=abilities, **whatever)
    )


def _refuse_rounding(workers: Sequence[int], operations: int) -> None:
    for count in workers:
        if not sums.exact(count, operations):
            raise RequestError(
                f"the sums of {operations} all-reduces in a row on {count} workers are not exact "
                "in float32, so they could not be checked: give a power of 2, or fewer --operations"
            )


def _scaled(asked: argparse.Namespace, mb: float) -> float:
    return mb * _QUICK_SHARE if asked.quick else mb


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    on_what, rounds = result["machine"], result["rounds"]
    whole = Table.grid(padding=(1, 0))
    whole.add_row(
        f"on {on_what['cores']} cores of {on_what['cpu']}, torch {on_what['torch']}, Python "
        f"{on_what['python']}, load before: {on_what['load']}"
    )
    if result.get("capped"):
        whole.add_row(under_caps.table(result["capped"], result["channel"], rounds))
    if result.get("uncapped"):
        over, free = result["uncapped_channel"], _FREE_ROUNDS_A_ROUND * rounds
        whole.add_row(beside_gloo.table(result["uncapped"], over, free))
    if result.get("tbf"):
        whole.add_row(by_kernel.table(result["tbf"], rounds))
    elif "tbf" in result:
        whole.add_row("the kernel's token bucket was left out: it needs root, ip and tc")
    if result.get("memory"):
        whole.add_row(held_memory.table(result["memory"], result["channel"]))
    return whole


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    """The options; argparse says what is wrong with them and exits with 2."""
    parser = argparse.ArgumentParser(
        prog="dayfly bench collectives",
        description="Time of an all-reduce over the bound, and beside gloo.",
        epilog="--json prints one JSON object as the last line of standard output. MB: 10^6 bytes.",
        allow_abbrev=False,
    )
    for name, what in (
        ("capped", "at rates and latency, over the bound"),
        ("uncapped", "as fast as it goes, beside gloo"),
        ("tbf", "our rates beside those of the kernel (root)"),
        ("memory", "what a collective takes beside the buffer"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=f"only this: {what}")
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
        help="as many of collectives far above the bound, too (default: half the time for them)",
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
    above_zero = {
        "--mb": asked.mb,
        "--rate": asked.rate,
        "--operations": asked.operations,
        "--rounds": asked.rounds,
    }
    for name, figure in above_zero.items():
        if figure is not None and not 0 < figure < float("inf"):
            raise RequestError(f"{name} {figure:g}: give a number above 0")
    if asked.latency is not None and not 0 <= asked.latency < float("inf"):
        raise RequestError(f"--latency {asked.latency:g}: give milliseconds, 0 or more")
    for count in asked.workers or ():
        if not 2 <= count <= 64:
            raise RequestError(f"--workers {count}: give 2 to 64")
