"""Sums of sparse tensors: members gather what each has, and add it up in the order of ranks.

    number of entries n_r      gathered first: blocks have to be of one size
    indices, padded to max n   (size, dims, n) int64
    values, padded to max n    (size, n, ...)

The sum has the indices that any member has, each once, as gloo gives it.
"""

from __future__ import annotations

import torch

from dayfly.wire.process_group.collectives import Collectives
from dayfly.wire.process_group.operations import Reduction
from dayfly.wire.summation import ADD


def check_sparse(tensors: list[torch.Tensor], how: Reduction) -> None:
    """Raise TypeError unless it is one tensor that can be summed so."""
    (first, *others) = tensors
    if others or first.layout is not torch.sparse_coo or not first.is_cpu:
        raise TypeError(
            f"an all-reduce of sparse tensors takes one of layout sparse_coo on the CPU, not "
            f"{len(tensors)} of {first.layout} on {first.device}: use to_dense()"
        )
    if how.name != "SUM" or how.fold is not ADD:
        raise TypeError(f"{how.name} of a sparse tensor: only SUM has a meaning for what is absent")


def sum_sparse(
    tensor: torch.Tensor, collectives: Collectives, number: int, rank: int, size: int
) -> None:
    """Sum a sparse_coo tensor over the members, in place; it is coalesced afterwards.

    Args:
        number: of the collective.
    """
    own = tensor.detach().coalesce()
    entries = torch.zeros(size, dtype=torch.int64)
    entries[rank] = own._nnz()
    collectives.all_gather(entries, number, "all-reduce-entries")
    most = int(entries.max())
    indices, values = own.indices(), own.values()
    all_indices = torch.zeros(size, len(indices), most, dtype=torch.int64)
    all_values = torch.zeros(size, most, *values.shape[1:], dtype=values.dtype)
    all_indices[rank, :, : own._nnz()] = indices
    all_values[rank, : own._nnz()] = values
    for whole, name in ((all_indices, "indices"), (all_values, "values")):
        if whole.numel():
            collectives.all_gather(whole.view(-1), number, f"all-reduce-{name}")
    total = torch.zeros_like(own)
    for member, count in enumerate(entries.tolist()):
        part = all_indices[member, :, :count], all_values[member, :count]
        total = total + torch.sparse_coo_tensor(*part, size=own.shape, check_invariants=False)
    with torch.no_grad():
        tensor.copy_(total.coalesce())
