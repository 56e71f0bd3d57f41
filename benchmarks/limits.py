"""`dayfly bench limits`: are uplink and downlink as fast as asked, both at once?

    process 0    |== puts at w MB/s ==|       its own messages, dropped once they are there
                 |== gets at w MB/s ==|       one message again and again, put beforehand
    process 1    the same, at the same time

A share is the rate that was reached over the one that was asked for: bytes on the wire (payload and
header) from the first call to the return of the last.

As root the same number of bytes is also sent by TCP between two network namespaces, each of whose
ends the kernel holds to the rate (`tc tbf`), both ways at once; once, for the cross-check.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from statistics import fmean
from typing import Any

import torch
from rich import box
from rich.table import Table

from benchmarks.parts import namespaces
from benchmarks.parts.ranks import die_with
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import EVERYONE, HEADER_BYTES, Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, ShapedLink

RATES_MB_PER_S = (10.0, 20.0, 40.0, 70.0)
_START_TIMEOUT_S = 120.0
_NAMESPACE = Namespace("bench", 0)


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; the result has `rows`, one a rate.

    Raises RunFailed if a process fails.
    """
    asked = _arguments(args)
    load = os.getloadavg()[0]
    rows = measure(asked.rates, asked.seconds, asked.rounds, int(asked.message_mb * 1e6))
    by_kernel = not asked.without_tbf and namespaces.possible()
    if by_kernel:
        for row in rows:
            _say(f"tc tbf at {row['asked_mb_per_s']:g} MB/s")
            rate = 1e6 * row["asked_mb_per_s"]
            shares = namespaces.shares_of_tbf(rate, int(rate * asked.seconds))
            row["tbf"] = shares
            row["time_by_tbf"] = fmean(shares) / row["share"]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(load, 2),
        "seconds": asked.seconds,
        "rounds": asked.rounds,
        "message_mb": asked.message_mb,
        "tbf": by_kernel,
        "rows": rows,
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    shown = Table(
        title=f"rate reached / asked for, {result['rounds']} rounds of {result['seconds']:g} s, "
        f"messages of {result['message_mb']:g} MB\non {result['cores']} cores, load before: "
        f"{result['load']}",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        caption_justify="left",
        caption="tbf: the kernel's bucket; time: ours / tbf's for as many bytes"
        if result["tbf"]
        else "the kernel's bucket was left out: it needs root, ip and tc",
    )
    for title in ("MB/s", "up", "least to most", "down", "least to most", "tbf", "time"):
        shown.add_column(title, justify="right", no_wrap=True)
    for row in result["rows"]:
        cells = [f"{row['asked_mb_per_s']:g}"]
        for way in ("up", "down"):
            cells += [f"{fmean(row[way]):.4f}", f"{min(row[way]):.4f} to {max(row[way]):.4f}"]
        if "tbf" in row:
            cells += [f"{fmean(row['tbf']):.4f}", f"{row['time_by_tbf']:.4f}"]
        shown.add_row(*cells)
    return shown


def measure(
    rates_mb_per_s: Sequence[float], seconds: float, rounds: int, message_bytes: int
) -> list[dict[str, Any]]:
    """A row a rate: the shares of both processes in all rounds, each way, and their mean."""
    rows = []
    for rate in rates_mb_per_s:
        up: list[float] = []
        down: list[float] = []
        for number in range(rounds):
            _say(f"{rate:g} MB/s, round {number + 1} of {rounds}")
            for one_up, one_down in _both_ways(1e6 * rate, seconds, message_bytes):
                up.append(one_up)
                down.append(one_down)
        rows.append({"asked_mb_per_s": rate, "up": up, "down": down, "share": fmean(up + down)})
    return rows


def _both_ways(rate: float, seconds: float, message_bytes: int) -> list[tuple[float, float]]:
    """Shares (up, down) of two processes that use their lines at once."""
    context = get_context("spawn")
    results = context.Queue()
    together = context.Barrier(2)
    # As much as is sent between two looks at what can be dropped, and some to spare.
    ahead_bytes = 4 * message_bytes + int(rate / 4)
    budget_bytes = 4 * ahead_bytes + 2**24
    with (
        Session.open() as session,
        FileChannel.make(
            session.root,
            _NAMESPACE,
            senders=2,
            budget_bytes=budget_bytes,
            ahead_bytes=ahead_bytes,
        ),
    ):
        arguments = (session.root, rate, seconds, message_bytes, together, results)
        processes = [
            context.Process(target=_peer, args=(os.getpid(), rank, *arguments), daemon=True)
            for rank in range(2)
        ]
        try:
            for process in processes:
                process.start()
            until = time.monotonic() + _START_TIMEOUT_S + 10 * seconds
            shares: list[tuple[float, float]] = []
            while len(shares) < len(processes):
                with suppress(Empty):
                    shares.append(results.get(timeout=0.2))
                if any(process.exitcode for process in processes) or time.monotonic() > until:
                    raise RunFailed("a process that was to be measured failed; see above")
            return shares
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()


def _peer(
    parent: int,
    rank: int,
    root: Path,
    rate: float,
    seconds: float,
    message_bytes: int,
    together: Any,
    results: Any,
) -> None:
    die_with(parent)
    torch.set_num_threads(1)
    value = torch.ones(message_bytes, dtype=torch.uint8)
    header = Header("bench", value.dtype, (message_bytes,))
    wire_bytes = message_bytes + HEADER_BYTES
    times = max(1, round(rate * seconds / wire_bytes))
    channel = FileChannel(root, _NAMESPACE)
    way = ShapedLink(Rates(up_bytes_per_s=rate, down_bytes_per_s=rate))
    waiting = Key(0, "bench", rank, rank)
    channel.put(waiting, header, as_bytes(value))
    with ShapedChannel(channel, way) as shaped:
        # Once without counting, so that the measured ones find everything loaded and in place.
        shaped.get(waiting, value.clone(), 10.0)
        shaped.put(Key(1, "bench", rank, EVERYONE), header, as_bytes(value))
        took_s = [0.0, 0.0]
        there: list[Key] = []

        def upload() -> None:
            began = time.monotonic()
            for number in range(times):
                key = Key(number + 2, "bench", rank, EVERYONE)
                shaped.put(key, header, as_bytes(value))
                there.append(key)
            took_s[0] = time.monotonic() - began

        def download() -> None:
            into = value.clone()
            began = time.monotonic()
            for _ in range(times):
                shaped.get(waiting, into, 10.0)
            took_s[1] = time.monotonic() - began

        threads = [threading.Thread(target=one) for one in (upload, download)]
        together.wait(_START_TIMEOUT_S)
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            # Beside the transfers, as the time that it takes is not the line's.
            shaped.drop([there.pop() for _ in range(len(there))])
            time.sleep(0.05)
    up, down = (times * wire_bytes / one / rate for one in took_s)
    results.put((up, down))


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("dayfly bench limits")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_MB_PER_S, metavar="MB/s")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="a rate (default: 3)")
    parser.add_argument("--message-mb", type=float, default=1.0, help="size of one (default: 1)")
    parser.add_argument("--without-tbf", action="store_true", help="leave the cross-check out")
    return parser.parse_args(args)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
