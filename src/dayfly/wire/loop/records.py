"""What a run in virtual time is made of, as arrays of records: see `simulation` and `streams`.

Operations of all streams have numbers in one row, by rank, stream and position. So have streams;
rows, three a stream by lane; lines, two a rank; processors, one a rank, then the store's thread,
and what the store, and each host, carry up and down. What waits is in chains, that end with
`NONE`; what asked for a line or a processor lies in a part of an array that is its own, in any
order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Lanes.
UP, DOWN, COMPUTE = 0, 1, 2
#: What happens at a moment, as in `plain`.
CARRIED, DONE, CAME, COMPUTED, STORES = 0, 1, 2, 3, 4
#: In place of a number: there is none. A job of stream n, and not of an operation, is NONE - n.
NONE = -1


def _record(whole: str, seconds: str = "") -> np.dtype[Any]:
    fields: list[Any] = [(name, np.int64) for name in whole.split()]
    return np.dtype(fields + [(name, np.float64) for name in seconds.split()])


#: later, opens: parts of `State.later` and `State.opens`. next: waits for the same message. copies:
#: a message for everyone leaves once a reader, of which `source` is the first. works: it takes CPU
#: time, or may have to wait for it. piece_s: of its line, one of `pieces`. served_s: of the store's
#: thread. stored_s, hosted_s: of what the store, and a host, carry. start_s, free_s, done_s: as
#: `streams.Moments`.
OP = _record(
    "lane row stream message unmet pieces parts over next copies works source "
    "later later_end opens opens_end",
    "piece_s work_s served_s stored_s hosted_s start_s free_s done_s",
)
#: keeps: a transfer keeps its place in its row until its effect is there. behind: waits for a turn.
STREAM = _record(
    "rank gates begun empty left pool at_once member members keeps behind opens opens_end",
    "begin_s",
)
#: first: not over; started: the next to start; end: all of the part of `State.queue`.
ROW = _record("first started end width stream stirred")
POOL = _record("turns head tail")
#: waits: the chain of operations that wait for it.
MESSAGE = _record("there waits waits_last")
#: room: where its part of `State.asked` begins. was: what `Line.go_on` keeps. whole: no pieces.
LINE = _record(
    "busy stirred carries rest asked was_carries was_rest was_asked room is_store whole",
    "latency_s last_s was_at_s",
)
ASKED = _record("op rest", "at_s")
#: As `SharedProcessor`. room: where its part of `State.jobs` begins.
PROCESSOR = _record("jobs room", "share period_s quota_s at_s had_s end_s left_s slice_s")
JOB = _record("number whose", "until_s")
#: what: happens at this moment, to which; of: the reader of a message. number: as they were made.
EVENT = _record("number what which of", "at_s")
#: events, todo: of these arrays of `State`; pushed, jobs: made so far. rows, lines: that are
#: stirred. store: the processor of its thread. on_host: ranks of one; 0: they share none. readers:
#: of a message, at most; 0: none is for one reader alone.
RUN = _record(
    "events pushed jobs todo rows lines store has_thread has_rate on_host readers", "now_s"
)


class State(NamedTuple):
    """All of a run.

    Attributes:
        readers: of each message, to which readers it has come.
        asked, before: of lines, now, and when they went on.
        later, opens, queue: operations that wait for an operation; streams that wait for an
            operation or a stream; operations of rows.
        events, places: what is to happen, and where of it each line, and behind them each
            processor, stands; see `agenda`.
        todo: see `events`.
        stirred, looked_at: rows, and behind them lines.
        run: (1,).
    """

    ops: Any
    streams: Any
    rows: Any
    pools: Any
    messages: Any
    readers: Any
    lines: Any
    asked: Any
    before: Any
    processors: Any
    jobs: Any
    later: Any
    opens: Any
    queue: Any
    events: Any
    places: Any
    todo: Any
    stirred: Any
    looked_at: Any
    run: Any


#: Of each array: what it is made of.
RECORDS: dict[str, Any] = {
    "ops": OP,
    "streams": STREAM,
    "rows": ROW,
    "pools": POOL,
    "messages": MESSAGE,
    "lines": LINE,
    "asked": ASKED,
    "before": ASKED,
    "processors": PROCESSOR,
    "jobs": JOB,
    "events": EVENT,
    "run": RUN,
}
