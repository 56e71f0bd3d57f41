"""dayfly trains PyTorch models on short-lived serverless functions.

    run = dayfly.train(dayfly.Job(model=..., data="digits", loss=..., optimizer=...), workers=4)

Names are loaded when they are first used, so that importing dayfly is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dayfly.errors import DayflyError, RequestError, RunFailed
    from dayfly.job import Job
    from dayfly.runs.api import resume, train
    from dayfly.runs.run import Run

__all__ = ["DayflyError", "Job", "RequestError", "Run", "RunFailed", "resume", "train"]
__version__ = "0.1.0"

_HOMES = {
    "DayflyError": "dayfly.errors",
    "RequestError": "dayfly.errors",
    "RunFailed": "dayfly.errors",
    "Job": "dayfly.job",
    "Run": "dayfly.runs.run",
    "resume": "dayfly.runs.api",
    "train": "dayfly.runs.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dayfly' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
