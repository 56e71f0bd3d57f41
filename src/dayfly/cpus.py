"""The CPU to which a function of less than a core is bound: one rule for the local platform, which
binds functions, and for virtual time, which predicts them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Thousandths of a CPU.
_WHOLE = 1000


def cpus_with_room(share: float, taken: Mapping[int, int]) -> list[int]:
    """Returns the CPUs to which a function may be bound: the emptiest, if they have room for it.

    Args:
        share: CPU seconds a second that the function may use, less than one.
        taken: by each CPU's number, thousandths of it that functions bound to it may use.

    Returns:
        Numbers; none if no CPU has room for the share: then it runs on all of them.
    """
    least = min(taken.values(), default=_WHOLE)
    if least + thousandths(share) > _WHOLE:
        return []
    return [cpu for cpu, by_others in taken.items() if by_others == least]


def thousandths(share: float) -> int:
    """Returns a share of a CPU in thousandths of it, as `cpus_with_room` counts."""
    return round(_WHOLE * share)
