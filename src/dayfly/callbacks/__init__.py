"""Callbacks: what hears of a run in its coordinator, and may decide about it.

dayfly.train(job, callbacks=[dayfly.callbacks.EarlyStopping(patience=3)])
"""

from __future__ import annotations

from dayfly.callbacks.base import Callback, RunView
from dayfly.callbacks.loggers import (
    CSVLogger,
    JSONLogger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from dayfly.callbacks.usual import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    ProgressBar,
)

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "JSONLogger",
    "LearningRateMonitor",
    "MLFlowLogger",
    "ModelCheckpoint",
    "ProgressBar",
    "RunView",
    "TensorBoardLogger",
    "WandbLogger",
]
