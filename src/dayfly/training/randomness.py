"""Everything random follows from the seed and from where it is used; no state to keep.

A worker seeds the generators of torch, numpy and random anew before each use: weights by (seed),
dropout by (seed, step, leaf, piece), augmentation by (seed, epoch, sample), a validation's batch by
(seed, its first sample). So a worker that starts
again draws the same numbers, and a checkpoint holds no random state.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_MASK = (1 << 64) - 1

#: First number of a key: what the numbers are for, so that uses do not share their numbers.
WEIGHTS, DROPOUT, AUGMENT, SPLIT, EVALUATE, DATA = range(6)


def mix(*key: int) -> int:
    """A number of 63 bits that depends on every number of the key (splitmix64, chained)."""
    state = 0
    for number in key:
        state = (state ^ (number & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


def seed_generators(*key: int) -> None:
    """Seed torch's, numpy's and random's global generators by a key."""
    seed = mix(*key)
    # torch.manual_seed does the same, but formats the call stack for each kind of device that is
    # not in use, which takes longer than all the rest of the seeding.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """As `seed_generators`, and put the generators back as they were afterwards."""
    with kept_generators():
        seed_generators(*key)
        yield


@contextmanager
def kept_generators() -> Iterator[None]:
    """Puts the generators of the CPU back as they were, whatever is drawn inside."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
