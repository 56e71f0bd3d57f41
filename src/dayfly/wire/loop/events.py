"""The loop of virtual time: what `simulation` does, in the same order, to the bit."""

from __future__ import annotations

from dayfly.wire.loop.agenda import pop, push
from dayfly.wire.loop.lines import back_to, go_on, look_at, take_turn, wait_for
from dayfly.wire.loop.processors import job, look_again, take_job
from dayfly.wire.loop.records import (
    CAME,
    CARRIED,
    COMPUTE,
    COMPUTED,
    DONE,
    DOWN,
    NONE,
    STORES,
    UP,
    State,
)


def run_events(s: State) -> int:
    """Runs all operations; returns how many could never run, as what they wait for never comes."""
    for stream in range(len(s.streams) - 1, -1, -1):
        if s.streams[stream].gates == 0:
            _later(s, 3 * stream + 2)
    _follow(s)
    while True:
        _settle(s)
        if not s.run[0].events:
            break
        s.run[0].now_s = s.events[0].at_s
        while s.run[0].events and s.events[0].at_s == s.run[0].now_s:
            what, which, of = s.events[0].what, s.events[0].which, s.events[0].of
            pop(s)
            if what == CARRIED:
                _carried(s, which)
            elif what == DONE:
                _done(s, which)
            elif what == COMPUTED:
                whose = take_job(s, which)
                look_again(s, which)
                _done(s, whose)
            elif what == STORES:
                job(s, which, s.ops[which].work_s, s.streams[s.ops[which].stream].rank)
            else:
                _came(s, s.ops[which].message, of)
    left = 0
    for stream in range(len(s.streams)):
        left += s.streams[stream].left
    return left


def _stir_row(s: State, row: int) -> None:
    """It is looked at once, in the order in which rows were stirred first."""
    if not s.rows[row].stirred:
        s.rows[row].stirred = 1
        s.stirred[s.run[0].rows] = row
        s.run[0].rows += 1


def _stir_line(s: State, line: int) -> None:
    if not s.lines[line].stirred:
        s.lines[line].stirred = 1
        s.stirred[len(s.rows) + s.run[0].lines] = line
        s.run[0].lines += 1


def _settle(s: State) -> None:
    """Starts what may start now, and carries what is first."""
    first = len(s.rows)
    while s.run[0].rows or s.run[0].lines:
        count = s.run[0].rows
        s.run[0].rows = 0
        for at in range(count):
            row = s.stirred[at]
            s.looked_at[at] = row
            s.rows[row].stirred = 0
        for at in range(count):
            row = s.looked_at[at]
            if s.streams[s.rows[row].stream].begun:
                _advance(s, row)
        if s.run[0].rows:
            continue
        count = s.run[0].lines
        s.run[0].lines = 0
        for at in range(first, first + count):
            line = s.stirred[at]
            s.looked_at[at] = line
            s.lines[line].stirred = 0
        for at in range(first, first + count):
            line = s.looked_at[at]
            if s.lines[line].asked and not s.lines[line].busy:
                _carry(s, line)


# Streams: they start in turns.


def _later(s: State, code: int) -> None:
    """Leaves something to `_follow`, which says what the codes mean."""
    s.todo[s.run[0].todo] = code
    s.run[0].todo += 1


def _follow(s: State) -> None:
    """Does what is to be done about streams, the last first: 3 n, a gate of stream n is met;
    3 n + 1, its turn is over; 3 n + 2, it opens."""
    while s.run[0].todo:
        s.run[0].todo -= 1
        code = s.todo[s.run[0].todo]
        stream, what = code // 3, code % 3
        if what == 0:
            s.streams[stream].gates -= 1
            if s.streams[stream].gates:
                continue
        pool = s.streams[stream].pool
        if what == 1:
            s.pools[pool].turns -= 1
            stream = s.pools[pool].head
            if stream == NONE:
                continue
            s.pools[pool].head = s.streams[stream].behind
        if pool != NONE:
            if s.pools[pool].turns >= s.streams[stream].at_once:
                if s.pools[pool].head == NONE:
                    s.pools[pool].head = stream
                else:
                    s.streams[s.pools[pool].tail].behind = stream
                s.pools[pool].tail = stream
                s.streams[stream].behind = NONE
                continue
            s.pools[pool].turns += 1
        if s.streams[stream].begin_s:
            job(s, NONE - stream, s.streams[stream].begin_s, s.streams[stream].rank)
        else:
            _begin(s, stream)


