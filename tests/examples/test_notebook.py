"""A job of a notebook's cells: its classes and functions stand in `__main__`, without a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = (
    """
import torch, dayfly
from torch import nn
scale = 2.0
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    def forward(self, x):
        return scale * self.layers(x)
def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)
def right(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()
job = dayfly.Job(model=Net, data="digits", loss=nn.functional.cross_entropy, optimizer=sgd,
                 metrics={"right": right}, batch_size=256, epochs=1)
""",
    "run = dayfly.train(job, workers=2, run_dir='run', progress=False)",
    "run = dayfly.resume('run', epochs=2, workers=1, progress=False)",
    "found = run.test(progress=False); rows = len(run.predict(progress=False))",
)
PLAN = """
profile = dayfly.profile(job, memory_mib=(1024,), quick=True)
plans = len(dayfly.plan(profile, workers=2).points)
"""
SAID = """
import json
print(json.dumps([len(run.history), found["right"] == run.history[-1]["right"], rows]))
"""
EXPECTED = [2, True, 179]


@pytest.mark.long
def test_what_is_typed_into_an_interpreter_trains_and_is_resumed(tmp_path: Path) -> None:
    """As a kernel does it: each cell compiled by itself, under a name that is no file's."""
    script = tmp_path / "kernel.py"
    script.write_text(
        "del __file__\n"
        f"for n, cell in enumerate({[*CELLS, SAID]!r}):\n"
        "    exec(compile(cell, f'<ipython-input-{n}>', 'exec'), globals())\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, text=True, capture_output=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED


@pytest.mark.slow  # a kernel of Jupyter; its representative is above
def test_a_notebook_trains_resumes_and_plans(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(cell) for cell in (*CELLS, PLAN, SAID, "print(plans > 0)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=250, kernel_name="python3", resources=where).execute()
    said = [cell.outputs[-1].text for cell in notebook.cells[-2:]]
    assert json.loads(said[0]) == EXPECTED
    assert said[1] == "True\n"
