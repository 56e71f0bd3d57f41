"""The loop of virtual time on objects: what `events` does on arrays, for any ranks."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from dayfly.wire.keys import EVERYONE
from dayfly.wire.processor import Cores, SharedProcessor
from dayfly.wire.schedule import Kind, Name, Op
from dayfly.wire.streams import COMPUTE, DOWN, UP, LaneRow, Line, Live, Moments, Rank, Shared

_TRANSFERS = (Kind.PUT, Kind.GET, Kind.FETCH)

#: What happens at a moment: a line carried a piece; an operation's effect is there; a message came
#: for one reader; a processor may have done a job; CPU work of an upload begins.
_CARRIED, _DONE, _CAME, _COMPUTED, _STORES = range(5)
#: In place of an operation's position: what a stream takes before its first.
_BEGINNING = -1


class Run:
    """Events in the order of their time.

    Args:
        ranks: all of them; their processors have no jobs yet.
        shared: what they have together.
    """

    def __init__(self, ranks: Sequence[Rank], shared: Shared) -> None:
        self._ranks, self._shared, self._at_store = ranks, shared, len(ranks)
        # Behind the ranks' the store's thread, what it carries up and down, and so each host.
        hosts = 0 if shared.host is None else -(-len(ranks) // shared.host.functions)
        others = [SharedProcessor(1.0) for _ in range(3 + 2 * hosts)]
        self._processors = [*(rank.processor for rank in ranks), *others]
        limited = shared.cores < math.inf
        computing = self._processors[: self._at_store + 1]
        self._cores = Cores(shared.cores, computing) if limited else None
        self._live: list[Live] = []
        self._lines = [(Line(UP, rank.up), Line(DOWN, rank.down)) for rank in ranks]
        self._there: set[tuple[Hashable, int | None]] = set()
        self._waiting: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        self._events: list[tuple[float, int, int, int, int, float, Line | None]] = []
        self._pushed, self._now = 0, 0.0
        self._jobs: list[tuple[int, int]] = []  # what each is of, by number
        self._alarm = [0] * len(self._processors)  # the latest look at each
        self._turns: dict[tuple[int, str], int] = {}
        self._queues: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._rows: dict[LaneRow, Live] = {}  # stirred, of this moment
        self._stirred: dict[Line, None] = {}
        for number, rank in enumerate(ranks):
            before = len(self._live)
            mine = [Live(number, before + n, one, rank) for n, one in enumerate(rank.streams)]
            for one in mine:
                for other, position in one.stream.after:
                    mine[other].opens.setdefault(position, []).append(one)
            self._live += mine

    def run(self) -> tuple[tuple[Moments, ...], ...]:
        """To the end; returns the moments of each rank's streams.

        Raises:
            ValueError: an operation waits for ever.
        """
        events, pop = self._events, heapq.heappop
        for one in [one for one in self._live if not one.gates]:
            self._open(one)
        while True:
            # All of a moment before anything is decided, so that ties are broken by the list.
            self._settle()
            if not events:
                break
            now = self._now = events[0][0]
            while events and events[0][0] == now:
                _, _, what, a, b, c, line = pop(events)
                if line is not None:
                    if a == line.alarm:
                        self._carried(line)
                elif what == _DONE:
                    self._done(self._live[a], b)
                else:
                    self._happen(what, a, b, c)
        self._check()
        found: list[list[Moments]] = [[] for _ in self._ranks]
        for one in self._live:
            found[one.rank].append(Moments(one.start, one.free, one.done))
        return tuple(map(tuple, found))

    def _settle(self) -> None:
        """Start what may start now, and carry what is first."""
        while self._rows or self._stirred:
            rows, self._rows = self._rows, {}
            for row, one in rows.items():
                if one.begun:
                    self._advance(one, row)
            if not self._rows:
                lines, self._stirred = self._stirred, {}
                for line in lines:
                    if line.asked and not line.busy:
                        self._carry(line)

    def _push(
        self, at: float, what: int, a: int, b: int, c: float = 0.0, line: Line | None = None
    ) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at, self._pushed, what, a, b, c, line))

    def _happen(self, what: int, a: int, b: int, c: float) -> None:
        if what == _COMPUTED:
            if self._alarm[a] == b:
                self._computed(a)
        elif what == _STORES:
            self._job(self._live[a], b, c)
        else:
            op = self._live[a].ops[b]
            assert op.name is not None, f"{op} has no message"
            self._came(self._live[a], op.name, int(c))

    # Streams: they start in turns.

    def _open(self, one: Live) -> None:
        pool = one.stream.pool
        if pool is not None:
            key = one.rank, pool
            if self._turns.get(key, 0) >= one.stream.at_once:
                self._queues[key].append(one.number)
                return
            self._turns[key] = self._turns.get(key, 0) + 1
        if one.stream.begin_s:
            self._job(one, _BEGINNING, one.stream.begin_s)
        else:
            self._begin(one)

    def _begin(self, one: Live) -> None:
        one.begun = True
        if not one.ops:
            self._over(one)
        for row in one.rows:
            self._rows[row] = one

    def _over(self, one: Live) -> None:
        for other in one.opens.get(None, ()):
            self._met(other)
        if one.stream.pool is not None:
            key = one.rank, one.stream.pool
            self._turns[key] -= 1
            if self._queues[key]:
                self._open(self._live[self._queues[key].pop(0)])

    def _met(self, one: Live) -> None:
        one.gates -= 1
        if not one.gates:
            self._open(one)

    # Operations.

    def _advance(self, one: Live, row: LaneRow) -> None:
        most, unmet, queue = min(row.first + row.width, len(row.queue)), one.unmet, row.queue
        while row.started < most:
            position = queue[row.started]
            if unmet[position]:
                break
            row.started += 1
            self._start(one, position)

    def _start(self, one: Live, position: int) -> None:
        """What it waited for is done; its message may be still to come."""
        op = one.ops[position]
        kind = op.kind
        if kind is Kind.PUT:
            self._ask(one, position, UP)
        elif kind in _TRANSFERS:
            name = op.name
            assert name is not None, f"{op} has no message"
            key = one.message(name)
            if (key, None) in self._there or (key, one.stream.member) in self._there:
                self._take(one, position)
            else:
                self._waiting[key].append((one.number, position))
        else:
            one.start[position] = self._now
            self._job(one, position, self._cpu_s(one, position))

    def _cpu_s(self, one: Live, position: int) -> float:
        op = one.ops[position]
        if op.kind is not Kind.REDUCE:
            return one.works_s.get(position, 0.0)
        rank = one.has
        terms = min(2, len(op.terms)) if rank.early else len(op.terms)
        size = (op.span.stop - op.span.start) * one.stream.itemsize
        return size * (terms - 1) * rank.reduce_s_per_byte

    def _take(self, one: Live, position: int) -> None:
        """A message is there: its bytes come in, and are worked on."""
        rank, op = one.has, one.ops[position]
        size = one.nbytes[position]
        cpu_s = one.stream.message_s + rank.down.cpu_s + rank.down.cpu_s_per_byte * size
        if rank.early and op.kind is Kind.FETCH:
            cpu_s += size * rank.reduce_s_per_byte
        one.parts[position] = 1
        if cpu_s or rank.processor.stands_still:
            one.parts[position] = 2
            self._job(one, position, cpu_s)
        if not rank.is_store:
            self._serve(one, position, DOWN)
        self._ask(one, position, DOWN)

    def _serve(self, one: Live, position: int, which: int) -> None:
        """What is shared begins with its part of a message: the store's thread, store, and host."""
        size, at, op = one.nbytes[position], self._at_store, one.ops[position]
        whole, parts = size + one.has.header_bytes, []
        if (store := self._shared.store) is not None:
            parts.append((store.cpu_s + store.cpu_s_per_byte * size, at))
        if (rate := self._shared.store_bytes_per_s) < math.inf:
            parts.append((whole / rate, at + 1 + which))
        if (host := self._shared.host) is not None:
            copies = one.stream.members - 1 if which == UP and self._copies(one, op) else 1
            where = at + 3 + 2 * (one.rank // host.functions) + which
            parts.append((copies * whole / host.bytes_per_s, where))
        for seconds, where in parts:
            one.parts[position] = one.parts.get(position, 1) + 1
            self._job(one, position, seconds, where)

    def _ask(self, one: Live, position: int, which: int) -> None:
        """Ask for a turn of the line."""
        rank, op = one.has, one.ops[position]
        line = self._lines[one.rank][which]
        whole_s = line.way.occupied_s(rank.header_bytes + one.nbytes[position])
        if which == UP and self._copies(one, op):
            whole_s *= one.stream.members - 1
        pieces = 1 if line.way.piece_s == math.inf else math.ceil(whole_s / line.way.piece_s) or 1
        if line.is_ahead(self._now):
            self._look_at(line, line.back_to(self._now))
        line.ask(self._now, (one.number, position, whole_s / pieces, pieces))
        self._stirred[line] = None

    def _copies(self, one: Live, op: Op) -> bool:
        assert op.name is not None, f"{op} has no message"
        return one.has.direct and op.name.destination == EVERYONE

    def _carry(self, line: Line) -> None:
        """Begin with a piece of whoever asked first."""
        begins = line.take()
        number, position, each_s, left = line.carries
        one = self._live[number]
        if begins:
            one.start[position] = self._now
            if line.which == UP and not one.has.is_store:
                self._serve(one, position, UP)
            if line.which == UP and not left and self._copies(one, one.ops[position]):
                self._reach_each(one, position, each_s)
        self._look_at(line, line.go_on(self._now))

    def _look_at(self, line: Line, at: float) -> None:
        """Then, and not when it was to be looked at before."""
        line.alarm += 1
        self._push(at, _CARRIED, line.alarm, 0, 0.0, line)

    def _reach_each(self, one: Live, position: int, whole_s: float) -> None:
        """Tell each reader when the copy that is its own has come."""
        members, op = one.stream.members, one.ops[position]
        assert op.name is not None, f"{op} has no message"
        first = one.stream.member + 1 if op.name.source == one.stream.member else 0
        readers = [(first + nth) % members for nth in range(members)]
        readers.remove(one.stream.member)
        latency_s = one.has.up.latency_s
        for nth, reader in enumerate(readers, 1):
            at = self._now + nth * whole_s / len(readers) + latency_s
            self._push(at, _CAME, one.number, position, reader)

    def _carried(self, line: Line) -> None:
        """A piece; the rest of its message asks again."""
        number, position, _, left = line.carries
        line.busy = False
        self._stirred[line] = None
        if left:
            line.ask(self._now, line.carries, begun=True)
            return
        one = self._live[number]
        one.free[position] = self._now
        rank, way = one.has, line.way
        if not (rank.held or one.stream.alone):
            row = one.rows[one.lane[position]]
            row.finish(position)
            self._rows[row] = one
        effect_s = self._now + way.latency_s
        if line.which == DOWN:
            self._push(effect_s, _DONE, one.number, position)
            return
        size = one.nbytes[position]
        cpu_s = one.stream.message_s + way.cpu_s + way.cpu_s_per_byte * size
        if cpu_s or rank.processor.stands_still:
            begins_s = max(one.start[position], self._now, effect_s - cpu_s)
            self._push(begins_s, _STORES, one.number, position, cpu_s)
        else:
            self._push(effect_s, _DONE, one.number, position)

    def _done(self, one: Live, position: int) -> None:
        """The effect is there, as soon as all parts of it are."""
        if position == _BEGINNING:
            self._begin(one)
            return
        op = one.ops[position]
        if position in one.parts:
            one.parts[position] -= 1
            if one.parts[position]:
                return
        one.done[position] = self._now
        lane = one.lane[position]
        row = one.rows[lane]
        if one.stream.alone or lane == COMPUTE or one.has.held:
            row.finish(position)
        self._rows[row] = one
        if op.kind is Kind.PUT and op.name is not None:
            self._stored(one, position, op.name)
        elif lane == COMPUTE:
            one.free[position] = self._now
        for later in one.stream.plan.dependents[position]:
            one.unmet[later] -= 1
            if not one.unmet[later]:
                self._rows[one.rows[one.lane[later]]] = one
        one.left -= 1
        for other in one.opens.get(position, ()):
            self._met(other)
        if not one.left:
            self._over(one)

    def _stored(self, one: Live, position: int, name: Name) -> None:
        op = one.ops[position]
        if not self._copies(one, op):
            self._came(one, name, None)
        elif one.has.up.piece_s != math.inf:
            for reader in range(one.stream.members):
                self._came(one, name, reader)

    def _came(self, one: Live, name: Name, reader: int | None) -> None:
        key = one.message(name)
        self._there.add((key, reader))
        waiting = self._waiting.pop(key, [])
        if reader is not None and waiting:
            others = [of for of in waiting if self._live[of[0]].stream.member != reader]
            if others:
                self._waiting[key] = others
            waiting = [of for of in waiting if self._live[of[0]].stream.member == reader]
        for number, position in waiting:
            self._take(self._live[number], position)

    # The processor.

    def _job(self, one: Live, position: int, cpu_s: float, where: int | None = None) -> None:
        """Makes a job of the processor `where`; None: the rank's own."""
        number = one.rank if where is None else where
        processor = self._processors[number]
        if processor.unlimited and self._cores is None:
            self._push(self._now + cpu_s, _DONE, one.number, position)
            return
        self._jobs.append((one.number, position))
        processor.add(cpu_s, len(self._jobs) - 1, self._now)
        self._look_again(number)

    def _look_again(self, number: int) -> None:
        """Sets when the first job ends of this processor, and of each whose speed has changed."""
        cores = self._cores
        changed = [] if cores is None else cores.share_out(self._now)
        for which in dict.fromkeys((number, *changed)):
            processor = self._processors[which]
            at = processor.next_s() if cores is None else processor.turn_s()
            if at < math.inf:
                self._alarm[which] += 1
                self._push(max(at, self._now), _COMPUTED, which, self._alarm[which])

    def _computed(self, number: int) -> None:
        processor = self._processors[number]
        if self._cores is not None and not processor.is_done(self._now):
            self._look_again(number)
            return
        stream, position = self._jobs[processor.finish(self._now)]
        self._look_again(number)
        self._done(self._live[stream], position)

    def _check(self) -> None:
        for one in self._live:
            if one.left:
                op = next(op for op, s in zip(one.ops, one.done, strict=True) if math.isnan(s))
                raise ValueError(f"rank {one.rank} waits for ever: {op}")
