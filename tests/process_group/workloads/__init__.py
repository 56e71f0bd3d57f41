"""Programs of torch.distributed: functions of (rank, world size) that know nothing of dayfly.

Each runs in a process group, in a working directory that its ranks share, and returns named
tensors, which are the same over any backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Program = Callable[[int, int], dict[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """path: `module:function`. sizes: of worlds to run it in. exact: to be the same bit for bit
    also if more than two ranks sum.
    """

    path: str
    sizes: tuple[int, ...]
    exact: bool

    @property
    def name(self) -> str:
        """The function's."""
        return self.path.partition(":")[2]


def workload(*sizes: int, exact: bool = False) -> Callable[[Program], Program]:
    """Mark a program as one to run in worlds of these sizes."""

    def mark(program: Program) -> Program:
        marked: Any = program
        marked.workload = Workload(
            path=f"{program.__module__}:{program.__name__}", sizes=sizes, exact=exact
        )
        return program

    return mark


def workloads(module: str) -> list[Workload]:
    """The marked programs of a module of this package."""
    found = importlib.import_module(f"{__name__}.{module}")
    return [program.workload for program in vars(found).values() if hasattr(program, "workload")]
