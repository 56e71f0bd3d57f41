"""What a pass needs beside the activations that are kept, as it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dayfly.planning.configuration import ITEM_BYTES, largest_tensor
from dayfly.planning.profile import Pass, Profile

_MIB = 2**20
#: What is lost between the smaller ones, of what the activations take, where no pass was measured.
_GAPS = 0.08


def beside_kept(
    profile: Profile, passes: Sequence[Pass], micro: int, kept: float, least: float
) -> tuple[float, float]:
    """Bytes that a pass of a micro-batch needs beside what is kept, and what is lost beside that.

    See `planning.memory`.

    Args:
        profile: of the job.
        passes: measured in such functions.
        micro: samples of a micro-batch.
        kept: bytes by this stage.
        least: bytes that its layers pass on.
    """
    if (gaps := gaps_share(passes)) is not None:
        return least, gaps * kept
    each = sum(layer.activations for layer in profile.layers)
    largest = ITEM_BYTES * largest_tensor(profile.layers)
    held = _held(passes, micro, each, largest)
    whole = micro * each
    more = max(0.0, held - whole - largest)
    work = max(least, more)
    return work, max(0.0, more * kept / whole - work) if whole else 0.0


def gaps_share(passes: Sequence[Pass]) -> float | None:
    """Returns what is lost between blocks as a share of what is kept; None: passes were measured,
    and say it themselves."""
    return _GAPS if all(one.held_mib is None for one in passes) else None


def _held(passes: Sequence[Pass], samples: int, each: float, fixed: float) -> float:
    """Bytes that a pass of so many samples takes while it lasts, by those that were measured.

    each: kept of a sample. fixed: what passes of no samples would take. Between measured ones in
    proportion. Beyond them, each sample takes what it did where it took most: between the last
    three, or on average, as gaps end with blocks so large that they come from the kernel, and begin
    again with the next layer's. Of fewer, only what is kept is less.
    """
    points: list[tuple[int, float]] = []
    for one in sorted(passes, key=lambda one: one.samples):
        if one.held_mib is not None:  # never less of more samples
            points.append((one.samples, max([_MIB * one.held_mib, *(h for _, h in points)])))
    (first, least), (last, most) = points[0], points[-1]
    if samples <= first:
        return max(0.0, least - (first - samples) * each)
    if samples >= last:
        slopes = [(h1 - h0) / (n1 - n0) for (n0, h0), (n1, h1) in pairwise(points)]
        return most + (samples - last) * max(each, (most - fixed) / last, *slopes[-2:])
    (n0, h0), (n1, h1) = next(pair for pair in pairwise(points) if samples <= pair[1][0])
    return h0 + (samples - n0) * (h1 - h0) / (n1 - n0)
