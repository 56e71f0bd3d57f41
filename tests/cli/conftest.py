"""Jobs as files."""

from __future__ import annotations

from pathlib import Path

import pytest

FAST = """
import torch, dayfly
from torch import nn

job = dayfly.Job(
    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    data="digits",
    loss=nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    batch_size=128,
    epochs=2,
)
"""

#: Takes half a minute, so that it can be interrupted, unless there is a file `hurry` beside it. Its
#: steps are equal to the fast one's.
SLOW = """
import os, time

def lingers(x):
    if "DAYFLY_SESSION" in os.environ and not os.path.exists("HURRY"):  # in a function
        time.sleep(0.02)
    return x
""" + FAST.replace("    epochs=2,", "    epochs=2,\n    transform=lingers,")


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    path = tmp_path / "fast.py"
    path.write_text(FAST)
    return path


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    path = tmp_path / "slow.py"
    path.write_text(SLOW.replace("HURRY", str(tmp_path / "hurry")))
    return path
