"""Virtual time on arrays: the moments of `simulation`, to the bit."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from dayfly.native import Loop
from dayfly.wire import simulation
from dayfly.wire.collectives import collective
from dayfly.wire.loop import compiled, events, plain
from dayfly.wire.loop.flattened import ends_s, flattened, moments
from dayfly.wire.loop.records import RECORDS, State
from dayfly.wire.processor import SharedProcessor
from dayfly.wire.schedule import CompiledSchedule, Kind, Name, Op, Schedule, Span, Work
from dayfly.wire.streams import (
    ALONE,
    Direction,
    HostLink,
    Rank,
    ServingThread,
    Shared,
    Stream,
    repeated,
)

_SUMS = ("scatter-reduce", "all-reduce", "pipelined", "ring", "overlapped")


def _chain(chance: Random) -> Stream:
    """Some passes, one after another; of nobody, too, as of a stage without micro-batches."""
    seconds = [chance.choice((0.0, 0.01, 0.3)) for _ in range(chance.randrange(4))]
    ops = tuple(
        Op(Kind.COMPUTE, Span(0, 0), work=Work("pass", n), after=(n - 1,) if n else ())
        for n in range(len(seconds))
    )
    plan = CompiledSchedule(Schedule(ops))
    return Stream(plan=plan, works_s=seconds)


def _travelling(span: Span, total: bool) -> int:
    return (2 + total) * len(span)


def random_ranks(seed: int) -> tuple[list[Rank], Shared]:
    """A step of some workers: passes, sums that begin within or behind them, and passes again."""
    chance = Random(seed)
    n = chance.randrange(2, 6)
    sums = [
        (chance.choice(_SUMS), chance.randrange(5, 400), chance.choice(("buckets", None)))
        for _ in range(chance.randrange(1, 4))
    ]
    pieces_s = chance.choice((math.inf, 0.02))
    direct, held = chance.random() < 0.3, chance.random() < 0.5
    apart: dict[str, Any] = {"alone": chance.random() < 0.2, "in_flight": chance.choice((1, 2, 5))}
    begin_s, message_s = chance.choice((0.0, 0.01)), chance.choice((0.0, 0.004))
    cpu_s, each_s = chance.choice((0.0, 0.003)), chance.choice((0.0, 1e-5))
    ranks = []
    for rank in range(n):
        streams = [_chain(chance)]
        passes = len(streams[0].plan.numbers)
        for name, (algorithm, length, pool) in enumerate(sums):
            how = collective(algorithm, None, n)
            after = ((0, chance.choice((None, *range(passes)))),) if name else ()
            streams.append(
                Stream(
                    plan=CompiledSchedule(how.schedule(rank, n, length, chunk=16)),
                    name=name,
                    member=rank,
                    members=n,
                    after=after,
                    pool=pool,
                    at_once=2,
                    begin_s=begin_s,
                    message_s=message_s,
                    travelling=None if chance.random() < 0.7 else _travelling,
                    **apart,
                )
            )
        last = replace(_chain(chance), after=tuple((at, None) for at in range(len(streams))))
        up, down = (
            Direction(
                occupied_s=chance.choice((1e3, 7e3)).__rtruediv__,
                latency_s=chance.choice((0.0, 0.05)),
                piece_s=pieces_s,
                cpu_s=cpu_s,
                cpu_s_per_byte=each_s,
            )
            for _ in range(2)
        )
        share, period_s = chance.choice(((math.inf, 0.0), (0.5, 0.02), (1.5, 0.1), (0.7, 0.0)))
        ranks.append(
            Rank(
                streams=[*streams, last],
                up=up,
                down=down,
                processor=SharedProcessor(share, period_s, chance.random() * period_s),
                header_bytes=chance.choice((0, 128)),
                direct=direct,
                held=held,
                reduce_s_per_byte=chance.choice((0.0, 1e-5)),
                early=chance.random() < 0.5,
                is_store=chance.random() < 0.1,
            )
        )
    shared = Shared(
        store=chance.choice((None, ServingThread(cpu_s=0.001, cpu_s_per_byte=1e-6))),
        store_bytes_per_s=chance.choice((math.inf, 2e4)),
        host=chance.choice((None, HostLink(functions=2, bytes_per_s=9e3))),
    )
    return ranks, shared


def same(left: int, state: State, ranks: list[Rank], shared: Shared, steps: int = 1) -> bool:
    """Whether `simulation` finds the same, which may be that something waits for ever."""
    try:
        expected = plain.Run(repeated(ranks, steps), shared).run()
    except ValueError:
        return left > 0
    through = [max((max(one.done_s, default=0) for one in each), default=0) for each in expected]
    assert left or ends_s(state, ranks, steps) == through
    assert str(moments(state, ranks[:1], steps)) == str(moments(state, ranks, steps)[:1])
    for mine, its in zip(moments(state, ranks, steps), expected, strict=True):
        for one, other in zip(mine, its, strict=True):
            for name in ("start_s", "free_s", "done_s"):
                found, wanted = (np.array(getattr(of, name)) for of in (one, other))
                if not np.array_equal(found, wanted, equal_nan=True):
                    return False
    return left == 0


@pytest.mark.parametrize("seed", range(9))
def test_the_loop_finds_the_same_moments(seed: int) -> None:
    """As plain Python, which is what numba compiles; of one step, and of steps in a row."""
    ranks, shared = random_ranks(seed)
    steps = 1 + seed % 3
    state = flattened(ranks, shared, steps)
    records = {name: getattr(state, name).view(np.recarray) for name in RECORDS}
    left = events.run_events(state._replace(**records))
    assert same(left, state, ranks, shared, steps)


def test_one_plan_with_neighbours_of_its_own() -> None:
    """Ranks that pass something on have one plan, whose names are labelled by their number."""
    passed = Op(Kind.GET, Span(0, 9), name=Name("on", 0, 1))
    work = Op(Kind.COMPUTE, Span(0, 0), work=Work("pass", 0), after=(0,))
    on = Op(Kind.PUT, Span(0, 9), name=Name("on", 1, 2))
    first = CompiledSchedule(Schedule((on,)))
    others = CompiledSchedule(Schedule((passed, work, replace(on, after=(1,)))))
    plans = [first, others, others, others]
    way = Direction(occupied_s=float)
    streams = [
        Stream(plan=plan, name="a", member=rank, members=4, itemsize=1, labels=labels)
        for rank, plan in enumerate(plans)
        for labels in [(rank - 1, rank, rank + 1)]
    ]
    ranks = [Rank(streams=[one], up=way, down=way) for one in streams]
    state = flattened(ranks, ALONE)
    records = {name: getattr(state, name).view(np.recarray) for name in RECORDS}
    assert same(events.run_events(state._replace(**records)), state, ranks, ALONE)
    ((last,),) = simulation.run(ranks)[3:]
    assert last.done_s[0] == 6 * 9.0


@pytest.mark.slow
def test_compiled_too() -> None:
    pytest.importorskip("numba")
    assert isinstance(compiled.load(), Loop), "it needs more than memory"
    for seed in range(200):
        ranks, shared = random_ranks(seed)
        steps = 1 + seed % 3
        state = flattened(ranks, shared, steps)
        assert same(compiled.load()(state), state, ranks, shared, steps)


def test_what_waits_for_ever_is_named() -> None:
    """The loop says that something is left; `simulation` says what."""
    ranks, shared = random_ranks(0)
    alone = [replace(ranks[0], streams=ranks[0].streams[:2])]
    state = flattened(alone, shared)
    records = {name: getattr(state, name).view(np.recarray) for name in RECORDS}
    assert events.run_events(state._replace(**records)) > 0
    with pytest.raises(ValueError, match="rank 0 waits for ever"):
        simulation.run(alone, shared)
