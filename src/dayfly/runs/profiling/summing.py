"""Sums by the run's collective, of functions that send each other messages.

    short    pass | a sum of 16 numbers             what a sum takes by itself, and its latency
    long     pass | sums of up to 16 MB together    what each of their messages takes

Long sums are as many at once as an engine runs over this channel, since threads that wait for each
other make messages dearer. What sums take is the CPU time of all threads of their function, that of
the bucket's included in which a run has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from dayfly.runs.task import Task
from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import collective
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key
from dayfly.wire.schedule import MOST_CHUNKS, Kind

#: Elements of the sum whose messages take no time but their latency.
FEW = 16
#: Rest before a sum, in seconds: longer than the period after which a function gets its share of
#: the CPU anew.
PAUSE_S = 0.03
#: Of float32.
ITEM_BYTES = 4
#: Bytes of all long sums of one time, at most; and how many messages more than as many short sums
#: they need, at least: with fewer, the time of a message cannot be told from that of a sum.
_LONG_BYTES = 2**24
_MORE_MESSAGES = 8
#: A sum takes about so many times as long as one message of its bytes: up, down, and added.
THERE_AND_BACK = 3


def long_length(task: Task, chunk_bytes: int, most_bytes: float, at_once: int) -> int:
    """Returns elements of long sums, of all that are made at once together.

    Args:
        task: of either rank.
        chunk_bytes: the channel's.
        most_bytes: of all of them.
        at_once: how many there are.

    Returns:
        0 if the collective makes hardly more messages of them than of as many short ones.
    """
    nbytes = min(2 * MOST_CHUNKS * chunk_bytes, _LONG_BYTES)
    while nbytes > most_bytes:
        nbytes //= 2
    length = nbytes // ITEM_BYTES
    found = collective(task.collective, task.aggregators, 2)
    chunk = max(1, chunk_bytes // ITEM_BYTES)
    few, many = (
        sum(op.name is not None for op in found.schedule(0, 2, one, frozenset(), chunk=chunk))
        for one in (FEW, max(FEW, length // at_once))
    )
    return length if at_once * (many - few) >= _MORE_MESSAGES else 0


def timed_sums(
    task: Task,
    channel: Channel,
    run: Callable[[], None],
    length: int,
    times: int,
    at_once: int = 1,
) -> Mapping[str, Any]:
    """Sums by the run's collective: they take what their messages do, and lanes.

    Args:
        task: the rank's.
        channel: to the other one.
        run: a pass of the job, before each sum.
        length: elements of a sum; of all that are made at once together.
        times: that they are made, beside a first one that does not count.
        at_once: how many sums.

    Returns:
        Of each time `wall_s` and `cpu_s`; of one, how many `sums` it has, `puts` and `gets` of all
        of them, and bytes that are put, got and added.
    """
    found = collective(task.collective, task.aggregators, 2)
    walls, cpus = [], []
    with Engine(channel, found, task.rank, 2, timeout_s=task.wait_timeout_s) as engine:
        sums = {f"sum-{length}-{one}": torch.zeros(length // at_once) for one in range(at_once)}
        own = [
            (operation, name)
            for operation, numbers in sums.items()
            for name in engine.sums(numbers)
            if name.source == task.rank
        ]
        with ThreadPoolExecutor(at_once, thread_name_prefix="dayfly-sums") as pool:
            for number in range(1 + times):
                run()
                if task.rank == 0:
                    time.sleep(PAUSE_S)  # so that the other waits for this one, always
                began, whole = time.perf_counter(), time.process_time()
                for summed in [
                    pool.submit(engine.all_reduce, numbers, number, operation)
                    for operation, numbers in sums.items()
                ]:
                    summed.result()
                walls.append(time.perf_counter() - began)
                cpus.append(time.process_time() - whole)
                if number and own:  # the other had the sums before these when it began these
                    channel.drop([message_key(number - 1, *one) for one in own])
        schedule = [op for numbers in sums.values() for op in engine.schedule(numbers)]
    puts = [op for op in schedule if op.kind is Kind.PUT]
    gets = [op for op in schedule if op.kind in (Kind.GET, Kind.FETCH)]
    added = sum((len(op.terms) - 1) * len(op.span) for op in schedule if op.kind is Kind.REDUCE)
    return {
        "wall_s": walls[1:],
        "cpu_s": cpus[1:],
        "sums": at_once,
        "puts": len(puts),
        "gets": len(gets),
        "put_bytes": ITEM_BYTES * sum(len(op.span) for op in puts),
        "got_bytes": ITEM_BYTES * sum(len(op.span) for op in gets),
        "added_bytes": ITEM_BYTES * added,
    }
