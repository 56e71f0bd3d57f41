"""`Beside` of a job's stages, from its profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import nlargest

import numpy as np

from dayfly.planning.choose.arrays import Array
from dayfly.planning.choose.from_profile import limited
from dayfly.planning.choose.pipelines.beside import Beside
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverLinks,
)
from dayfly.planning.configuration import ITEM_BYTES, elements, largest_tensor
from dayfly.planning.contributions import held_share
from dayfly.planning.memory import HEAP_BYTES
from dayfly.planning.profile import LayerBytes as ProfileBytes
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.schedule import BUCKET_BYTES, FIRST_BUCKET_BYTES

#: Of each of the problem's layers, the profile's.
_Parts = tuple[tuple[ProfileBytes, ...], ...]
#: Buckets are taken to be full ones where contributions are estimated, which errs by less.
_ROUNDING_BYTES = 2.0 * 2**20


def with_beside(
    profile: Profile, batch_size: int, problems: Sequence[Problem], firsts: Sequence[int]
) -> tuple[Problem, ...]:
    """Returns the problems with what stages hold beside FuncPipe's equation 3b.

    Args:
        profile: of the job, and of one kind of functions.
        batch_size: of a step.
        problems: of the profile; their layers are each one or several of the profile's.
        firsts: of each of these, the first of the profile's layers.
    """
    parts = tuple(
        profile.layers[first:end]
        for first, end in zip(firsts, (*firsts[1:], len(profile.layers)), strict=True)
    )
    sizes = dict(limited(profile))
    made: dict[tuple[int, int], Beside] = {}

    def of(option: MemoryOption, layers: Sequence[LayerBytes], m: int, *sums: str) -> Beside:
        # One object for all schedules, as problems are compared by what else they have.
        key = option.memory_mib, m
        if key not in made:
            size, samples = sizes[option.memory_mib], -(-batch_size // m)
            made[key] = Beside(
                once=_once(size, parts, samples),
                summed=_summed(parts, ChannelModel.of(profile).at_once),
                outputs=np.array([one.output_bytes for one in layers]),
                gradients=np.array([one.gradient_bytes for one in layers]),
                shares=_shares(profile, size, m, sums),
            )
        return made[key]

    found: list[Problem] = []
    for one in problems:
        if isinstance(one, StagesOverLinks):
            ways = [
                replace(way, beside=of(way.container, way.layers, way.micro_batches, "ring"))
                for way in one.micro_batches
            ]
            found.append(replace(one, micro_batches=tuple(ways)))
        else:
            either = "pipelined", "scatter-reduce"
            beside = of(one.options[-1], one.layers, one.micro_batches, *either)
            found.append(replace(one, beside=beside))
    return tuple(found)


def _once(size: SizeProfile, parts: _Parts, samples: int) -> Array:
    """(L, L): of layers q to r, by r and q; a micro-batch has so many samples."""
    gradients = [ITEM_BYTES * largest_tensor(part) for part in parts]
    passed = [samples * max(layer.output + layer.gradient for layer in part) for part in parts]
    if any(one.held_mib is not None for one in size.passes):
        passed = [0.0] * len(parts)  # what measured passes need is not known by layers
    return HEAP_BYTES + _ROUNDING_BYTES + _most(gradients) + _most(passed)


def _shares(profile: Profile, size: SizeProfile, most: int, sums: Sequence[str]) -> Array:
    """(most + 1,): by replicas that divide so many, the most that one of the collectives holds."""
    shares = np.zeros(most + 1)
    if profile.gpu is not None:
        return shares  # they are in the machine's memory, and the rest in the GPU's
    for replicas in range(2, most + 1):
        if most % replicas == 0:
            each = (held_share(profile, size, name, replicas) for name in sums)
            shares[replicas] = max(each)
    return shares


def _most(values: Sequence[float]) -> Array:
    """(L, L): the largest of layers q to r, by r and q; 0 where q > r."""
    most = np.zeros((len(values), len(values)))
    for q in range(len(values)):
        most[q:, q] = np.maximum.accumulate(values[q:])
    return most


@lru_cache(maxsize=16)
def _summed(parts: _Parts, at_once: int) -> Array:
    """(L, L): of layers q to r, by r and q, the bytes of the largest buckets of their gradients.

    Buckets begin with the last layer, as gradients do (`wire.schedule.bucket_ends`), so those of
    fewer layers are the first of those of more.
    """
    sizes = [
        [ITEM_BYTES * one for layer in reversed(part) for one in reversed(elements(layer))]
        for part in parts
    ]
    found = np.zeros((len(parts), len(parts)))
    for r in range(len(parts)):
        buckets, room = [0], FIRST_BUCKET_BYTES
        for q in range(r, -1, -1):
            for size in sizes[q]:
                if buckets[-1] and size > room:
                    buckets.append(0)
                    room = BUCKET_BYTES
                buckets[-1] += size
                room -= size
            found[r, q] = sum(nlargest(at_once, buckets))
    return found
