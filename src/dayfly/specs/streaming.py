"""Streaming of outer gradients, after Streaming DiLoCo (arXiv 2501.18512), without torch.

The parameters are cut into F fragments. In a round of k inner steps each fragment is exchanged
once: fragment p, from 0, after step ceil((p + 1) k / F). What it gets is applied T steps later,
whoever is fast:

    F = 2, T = 1, k = 4        step 1    step 2    step 3    step 4   |step 1    step 2
    fragment 0                        take|   exchange|apply          |       take|
    fragment 1                                                    take|exchange|apply
    losses, wishes, buffers                                       take|exchange|apply

    theta~_p   outer parameters of a fragment, equal at all workers
    theta_i,p  worker i's own, from which its inner steps go on
    w_i        its share of the round's samples

    take       g_p       = sum of w_i (theta~_p - theta_i,p)                 which is summed
    apply      theta~_p  = outer optimizer's step from theta~_p, with g_p as its gradient
               theta_i,p = alpha theta_i,p + (1 - alpha) theta~_p

With T = 0 nothing happens between the two, and alpha is 0: replicas take over what is common. With
F = 1, too, that is DiLoCo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.batches import share

#: Share of a worker's own parameters in what it goes on with, if its steps went on meanwhile.
ALPHA = 0.5
#: Steps from the exchange of a fragment to its use, unless others are asked for.
USUAL_OVERLAP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """How outer gradients are streamed.

    Args:
        fragments: F, in which the parameters are exchanged.
        overlap: T, inner steps between the moment at which a fragment's outer gradient is taken
            and the moment at which its sum is applied: its staleness, exactly.
    """

    fragments: int = 1
    overlap: int = USUAL_OVERLAP

    @classmethod
    def of(cls, fragments: int | None, overlap: int | None) -> Streaming | None:
        """Returns what was asked for; None: all is exchanged at a round's end, and waited for.

        Args:
            fragments: of `--fragments`; None: not given.
            overlap: of `--overlap`; None: not given.
        """
        if fragments is None and overlap is None:
            return None
        return cls(
            fragments=1 if fragments is None else fragments,
            overlap=USUAL_OVERLAP if overlap is None else overlap,
        )

    @property
    def alpha(self) -> float:
        """Share of the own parameters in what a worker goes on with."""
        return ALPHA if self.overlap else 0.0

    def steps(self, first: int, due: int) -> int:
        """Returns the steps of a round whose last exchange was taken at its end.

        Args:
            first: the round's first step.
            due: the step after which that exchange is applied.
        """
        return due - self.overlap - first + 1

    def taken(self, done: int, steps: int) -> range:
        """Returns the fragments that are exchanged after a step of a round.

        Args:
            done: steps of the round by then, from 1.
            steps: of the whole round.
        """
        return share(self.fragments, done - 1, steps)


def refuses(fragments: int | None, overlap: int | None, k: int | str | None) -> str | None:
    """Why outer gradients cannot be streamed so, and what to do; None: they can.

    Args:
        fragments: of `--fragments`; None: not given.
        overlap: of `--overlap`; None: not given.
        k: of `--k`; None: not given.
    """
    asked = Streaming.of(fragments, overlap)
    if asked is None:
        return None
    if asked.fragments < 1:
        return f"--fragments {fragments}: give a number from 1"
    if asked.overlap < 0:
        return f"--overlap {overlap}: give a number of inner steps from 0"
    if not isinstance(k, int):
        return None  # an epoch's, at whose end all is applied
    if asked.fragments > k:
        return (
            f"--fragments {asked.fragments} are more than the {k} steps of a round, in which each "
            f"is exchanged once: give at most {k}, or a larger --k"
        )
    if asked.overlap >= k:
        given = "" if overlap is not None else ", which --fragments has unless another is given,"
        return (
            f"--overlap {asked.overlap}{given} must be less than --k {k}: a fragment is applied "
            "before it is exchanged again"
        )
    return None


def sequential(sizes: Sequence[int], fragments: int) -> list[range]:
    """Returns the layers of each fragment: runs of layers in their order, none of them empty.

        sizes 4 1 1 6 2 2, 3 fragments       4 1 1 | 6 | 2 2

    The largest fragment is as small as it can be (the paper's sequential pattern, with sizes
    balanced in place of the numbers of layers).

    Args:
        sizes: of the layers, in their order.
        fragments: how many, at most as many as layers.

    Raises:
        ValueError: there are fewer layers than fragments, or no fragments.
    """
    if not 1 <= fragments <= len(sizes):
        raise ValueError(f"{fragments} fragments of {len(sizes)} layers")
    least, most = max(sizes), sum(sizes)
    while least < most:
        middle = (least + most) // 2
        if len(_filled(sizes, fragments, middle)) > fragments:
            least = middle + 1
        else:
            most = middle
    return _filled(sizes, fragments, most)


def _filled(sizes: Sequence[int], fragments: int, most: int) -> list[range]:
    """Fragments of at most this size, each filled before the next one; at least so many."""
    found: list[range] = []
    first = total = 0
    for at, size in enumerate(sizes):
        needed = fragments - len(found) - 1  # one layer for each fragment that follows
        if at > first and (total + size > most or len(sizes) - at <= needed):
            found.append(range(first, at))
            first, total = at, 0
        total += size
    return [*found, range(first, len(sizes))]
