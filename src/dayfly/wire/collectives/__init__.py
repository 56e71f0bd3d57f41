"""Collectives: one file an algorithm, each a pure function from (rank, world size, length).

A new algorithm is a line in `COLLECTIVES`, over all of which the conformance suite runs, or an
entry point of another package, whose value is a `Collective`:

    [project.entry-points."dayfly.collectives"]
    mine = "my_package.my_module:MINE"
"""

from __future__ import annotations

from functools import lru_cache

from dayfly.errors import RequestError
from dayfly.registry import Registry
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.k_reduce import ALL_REDUCE, SCATTER_REDUCE, k_reduce
from dayfly.wire.collectives.leaves import over_leaves
from dayfly.wire.collectives.overlapped import OVERLAPPED
from dayfly.wire.collectives.pipelined import PIPELINED
from dayfly.wire.collectives.push_pull import PUSH_PULL
from dayfly.wire.collectives.ring import RING

__all__ = [
    "COLLECTIVES",
    "K_REDUCE",
    "SMALL_SUM",
    "Collective",
    "check_name",
    "collective",
    "default_collective",
    "names",
]

#: All-reduce algorithms by the name that `--collective` takes, but for `K_REDUCE`.
COLLECTIVES: Registry[Collective] = Registry(
    "collective",
    "dayfly.collectives",
    {
        "all-reduce": ALL_REDUCE,
        "scatter-reduce": SCATTER_REDUCE,
        "pipelined": PIPELINED,
        "ring": RING,
        "push-pull": PUSH_PULL,
        "overlapped": OVERLAPPED,
    },
)

#: The one that also takes a number of aggregators; see `collective`.
K_REDUCE = "k-reduce"
#: Name and aggregators of sums of a few numbers: fewest requests count, and not bytes.
SMALL_SUM = (K_REDUCE, 1)


def names() -> tuple[str, ...]:
    """All that `--collective` takes."""
    return tuple(sorted((*COLLECTIVES, K_REDUCE)))


def check_name(name: str) -> None:
    """Raises RequestError if no all-reduce algorithm has the name."""
    if name != K_REDUCE and name not in COLLECTIVES:
        known = ", ".join(names())
        raise RequestError(f"--collective {name!r} is not known: give one of {known}")


def collective(
    name: str, aggregators: int | None, world_size: int, virtual_workers: int | None = None
) -> Collective:
    """Returns the all-reduce algorithm of a name.

    Args:
        name: see `COLLECTIVES`.
        aggregators: K of k-reduce; None for all others.
        world_size: number of ranks.
        virtual_workers: leaves of a batch, along whose tree it sums; None: it sums in an order of
            its own.

    Raises:
        RequestError: there is none, it has no such K, or cannot sum along a tree.
    """
    found = _plain(name, aggregators, world_size)
    if virtual_workers is None:
        return found
    if virtual_workers < world_size:
        raise RequestError(
            f"--virtual-workers {virtual_workers} cannot be shared by {world_size} workers, each "
            f"of which needs one: give at most {virtual_workers} workers"
        )
    if not found.whole:
        known = sorted([K_REDUCE, *(one for one in COLLECTIVES if COLLECTIVES[one].whole)])
        raise RequestError(
            f"--virtual-workers cannot have --collective {name}, which adds up in an order of its "
            f"own: give one of {', '.join(known)}"
        )
    return over_leaves(found, world_size, virtual_workers)


def _plain(name: str, aggregators: int | None, world_size: int) -> Collective:
    check_name(name)
    if name != K_REDUCE:
        if aggregators is not None:
            raise RequestError(
                f"--aggregators {aggregators} is for --collective {K_REDUCE}: {name} has its own "
                "number of them"
            )
        return COLLECTIVES[name]
    if aggregators is None:
        raise RequestError(
            f"--collective {K_REDUCE} needs --aggregators: on how many of the workers to sum, 1 to "
            f"{world_size}"
        )
    if not 1 <= aggregators <= world_size:
        raise RequestError(
            f"--aggregators {aggregators}: give 1 to {world_size}, as there are workers"
        )
    return _k_reduce(aggregators)


#: The same object for the same K, so that what it costs is found once.
_k_reduce = lru_cache(maxsize=256)(k_reduce)


def default_collective(
    *, sums: bool, direct: bool, immediate: bool, along_tree: bool = False
) -> str:
    """Returns the name of the algorithm that suits a channel best.

    Args:
        immediate: as `Channel` has it. Chunks gain nothing there, as no link has to be kept busy.
        direct: as `Abilities` has it.
        sums: as `Abilities` has it.
        along_tree: whether sums go along the tree over leaves, as a ring's and a server's cannot.
    """
    if sums and not along_tree:
        return "push-pull"
    if direct and not along_tree:
        return "ring"
    return "scatter-reduce" if immediate else "overlapped"
