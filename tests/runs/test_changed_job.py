"""`dayfly train JOB.py --resume DIR`: the job's files are compared with those of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.runs import launch
from dayfly.runs.display import Display
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import load_job_file

TEXT = """
import torch, dayfly
from torch import nn

job = dayfly.Job(
    model=lambda: nn.Sequential(nn.Linear(12, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 5)),
    data=DATA,
    loss=nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    batch_size=20,
    epochs=EPOCHS,
)
"""


def write(file: Path, data: Path, width: int = 8, epochs: int = 1) -> Path:
    text = TEXT.replace("WIDTH", str(width)).replace("EPOCHS", str(epochs))
    file.write_text(text.replace("DATA", repr(str(data))))
    return file


def resume(file: Path, **given: Any) -> dayfly.Run:
    return launch.resume(file.parent / "run", job_file=file, display=Display(), **given)


@pytest.mark.long
def test_a_changed_job_is_refused_unless_it_is_allowed(data: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "wide.py", data)
    run = launch.begin(
        load_job_file(file),
        Settings(),
        directory=tmp_path / "run",
        name="wide",
        code=tmp_path,
        display=Display(),
    )
    first = run.result.train_loss
    assert resume(file).result == run.result, "the same job; and the run is done"

    other = tmp_path / "other.py"
    with pytest.raises(dayfly.RequestError, match=r"the run keeps no other\.py to compare with"):
        resume(other)
    write(file, data, width=9)
    (tmp_path / "helper.py").touch()
    text = r"helper\.py, wide\.py changed since the run began: leave wide\.py out to go on with"
    with pytest.raises(dayfly.RequestError, match=text):
        resume(file, epochs=2)
    with pytest.raises(dayfly.RequestError, match=r"another model's|size mismatch"):
        resume(file, epochs=2, allow_changed_job=True)
    assert resume(write(file, data, epochs=1), allow_changed_job=True).result == run.result

    again = resume(write(file, data, epochs=3), allow_changed_job=True)
    assert (again.result.status, again.result.epochs) == ("done", 3)
    assert again.history[0]["train_loss"] == first
    later = dayfly.resume(tmp_path / "run", epochs=4, progress=False)
    assert (later.result.epochs, later.job.epochs) == (4, 4)