def _begin(s: State, stream: int) -> None:
    s.streams[stream].begun = 1
    if s.streams[stream].empty:
        _over(s, stream)
    for lane in range(3):
        _stir_row(s, 3 * stream + lane)


def _over(s: State, stream: int) -> None:
    """What it opens comes before what waits for its turn."""
    if s.streams[stream].pool != NONE:
        _later(s, 3 * stream + 1)
    for at in range(s.streams[stream].opens_end - 1, s.streams[stream].opens - 1, -1):
        _later(s, 3 * s.opens[at])


# Operations.


def _advance(s: State, row: int) -> None:
    most = min(s.rows[row].first + s.rows[row].width, s.rows[row].end)
    while s.rows[row].started < most:
        op = s.queue[s.rows[row].started]
        if s.ops[op].unmet:
            break
        s.rows[row].started += 1
        _start(s, op)


def _start(s: State, op: int) -> None:
    """What it waited for is done; its message may be still to come."""
    lane, stream = s.ops[op].lane, s.ops[op].stream
    if lane == UP:
        _ask(s, op)
    elif lane == COMPUTE:
        s.ops[op].start_s = s.run[0].now_s
        job(s, op, s.ops[op].work_s, s.streams[stream].rank)
    elif _is_there(s, s.ops[op].message, s.streams[stream].member):
        _take(s, op)
    else:
        message = s.ops[op].message
        if s.messages[message].waits == NONE:
            s.messages[message].waits = op
        else:
            s.ops[s.messages[message].waits_last].next = op
        s.messages[message].waits_last = op
        s.ops[op].next = NONE


def _is_there(s: State, message: int, member: int) -> bool:
    if s.messages[message].there:
        return True
    return s.run[0].readers > 0 and s.readers[message * s.run[0].readers + member] > 0


def _take(s: State, op: int) -> None:
    """A message is there: its bytes come in, and are worked on."""
    rank = s.streams[s.ops[op].stream].rank
    s.ops[op].parts = 1
    if s.ops[op].works:
        s.ops[op].parts = 2
        job(s, op, s.ops[op].work_s, rank)
    if not s.lines[2 * rank + DOWN].is_store:
        _serve(s, op, DOWN)
    _ask(s, op)


def _serve(s: State, op: int, which: int) -> None:
    """What is shared begins with its part of a message."""
    if s.run[0].has_thread:
        s.ops[op].parts = max(s.ops[op].parts, 1) + 1
        job(s, op, s.ops[op].served_s, s.run[0].store)
    if s.run[0].has_rate:
        s.ops[op].parts = max(s.ops[op].parts, 1) + 1
        job(s, op, s.ops[op].stored_s, s.run[0].store + 1 + which)
    if s.run[0].on_host:
        s.ops[op].parts = max(s.ops[op].parts, 1) + 1
        host = s.streams[s.ops[op].stream].rank // s.run[0].on_host
        job(s, op, s.ops[op].hosted_s, s.run[0].store + 3 + 2 * host + which)


def _ask(s: State, op: int) -> None:
    """Asks for a turn of the line."""
    line = 2 * s.streams[s.ops[op].stream].rank + s.ops[op].lane
    if s.lines[line].busy and s.lines[line].last_s >= s.run[0].now_s:
        look_at(s, line, back_to(s, line))
    wait_for(s, line, s.run[0].now_s, op, s.ops[op].pieces)
    _stir_line(s, line)


def _carry(s: State, line: int) -> None:
    """Begins with a piece of whoever asked first."""
    begins = take_turn(s, line)
    op = s.lines[line].carries
    if begins:
        s.ops[op].start_s = s.run[0].now_s
        if s.ops[op].lane == UP:
            if not s.lines[line].is_store:
                _serve(s, op, UP)
            if not s.lines[line].rest and s.ops[op].copies:
                _reach_each(s, op, line)
    look_at(s, line, go_on(s, line))


