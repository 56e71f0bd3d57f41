"""When a worker does what is no training: how often it reports and looks up, when it hands over.

Rules of time alone, which those who run and those who predict go by alike.
"""

from __future__ import annotations

#: Least time between two messages of records that are not urgent, in seconds: in memory, and over a
#: link.
REPORT_EVERY_S = 0.3
REPORT_EVERY_OVER_LINK_S = 1.0
#: Longest time between two looks for a wish to stop, in seconds: in memory, and over a link.
LOOK_FOR_STOP_S = 0.1
LOOK_FOR_STOP_OVER_LINK_S = 1.0
#: Seconds to end in order that do not depend on the job.
SPARE_S = 0.5
#: A worker at a checkpoint hands over if less than this share of its lifetime is left, or this many
#: times what must be left at least: workers that started at about the same time hand over together,
#: at one checkpoint, and their peers wait for their successors once.
LATE_SHARE = 0.25
LATE_TIMES = 1.5
#: Nor does it hand over before this share of its lifetime has passed, whatever steps took.
MOST_SHARE = 0.5


def end_in_order_s(longest_step_s: float, checkpoint_s: float, lifetime_s: float) -> float:
    """What must be left of a lifetime for another step and an end in order."""
    needed = 2 * longest_step_s + 2 * checkpoint_s + SPARE_S
    # A step that waited long for a peer must not have every later one handed over.
    return min(needed, MOST_SHARE * lifetime_s)
