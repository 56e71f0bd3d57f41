"""PowerSGD: a gradient as the product of two thin matrices.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
optimization" (2019), algorithms 1 and 2. For each weight matrix, with M = gradient + E (m, n):

    P = M Q              summed over the workers       Q (n, r): the step's before, at first random
    P = orthonormal(P)   (m, r), the same on all
    Q = M^T P            summed over the workers
    E = M - P Q_own^T    what this worker's own gradient lost
    gradient = P Q^T

so two all-reduces of a bucket: P with all that is not compressed, then Q. One step of power
iteration, which goes on from the step before, approaches the r greatest directions.

    bucket 0      | P of each matrix | other gradients |, then | Q of each matrix |
    ...
    the last two  | P of each matrix | other gradients | moves, used, tail |, then | Q ... |

A bucket's begin as soon as it is whole, while the backward pass still computes those that follow;
those of the last two, which are whole at the end of it, after it.

E follows from this worker's own contributions and the sums, and Q is a sum; so a worker that starts
again finds them out as `feedback` says. Sums are of plain numbers, so any collective will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from dayfly.training.compression.exchange import Exchange, total
from dayfly.training.flat import FlatBuffer
from dayfly.training.randomness import WEIGHTS, mix
from dayfly.training.state import Tensors

#: A matrix is compressed if that makes it this much smaller.
_WORTHWHILE = 2
_Q, _RESIDUAL = "compress.q", "residual"


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A compressed parameter; all are views: M (m, n), E (m, n), P (m, r), Q (n, r)."""

    parameter: int
    M: torch.Tensor
    E: torch.Tensor
    P: torch.Tensor
    Q: torch.Tensor
    first_Q: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Group:
    """What is summed together: matrices, and gradients and more that travel as they are.

    Args:
        plain: where these are, and where they are summed.
        buffers: of the two sums, or of the first if there is nothing to compress.
    """

    matrices: Sequence[_Matrix]
    plain: Sequence[tuple[torch.Tensor, torch.Tensor]]
    buffers: Sequence[torch.Tensor]


class PowerSgd(Exchange):
    """Gradients of rank `rank`; matrices that it would not make half as large stay as they are.

    Args:
        seed: decides the first Q, which is the same on all workers.
    """

    remembers = True

    def __init__(self, flat: FlatBuffer, rank: int, seed: int) -> None:
        super().__init__(flat)
        compressed = {
            number: parameter
            for number, parameter in enumerate(flat.parameters)
            if parameter.dim() > 1 and parameter.numel() and _worthwhile(parameter, rank)
        }
        sizes = [parameter.numel() for parameter in compressed.values()]
        self.residual = flat.data.new_zeros(sum(sizes))
        residuals = dict(zip(compressed, torch.split(self.residual, sizes), strict=True))
        groups, last = [], len(flat.buckets) - 2
        for bucket in range(last + 1):
            members = flat.members(bucket)
            plain = [flat.gradients[number] for number in members if number not in compressed]
            if bucket == last:
                plain.append(self.buffers[-1])
            pairs = {
                number: (flat.gradients[number].view(m, -1), residuals[number].view(m, -1))
                for number, m in ((n, len(compressed[n])) for n in members if n in compressed)
            }
            groups.append(_group(pairs, plain, rank, seed))
        self._groups = groups
        matrices = (one for group in groups for one in group.matrices)
        self._matrices = sorted(matrices, key=lambda one: one.parameter)
        self._of_buffer = [(one, part) for one in groups for part in range(len(one.buffers))]
        self.buffers = tuple(buffer for group in groups for buffer in group.buffers)
        numbers = iter(range(len(self.buffers)))
        self.chains = tuple(tuple(next(numbers) for _ in group.buffers) for group in groups)
        self.packings = (None,) * len(self.buffers)
        self.early = len(self.chains) - 1

    def contribute(self, number: int) -> None:
        group, part = self._of_buffer[number]
        if part:
            self._second(group)
        else:
            self._first(group)

    def _first(self, group: _Group) -> None:
        for one in self._reached(group):
            one.M.add_(one.E)
        for one in group.matrices:
            torch.mm(one.M, one.Q, out=one.P)
        for own, into in group.plain:
            into.copy_(own)

    def _second(self, group: _Group) -> None:
        for one in group.matrices:
            one.P.copy_(orthonormal(one.P))
            torch.mm(one.M.T, one.P, out=one.Q)
        for one in self._reached(group):
            torch.sub(one.M, one.P @ one.Q.T, out=one.E)
            # What is no number has travelled as such: it is not to come back in every step.
            one.E.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def adopt(self) -> None:
        for one in self._matrices:
            torch.mm(one.P, one.Q.T, out=one.M)
            if not one.Q.isfinite().all():
                one.Q.copy_(one.first_Q)
        for group in self._groups:
            for own, summed in group.plain:
                own.copy_(summed)

    def state(self) -> tuple[Tensors, Tensors]:
        rows = [one.Q.reshape(-1) for one in self._matrices]
        return {_Q: torch.cat(rows)} if rows else {}, {_RESIDUAL: self.residual}

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        if _Q in shared:
            rows = torch.split(shared[_Q], [one.Q.numel() for one in self._matrices])
            for one, row in zip(self._matrices, rows, strict=True):
                one.Q.copy_(row.view_as(one.Q))
        total(own, _RESIDUAL, self.residual)

    def _reached(self, group: _Group) -> Iterator[_Matrix]:
        """Those that this worker's backward pass reached.

        If none did, the gradient is left alone; so what a worker did not reach keeps its residual.
        """
        return (one for one in group.matrices if self.flat.reached[one.parameter])


def _group(
    pairs: Mapping[int, tuple[torch.Tensor, torch.Tensor]],
    plain: Sequence[torch.Tensor],
    rank: int,
    seed: int,
) -> _Group:
    """Makes the room of a group's sums. pairs: M and E (m, n) by the number of the parameter."""
    shapes = [(m, n, min(rank, m, n)) for m, n in (M.shape for M, _ in pairs.values())]
    sizes_P, sizes_Q = [m * r for m, _, r in shapes], [n * r for _, n, r in shapes]
    like = [*plain, *(M for M, _ in pairs.values())][0]
    first = like.new_zeros(sum(sizes_P) + sum(map(len, plain)))
    second = like.new_zeros(sum(sizes_Q))
    views_P = torch.split(first, [*sizes_P, *map(len, plain)])
    views_Q = torch.split(second, sizes_Q)
    matrices = []
    for at, (number, (M, E)) in enumerate(pairs.items()):
        m, n, r = shapes[at]
        first_Q = _random(n, r, like.dtype, mix(WEIGHTS, seed, number))
        Q = views_Q[at].view(n, r).copy_(first_Q)
        matrices.append(_Matrix(number, M, E, views_P[at].view(m, r), Q, first_Q))
    places = list(zip(plain, views_P[len(pairs) :], strict=True))
    return _Group(matrices, places, (first, second) if pairs else (first,))


def orthonormal(P: torch.Tensor) -> torch.Tensor:
    """Columns (m, r) that are orthonormal and span those of P; some others where P has too few.

    Of zeros, too, so that a gradient that was zero for a while is not so for ever.
    """
    if not P.isfinite().all():
        return torch.full_like(P, torch.nan)
    columns: torch.Tensor = torch.linalg.qr(P).Q
    return columns


def _worthwhile(parameter: torch.Tensor, rank: int) -> bool:
    m, n = len(parameter), parameter[0].numel()
    return _WORTHWHILE * min(rank, m, n) * (m + n) <= m * n


def _random(n: int, r: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, r, dtype=dtype, generator=generator)
