"""Where numbers are NaN or infinite: in data, in weights, in the state of a training.

One pass over the memory and no copies: the least and the greatest element of a tensor tell, as NaN
is passed on by both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dayfly.training.state import Tensors

#: Bytes of an array that are looked at at once.
CHUNK_BYTES = 2**24


def chunks(array: NDArray[Any]) -> Iterator[range]:
    """The rows of an array (N, ...) in chunks of about `CHUNK_BYTES`, a row at least."""
    size = max(1, CHUNK_BYTES // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), size):
        yield range(start, min(start + size, len(array)))


def first_bad_row(rows: NDArray[Any]) -> int | None:
    """The first of the rows (N, ...) that holds NaN or infinity; None: all is finite."""
    if rows.dtype.kind not in "fc" or not rows.size:
        return None
    if rows.dtype.kind == "f" and np.isfinite(rows.min()) and np.isfinite(rows.max()):
        return None
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    return None if finite.all() else int(finite.argmin())


def bad_tensor(tensors: Tensors, trained: Collection[str]) -> str | None:
    """The name of a tensor of a replica's state that has no place in a checkpoint; None: all do.

    NaN belongs nowhere. Infinity may be meant, as in the mask of an attention, but not in a
    parameter to train.

    Args:
        tensors: by name.
        trained: names of the parameters to train.
    """
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            continue
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        known = real.float() if real.itemsize == 1 else real  # torch compares no float8
        least, greatest = (float(one) for one in torch.aminmax(known.detach()))
        infinite = name in trained and max(-least, greatest) == float("inf")
        if least != least or infinite:
            return name
    return None


def trained_names(named: Mapping[str, torch.Tensor], prefix: str = "") -> frozenset[str]:
    """Names of the parameters to train, each with a prefix."""
    return frozenset(prefix + name for name, tensor in named.items() if tensor.requires_grad)
