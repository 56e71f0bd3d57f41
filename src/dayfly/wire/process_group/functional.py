"""Functional collectives whose C++ side knows no group that is written in Python.

torch 2.13 leads all others by way of the group's own methods.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch._C._distributed_c10d import _register_work, _resolve_process_group


@cache
def register() -> torch.library.Library:
    """Let `all_gather_into_tensor_out`, which Inductor makes of FSDP2, ask the group. Once."""
    library = torch.library.Library("_c10d_functional", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*other operators may also be overridden.*")
        library.impl("all_gather_into_tensor_out", _all_gather_out, "CompositeExplicitAutograd")
    return library


def _all_gather_out(
    own: torch.Tensor, group_size: int, group_name: Any, *, out: torch.Tensor
) -> torch.Tensor:
    group: Any = _resolve_process_group(group_name)
    work = group._allgather_base(out, own)
    _register_work(out, work)
    return out