def _reach_each(s: State, op: int, line: int) -> None:
    """Tells each reader when the copy that is its own has come."""
    stream = s.ops[op].stream
    member, members = s.streams[stream].member, s.streams[stream].members
    nth = 0
    for at in range(members):
        reader = (s.ops[op].source + at) % members
        if reader != member:
            nth += 1
            part_s = nth * s.ops[op].piece_s / (members - 1)
            at_s = s.run[0].now_s + part_s + s.lines[line].latency_s
            push(s, at_s, CAME, op, reader)


def _carried(s: State, line: int) -> None:
    """A piece; the rest of its message asks again."""
    op = s.lines[line].carries
    stream = s.ops[op].stream
    s.lines[line].busy = 0
    _stir_line(s, line)
    if s.lines[line].rest:
        wait_for(s, line, s.run[0].now_s, op, s.lines[line].rest)
        return
    s.ops[op].free_s = s.run[0].now_s
    if not s.streams[stream].keeps:
        _finish(s, op)
        _stir_row(s, s.ops[op].row)
    effect_s = s.run[0].now_s + s.lines[line].latency_s
    if s.ops[op].lane == UP and s.ops[op].works:
        begins_s = max(s.ops[op].start_s, s.run[0].now_s, effect_s - s.ops[op].work_s)
        push(s, begins_s, STORES, op, 0)
    else:
        push(s, effect_s, DONE, op, 0)


def _finish(s: State, op: int) -> None:
    """An operation is over: others may be under way instead, if it was the first of its row."""
    row = s.ops[op].row
    s.ops[op].over = 1
    while s.rows[row].first < s.rows[row].end and s.ops[s.queue[s.rows[row].first]].over:
        s.rows[row].first += 1


def _done(s: State, op: int) -> None:
    """The effect is there, as soon as all parts of it are."""
    if op < 0:
        _begin(s, NONE - op)
        _follow(s)
        return
    if s.ops[op].parts:
        s.ops[op].parts -= 1
        if s.ops[op].parts:
            return
    stream, lane = s.ops[op].stream, s.ops[op].lane
    s.ops[op].done_s = s.run[0].now_s
    if lane == COMPUTE or s.streams[stream].keeps:
        _finish(s, op)
    _stir_row(s, s.ops[op].row)
    if lane == COMPUTE:
        s.ops[op].free_s = s.run[0].now_s
    elif lane == UP:
        if not s.ops[op].copies:
            _came(s, s.ops[op].message, NONE)
        elif not s.lines[2 * s.streams[stream].rank].whole:
            for reader in range(s.streams[stream].members):
                _came(s, s.ops[op].message, reader)
    for at in range(s.ops[op].later, s.ops[op].later_end):
        other = s.later[at]
        s.ops[other].unmet -= 1
        if not s.ops[other].unmet:
            _stir_row(s, s.ops[other].row)
    s.streams[stream].left -= 1
    if not s.streams[stream].left:
        _over(s, stream)
    for at in range(s.ops[op].opens_end - 1, s.ops[op].opens - 1, -1):
        _later(s, 3 * s.opens[at])
    _follow(s)


def _came(s: State, message: int, reader: int) -> None:
    """A message, for one reader or for everybody (NONE)."""
    op = s.messages[message].waits
    s.messages[message].waits = NONE
    if reader == NONE:
        s.messages[message].there = 1
    else:
        s.readers[message * s.run[0].readers + reader] = 1
    # Others wait on, in their order, before any is taken.
    first, last, kept = NONE, NONE, NONE
    while op != NONE:
        after = s.ops[op].next
        s.ops[op].next = NONE
        if reader == NONE or s.streams[s.ops[op].stream].member == reader:
            if first == NONE:
                first = op
            else:
                s.ops[last].next = op
            last = op
        else:
            if kept == NONE:
                s.messages[message].waits = op
            else:
                s.ops[kept].next = op
            kept = op
            s.messages[message].waits_last = op
        op = after
    while first != NONE:
        _take(s, first)
        first = s.ops[first].next
