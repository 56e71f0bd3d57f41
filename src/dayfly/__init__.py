"""dayfly trains PyTorch models on short-lived serverless functions.

    run = dayfly.train(dayfly.Job(model=..., data="digits", loss=..., optimizer=...), workers=4)

Names are loaded when they are first used, so that importing dayfly is quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dayfly.errors import DayflyError, RequestError, RunFailed
    from dayfly.job import Job
    from dayfly.runs.api import resume, train
    from dayfly.runs.choosing.api import plan
    from dayfly.runs.profiling.api import profile
    from dayfly.runs.run import Run
    from dayfly.runs.scripts.lifetime import checkpoint_due, remaining_s

__all__ = [
    "DayflyError",
    "Job",
    "RequestError",
    "Run",
    "RunFailed",
    "checkpoint_due",
    "plan",
    "profile",
    "remaining_s",
    "resume",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "DayflyError": "dayfly.errors",
    "RequestError": "dayfly.errors",
    "RunFailed": "dayfly.errors",
    "Job": "dayfly.job",
    "Run": "dayfly.runs.run",
    "checkpoint_due": "dayfly.runs.scripts.lifetime",
    "plan": "dayfly.runs.choosing.api",
    "profile": "dayfly.runs.profiling.api",
    "remaining_s": "dayfly.runs.scripts.lifetime",
    "resume": "dayfly.runs.api",
    "train": "dayfly.runs.api",
}


class _Package(ModuleType):
    """`dayfly.train` is the function, though the package has a room of that name; so is `plan`.

    Python binds a submodule to its parent's attribute when it is imported; for the public names
    that is passed over. The rooms are reached by import: `from dayfly.train.order import Epochs`.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'dayfly' has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)

    def __dir__(self) -> list[str]:
        """The public names, without what this file imports."""
        return sorted([*__all__, *(name for name in self.__dict__ if name.startswith("__"))])

    def __reduce__(self) -> tuple[Any, ...]:
        """Jobs that refer to dayfly travel by cloudpickle, which takes plain modules only."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
