"""dayfly trains PyTorch models on short-lived serverless functions.

    run = dayfly.train(dayfly.Job(model=..., data="digits", loss=..., optimizer=...), workers=4)

Names are loaded when they are first used, so that importing dayfly is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dayfly import callbacks, data
    from dayfly.errors import DayflyError, RequestError, RunFailed
    from dayfly.job import Job
    from dayfly.runs.api import load, resume, train
    from dayfly.runs.planning_api import plan, profile
    from dayfly.runs.predict import predict
    from dayfly.runs.run import Run
    from dayfly.runs.scripts.lifetime import checkpoint_due, remaining_s
    from dayfly.runs.scripts.parallel import Parallel, parallel
    from dayfly.runs.simulation import simulate

__all__ = [
    "DayflyError",
    "Job",
    "Parallel",
    "RequestError",
    "Run",
    "RunFailed",
    "callbacks",
    "checkpoint_due",
    "data",
    "load",
    "parallel",
    "plan",
    "predict",
    "profile",
    "remaining_s",
    "resume",
    "simulate",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "DayflyError": "dayfly.errors",
    "RequestError": "dayfly.errors",
    "RunFailed": "dayfly.errors",
    "Job": "dayfly.job",
    "Parallel": "dayfly.runs.scripts.parallel",
    "Run": "dayfly.runs.run",
    "checkpoint_due": "dayfly.runs.scripts.lifetime",
    "load": "dayfly.runs.api",
    "parallel": "dayfly.runs.scripts.parallel",
    "plan": "dayfly.runs.planning_api",
    "predict": "dayfly.runs.predict",
    "profile": "dayfly.runs.planning_api",
    "remaining_s": "dayfly.runs.scripts.lifetime",
    "resume": "dayfly.runs.api",
    "simulate": "dayfly.runs.simulation",
    "train": "dayfly.runs.api",
}


def __getattr__(name: str) -> Any:
    if name in ("callbacks", "data"):
        return importlib.import_module(f"dayfly.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dayfly' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, without what this file imports."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
