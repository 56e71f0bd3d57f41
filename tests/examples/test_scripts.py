"""Scripts as people have them run on functions as under torchrun, to the same end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.launching import dayfly_run, torchrun
from tests.examples.page import measured

pytestmark = pytest.mark.long

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"
WORKERS = 2
#: Two terms have one order, so sums are the same bits; what is left is what libraries may do.
EXACT = {"rtol": 0.0, "atol": 1e-6}


def lines(output: str) -> list[str]:
    """What the script itself said of its training."""
    return [line for line in output.splitlines() if measured(line)]


def same(one: Any, other: Any) -> None:
    """Two trees of tensors and plain values are equal."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, **EXACT)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    else:
        assert one == other


def made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def both(tmp_path: Path, *script: object) -> tuple[list[str], list[str], Path, Path]:
    """Lines and directories of a script under torchrun with gloo, and on functions.

    In one of some forty runs gloo came to other losses than functions and than one process
    (1.06932 in place of 1.06947), so a reference that differs is made once more. This hides
    nothing of dayfly's: its run is the same one, and has to equal the new reference.
    """
    gloo, dayfly = tmp_path / "gloo", tmp_path / "dayfly"
    there = lines(torchrun(WORKERS, *script, cwd=made(gloo)))
    here = lines(dayfly_run(WORKERS, *script, cwd=made(dayfly)))
    if here != there:
        gloo = tmp_path / "gloo again"
        there = lines(torchrun(WORKERS, *script, cwd=made(gloo)))
    return there, here, gloo, dayfly


@pytest.mark.slow  # frameworks; the next test has torch's own DDP under torchrun and on functions
@pytest.mark.parametrize(
    ("script", "file", "epochs"),
    [
        ("with_fabric.py", "fabric.ckpt", 5),
        ("with_accelerate.py", "accelerate.pt", 5),
    ],
)
def test_a_library_trains_as_it_does_under_torchrun(
    script: str, file: str, epochs: int, tmp_path: Path
) -> None:
    there, here, gloo, dayfly = both(tmp_path, SCRIPTS / script)
    assert here == there
    assert len(here) == epochs + 1
    figures = [value for line in here for _, value in measured(line)]
    assert figures[epochs - 1] < figures[0], "it learned"
    assert figures[-1] > 0.8, "accuracy"
    same(torch.load(gloo / file), torch.load(dayfly / file))


#: Runs another script, the first word of its arguments, as it stands; in its first life rank 1 is
#: killed once a file that matches the second word is there.
DIES = """
import os, runpy, signal, sys, threading, time
from pathlib import Path

_, script, pattern = sys.argv

def kill():
    while not list(Path().glob(pattern)):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    threading.Thread(target=kill, daemon=True).start()
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.slow  # frameworks; tests/run_command/test_runs.py has deaths of scripts of one's own
@pytest.mark.parametrize(
    ("script", "package", "saved"),
    [
        ("with_accelerate.py", "accelerate", "accelerate/*/whole"),
        ("with_lightning.py", "pytorch_lightning", "lightning/last.ckpt"),
        ("with_trainer.py", "transformers", "trainer/checkpoint-*/trainer_state.json"),
    ],
)
def test_a_trainer_of_a_library_goes_on_after_a_death(
    script: str, package: str, saved: str, tmp_path: Path
) -> None:
    """From its own last checkpoint, to the end that it comes to under torchrun."""
    pytest.importorskip(package, reason=f"{package} is installed by `make slow`")
    there, here, *_ = both(tmp_path, SCRIPTS / script)
    assert here == there
    assert len(here) == 6
    losses = [value for line in here for name, value in measured(line) if name == "loss"]
    assert losses[-1] < losses[0]
    (directory := tmp_path / "dying").mkdir()
    (directory / "dies.py").write_text(DIES)
    said = lines(dayfly_run(WORKERS, "dies.py", SCRIPTS / script, saved, cwd=directory))
    assert [line for line in here if line in said][-1:] == there[-1:]
    assert len(said) > len(set(said)) or sorted(set(said)) == sorted(there)


@pytest.mark.slow
def test_a_snapshot_is_gone_on_from_as_if_nothing_had_been(tmp_path: Path) -> None:
    """On functions, and under torchrun without a pause."""
    script, five = SCRIPTS / "ddp_snapshot.py", (5, "--save-every", 2)
    dayfly_run(WORKERS, script, 3, *five[1:], cwd=made(tmp_path / "dayfly"))
    there, here, gloo, dayfly = both(tmp_path, script, *five)
    assert [line.partition(":")[0] for line in here] == ["epoch 3", "epoch 4"]
    assert here == there[-2:]
    saved = torch.load(dayfly / "snapshot.pt")
    assert saved["epochs_run"] == 5
    same(torch.load(gloo / "snapshot.pt"), saved)
