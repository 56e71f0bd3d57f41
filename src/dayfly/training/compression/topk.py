"""Top-k by chunks: of each 4096 values those of largest magnitude travel, the others later.

Deep gradient compression (Lin et al., 2018, arXiv 1712.01887) sends a thousandth of a gradient's
values, and keeps the rest in a residual; SparseLoCo (2025, arXiv 2508.15706) chooses them within
chunks, so that a place takes 12 bits, and quantises them to 2 bits. Of each chunk, with residual E:

    M = gradient + E
    S = the k of M's values with the largest magnitude, k = ceil(fraction x 4096), at least 1;
        of equal ones the first
    C = Q(S)                     what travels: k places, k values
    E = M - C                    all that was not chosen, and what Q lost

Q in 2 bits is a sign and one of two magnitudes: the mean of those above the mean of all k, and the
mean of the others. `exact` leaves values as they are. Chunks begin where the bucket does, so what
is sent depends on no collective and no channel. An infinity or a NaN is always chosen, so that a
failure is seen; in 2 bits, all that travels of its chunk becomes infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dayfly.specs.compression import kept_of
from dayfly.training.compression.exchange import Selected
from dayfly.training.flat import FlatBuffer
from dayfly.wire.codec import CHUNK, PLACE_BITS

#: Chunks that are worked on at once: what is between values and places stays in the cache.
_AT_ONCE = 64


class TopK(Selected):
    """Buckets of which a fraction of each chunk travels.

    Args:
        fraction: above 0 and at most 1.
        exact: whether values travel as they are, and not in 2 bits.
    """

    def __init__(self, flat: FlatBuffer, fraction: float, *, exact: bool = False) -> None:
        super().__init__(flat)
        self._fraction = fraction
        self._exact = exact

    def select(self, number: int, values_B: torch.Tensor) -> torch.Tensor:
        return top_k(values_B, self._fraction, exact=self._exact)


def top_k(values_P: torch.Tensor, fraction: float, *, exact: bool = False) -> torch.Tensor:
    """Returns what travels of values: (P,), 0 where nothing does.

    Args:
        values_P: flat, on the CPU; they are only read.
        fraction: of each chunk's values, above 0 and at most 1.
        exact: whether values travel as they are, and not in 2 bits.
    """
    sent_P = torch.zeros_like(values_P)
    for values, sent in zip(_rows(values_P), _rows(sent_P), strict=True):
        at = _largest(values, kept_of(values.shape[1], fraction))
        chosen = values.gather(1, at)
        sent.scatter_(1, at, chosen if exact else two_magnitudes(chosen))
    return sent_P


def two_magnitudes(values_CK: torch.Tensor) -> torch.Tensor:
    """Returns values of chunks (C, K) as signs times one of two magnitudes a chunk."""
    sizes = values_CK.abs()
    large = sizes > sizes.mean(1, keepdim=True)
    count = large.sum(1, keepdim=True)
    high = torch.where(large, sizes, 0).sum(1, keepdim=True) / count.clamp(min=1)
    low = torch.where(large, 0, sizes).sum(1, keepdim=True) / (sizes.shape[1] - count)
    return torch.where(large, high, low) * values_CK.sgn()


def _largest(values_CL: torch.Tensor, count: int) -> torch.Tensor:
    """Places (C, count) of the largest magnitudes of each chunk, as float32 has them."""
    # The bits of a number without its sign are ordered as magnitudes are, NaN above infinity. With
    # the place behind them no two are equal, and so the choice is the same everywhere.
    bits = values_CL.to(torch.float32).view(torch.int32).to(torch.int64) & 0x7FFF_FFFF
    keys = (bits << PLACE_BITS) + torch.arange(values_CL.shape[1] - 1, -1, -1)
    return torch.topk(keys, count, dim=1).indices


def _rows(values_P: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views (C, L) of chunks: some whole ones at a time, then the last."""
    whole = len(values_P) // CHUNK * CHUNK
    for start in range(0, whole, _AT_ONCE * CHUNK):
        yield values_P[start : min(whole, start + _AT_ONCE * CHUNK)].view(-1, CHUNK)
    if whole < len(values_P):
        yield values_P[whole:].view(1, -1)
