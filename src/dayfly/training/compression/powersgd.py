"""PowerSGD: a gradient as the product of two thin matrices.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
optimization" (2019), algorithms 1 and 2. For each weight matrix, with M = gradient + E (m, n):

    P = M Q              summed over the workers       Q (n, r): the step's before, at first random
    P = orthonormal(P)   (m, r), the same on all
    Q = M^T P            summed over the workers
    E = M - P Q_own^T    what this worker's own gradient lost
    gradient = P Q^T

so two all-reduces a step: P with all that is not compressed, then Q. One step of power iteration,
which goes on from the step before, approaches the r greatest directions.

    first   | P of each matrix | other gradients | moves, used, tail |
    second  | Q of each matrix |

E follows from this worker's own contributions and the sums, and Q is a sum; so a worker that starts
again finds them out as `feedback` says. Sums are of plain numbers, so any collective will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class PowerSgd(Exchange):
    """Gradients of rank `rank`; matrices that it would not make half as large stay as they are.

    Args:
        seed: decides the first Q, which is the same on all workers.
    """

    remembers = True

    def __init__(self, flat: FlatBuffer, rank: int, seed: int) -> None:
        super().__init__(flat)
        shapes = {
            number: (len(parameter), parameter[0].numel())
            for number, parameter in enumerate(flat.parameters)
            if parameter.dim() > 1 and parameter.numel() and _worthwhile(parameter, rank)
        }
        ranks = {number: min(rank, *shape) for number, shape in shapes.items()}
        self._plain = [g for n, g in enumerate(flat.gradients) if n not in shapes]
        self._plain.append(self.buffers[-1])
        sizes_P = [shapes[n][0] * ranks[n] for n in shapes]
        sizes_Q = [shapes[n][1] * ranks[n] for n in shapes]
        plain = [len(one) for one in self._plain]
        like = flat.data
        first, second = like.new_zeros(sum(sizes_P) + sum(plain)), like.new_zeros(sum(sizes_Q))
        views_P = torch.split(first, [*sizes_P, *plain])
        self._plain_sums = views_P[len(shapes) :]
        self.residual = like.new_zeros(sum(m * n for m, n in shapes.values()))
        views_E = torch.split(self.residual, [m * n for m, n in shapes.values()])
        views_Q = torch.split(second, sizes_Q)
        self._matrices = [
            _Matrix(
                number,
                flat.gradients[number].view(m, n),
                views_E[at].view(m, n),
                views_P[at].view(m, ranks[number]),
                views_Q[at].view(n, ranks[number]),
                _random(n, ranks[number], like.dtype, mix(WEIGHTS, seed, number)),
            )
            for at, (number, (m, n)) in enumerate(shapes.items())
        ]
        for one in self._matrices:
            one.Q.copy_(one.first_Q)
        # The second stays away if there is nothing to compress.
        self.buffers = (first, second) if self._matrices else (first,)
        self.codecs = (None,) * len(self.buffers)
        self.early = 0

    def contribute(self, number: int) -> None:
        if number:
            self._second()
        else:
            self._first()

    def _first(self) -> None:
        for one in self._reached():
            one.M.add_(one.E)
        for one in self._matrices:
            torch.mm(one.M, one.Q, out=one.P)
        for own, into in zip(self._plain, self._plain_sums, strict=True):
            into.copy_(own)

    def _second(self) -> None:
        for one in self._matrices:
            one.P.copy_(orthonormal(one.P))
            torch.mm(one.M.T, one.P, out=one.Q)
        for one in self._reached():
            torch.sub(one.M, one.P @ one.Q.T, out=one.E)
            # What is no number has travelled as such: it is not to come back in every step.
            one.E.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def adopt(self) -> None:
        for one in self._matrices:
            torch.mm(one.P, one.Q.T, out=one.M)
            if not one.Q.isfinite().all():
                one.Q.copy_(one.first_Q)
        for own, summed in zip(self._plain, self._plain_sums, strict=True):
            own.copy_(summed)

    def state(self) -> tuple[Tensors, Tensors]:
        shared = {_Q: self.buffers[1]} if self._matrices else {}
        return shared, {_RESIDUAL: self.residual}

    def load_state(self, shared: Tensors, own: Sequence[Tensors]) -> None:
        if _Q in shared:
            self.buffers[1].copy_(shared[_Q])
        total(own, _RESIDUAL, self.residual)

    def _reached(self) -> Iterator[_Matrix]:
        """Those that this worker's backward pass reached.

        If none did, the gradient is left alone; so what a worker did not reach keeps its residual.
        """
        return (one for one in self._matrices if self.flat.reached[one.parameter])


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
