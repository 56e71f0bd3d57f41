"""Memory that stages need and FuncPipe's equation 3b leaves out, from a job's profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import nlargest

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.from_profile import limited
from dayfly.planning.choose.pipelines.extra_memory import ExtraMemory
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverLinks,
)
from dayfly.planning.configuration import ITEM_BYTES, elements, largest_tensor, moving
from dayfly.planning.contributions import held_bytes
from dayfly.planning.memory import HEAP_BYTES, samples_bytes
from dayfly.planning.pass_memory import beside_kept
from dayfly.planning.profile import LayerBytes as ProfileBytes
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.schedule import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_ends

#: Of each of the problem's layers, the profile's.
_Parts = tuple[tuple[ProfileBytes, ...], ...]
#: Of a flat buffer's ends, and sums in another order; and of the last bucket, behind which buffers
#: lie.
_ROUNDING_BYTES, _LAST_BUCKET_BYTES = 2.0**16, 2.0**21


def with_extra_memory(
    profile: Profile, batch_size: int, problems: Sequence[Problem], firsts: Sequence[int]
) -> tuple[Problem, ...]:
    """Adds to problems the memory that stages need and FuncPipe's equation 3b leaves out.

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
    made: dict[tuple[int, int], ExtraMemory] = {}

    def of(
        options: Sequence[MemoryOption], layers: Sequence[LayerBytes], m: int, *names: str
    ) -> ExtraMemory:
        # The same object for all schedules: problems are equal only if they have the same one.
        key = options[-1].memory_mib, m
        if key not in made:
            each = [sizes[one.memory_mib] for one in options]
            samples = -(-batch_size // m)
            made[key] = ExtraMemory(
                once=np.stack([_once(profile, size, parts, samples) for size in each]),
                sums=_sums(profile, each[-1], parts, m, names),
                samples=_samples(profile, batch_size, m),
                outputs=np.array([one.output_bytes for one in layers]),
                gradients=np.array([one.gradient_bytes for one in layers]),
            )
        return made[key]

    found: list[Problem] = []
    for one in problems:
        if isinstance(one, StagesOverLinks):
            ways = [
                replace(way, extra=of([way.container], way.layers, way.micro_batches, "ring"))
                for way in one.micro_batches
            ]
            found.append(replace(one, micro_batches=tuple(ways)))
        else:
            either = "pipelined", "scatter-reduce"
            extra = of(one.options, one.layers, one.micro_batches, *either)
            found.append(replace(one, extra=extra))
    return tuple(found)


def _once(profile: Profile, size: SizeProfile, parts: _Parts, samples: int) -> Array:
    """(L, L): of layers q to r, by r and q; a micro-batch has so many samples."""
    gradients = [ITEM_BYTES * largest_tensor(part) for part in parts]
    passed = [samples * max(layer.output + layer.gradient for layer in part) for part in parts]
    least, _ = beside_kept(profile, size.passes, samples, 0.0, 0.0)
    work = np.maximum(_most(passed), least)
    before = np.cumsum([float(ITEM_BYTES * sum(map(moving, part))) for part in parts])
    buffers: Array = np.tril(before[:, None] - np.append(0, before[:-1]))
    buffers += HEAP_BYTES + _ROUNDING_BYTES + _most(gradients) + work
    return buffers


def _sums(
    profile: Profile, size: SizeProfile, parts: _Parts, most: int, names: Sequence[str]
) -> Array:
    """(most + 1, L, L): by replicas that divide so many, of layers q to r, by r and q, the most
    that one of these collectives holds."""
    sums = np.zeros((most + 1, len(parts), len(parts)))
    if profile.gpu is not None:
        return sums  # they are in the machine's memory, and the rest in the GPU's
    means = ChannelModel.of(profile)
    buckets = _buckets(parts, means.at_once)
    for replicas in range(2, most + 1):
        for name in names if most % replicas == 0 else ():
            held = _held(means, size, buckets, name, replicas).sum(axis=-1) + _LAST_BUCKET_BYTES
            sums[replicas] = np.maximum(sums[replicas], held)
    return sums


def _held(means: ChannelModel, size: SizeProfile, buckets: Ints, name: str, replicas: int) -> Array:
    """Returns the bytes that are held of contributions to each bucket of so many elements."""

    def held(length: int) -> float:
        return held_bytes(means, size, (length,), name, None, replicas, None)

    full = BUCKET_BYTES // ITEM_BYTES
    larger = buckets > full  # of one large parameter each; of others it is in proportion
    found = np.asarray(buckets * (held(full) / full), dtype=np.float64)
    found[larger] = [held(length) for length in buckets[larger].tolist()]
    return found


def _samples(profile: Profile, batch_size: int, most: int) -> Array:
    """(most + 1,): by replicas."""
    found = np.zeros(most + 1)
    if profile.gpu is None:
        for replicas in range(1, most + 1):
            found[replicas] = samples_bytes(-(-batch_size // replicas) * profile.sample_bytes)
    return found


def _most(values: Sequence[float]) -> Array:
    """(L, L): the largest of layers q to r, by r and q; 0 where q > r."""
    most = np.zeros((len(values), len(values)))
    for q in range(len(values)):
        most[q:, q] = np.maximum.accumulate(values[q:])
    return most


@lru_cache(maxsize=16)
def _buckets(parts: _Parts, at_once: int) -> Ints:
    """Returns the numbers of elements of each possible stage's largest gradient buckets.

    The result is (L, L, at_once), by the stage's last and first layer. Buckets begin with the last
    layer, so a stage that begins later has the first ones of a stage that begins earlier, and the
    last of them is shorter.
    """
    found = np.zeros((len(parts), len(parts), at_once), dtype=np.int64)
    for last in range(len(parts)):
        sizes: list[int] = []
        upto = []  # by first layer, falling: the parameters of a stage that begins there
        for part in reversed(parts[: last + 1]):
            sizes += [one for layer in reversed(part) for one in reversed(elements(layer))]
            upto.append(len(sizes))
        ends = bucket_ends([ITEM_BYTES * one for one in sizes], FIRST_BUCKET_BYTES, BUCKET_BYTES)
        behind = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        for first, count in zip(range(last, -1, -1), upto, strict=True):
            bounds = [0, *(end for end in ends if end < count), count]
            largest = nlargest(at_once, np.diff(behind[bounds]).tolist())
            found[last, first, : len(largest)] = largest
    return found
