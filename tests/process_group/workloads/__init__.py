"""Programs of torch.distributed: functions of (rank, world size) that know nothing of dayfly.

Each runs in a process group, in a working directory that its ranks share, and returns named
tensors, which are the same over any backend.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """Mark a program as one to run in worlds of these sizes, for `workloads`, which reads it."""
    return lambda program: program


def workloads(module: str) -> list[Workload]:
    """The marked programs of a module of this package, which is not imported.

    What the modules import takes seconds, and only the workers need it.
    """
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
    return [
        Workload(
            path=f"{__name__}.{module}:{function.name}",
            sizes=tuple(map(ast.literal_eval, mark.args)),
            exact=any(ast.literal_eval(keyword.value) for keyword in mark.keywords),
        )
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == workload.__name__
    ]
