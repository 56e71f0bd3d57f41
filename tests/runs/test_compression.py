"""Compression on functions: deaths and resumes leave the same bits, residuals included."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import dayfly
from dayfly.life.faults import Fault
from dayfly.runs.exchange_checks import check_compression
from dayfly.runs.settings import Settings
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.runs.test_resume import killed

pytestmark = pytest.mark.long

WORKERS = 2
METHODS = ("bf16", "int8", "powersgd:2", "topk:0.1", "significance:0.1")
#: With a state of all workers, and with a residual and messages of any size.
IN_THE_SUITE = ("powersgd:2", "significance:0.1")
Undisturbed = Callable[[str], dayfly.Run]


def train(data: Path, directory: Path, compress: str, **more: Any) -> dayfly.Run:
    given = {"workers": WORKERS, **small.SETTINGS, "compress": compress, **more}
    return dayfly.train(small.job(data), run_dir=directory, **given)


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The run with nothing in its way."""

    @cache
    def run(compress: str) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp("alone"), compress)

    return run


def checkpoint_steps(run: dayfly.Run) -> list[int]:
    records = small.events(run.directory, "coordinator")
    return [record["step"] for record in records if record["kind"] == "checkpoint"]


@pytest.fixture(scope="module")
def broken(
    data: Path, alone: Undisturbed, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Path]:
    """Copies of a run by int8 whose coordinator was killed after its first checkpoint."""
    directory = tmp_path_factory.mktemp("broken")
    step = checkpoint_steps(alone("int8"))[0] + 2
    killed(data, directory, [Fault(COORDINATOR, step, "step")], compress="int8")
    return lambda into: shutil.copytree(directory, into)


@pytest.mark.parametrize(
    "compress",
    # The others are without state, or have no more than these two.
    [pytest.param(one, marks=() if one in IN_THE_SUITE else pytest.mark.slow) for one in METHODS],
)
def test_deaths_leave_the_same_bits(
    compress: str, data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """Before the first checkpoint and after one; with the contribution sent, and not yet.

    Who has residuals computes again while it catches up, and only who has.
    """
    reference = alone(compress)
    first, *_ = checkpoint_steps(reference)
    assert 4 < first < small.STEPS - 4, "there is a checkpoint in the middle"
    faults = [
        Fault(1, 2, "grad-put-part"),
        Fault(0, first + 2, "grad-get"),
        Fault(1, first + 3, "reduced", "zygote"),
    ]
    run = train(data, tmp_path, compress, faults=faults)
    assert run.result.restarts == len(faults)
    assert small.bits(run) == small.bits(reference)
    records = small.events(run.directory, "worker-1")
    mine = {r["step"]: r for r in records if r["kind"] == "step" and r["attempt"] == 1}
    assert [mine[step]["computed"] for step in (0, 1)] == [compress != "bf16"] * 2


def test_the_checkpoint_has_each_workers_residual_once(alone: Undisturbed) -> None:
    folder = next((alone("int8").directory / "checkpoint").glob("0*"))
    owns = [load_file(folder / f"own-{rank}-of-2")["residual"] for rank in range(WORKERS)]
    assert all(own.any() for own in owns)
    assert not torch.equal(*owns)
    folder = next((alone("powersgd:2").directory / "checkpoint").glob("0*"))
    names = [name for part in folder.glob("part-*") for name in load_file(part)]
    assert names.count("compress.q") == 1
    assert len(list(folder.glob("own-*"))) == WORKERS


@pytest.mark.parametrize("compress", METHODS)
def test_it_learns_with_less_to_send(
    compress: str, alone: Undisturbed, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    whole, run = undisturbed(WORKERS), alone(compress)
    assert small.bits(run)[0] != small.bits(whole)[0]
    assert run.history[-1]["val_accuracy"] > 0.8
    assert run.result.bytes_up < 0.8 * whole.result.bytes_up


def test_resume_goes_on_as_it_began_with_the_residuals(
    broken: Callable[[Path], Path], alone: Undisturbed, tmp_path: Path
) -> None:
    directory = broken(tmp_path / "run")
    for other in ("none", "bf16"):
        with pytest.raises(
            dayfly.RequestError, match=r"--compress .* goes on as it began, with in"
        ):
            dayfly.resume(directory, progress=False, compress=other)
    assert dayfly.resume(directory, progress=False, compress="int8").result.status == "done"
    assert small.bits(directory) == small.bits(alone("int8"))


def test_another_number_of_workers_takes_the_residuals_over(
    broken: Callable[[Path], Path], tmp_path: Path
) -> None:
    run = dayfly.resume(broken(tmp_path / "run"), progress=False, workers=3)
    assert run.result.status == "done"
    assert run.history[-1]["val_accuracy"] > 0.8
    folder = next((run.directory / "checkpoint").glob("0*"))
    assert len(list(folder.glob("own-*-of-3"))) == 3


def test_with_one_worker_nothing_is_compressed(
    data: Path,
    undisturbed: Callable[[int], dayfly.Run],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = train(data, tmp_path, "powersgd", workers=1, progress=True)
    assert small.bits(run) == small.bits(undisturbed(1))
    assert "with one worker nothing travels, so nothing is compressed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"compress": "gzip"}, "--compress 'gzip' is not known: give one of none, bf16, int8"),
        ({"compress": "powersgd:0"}, "--compress 'powersgd:0' is not known"),
        ({"compress": "topk:0.1", "precision": "fp16"}, "which hides overflow"),
        (
            {"compress": "topk:0.1", "virtual_workers": 4},
            "--virtual-workers cannot be with --compress topk:0.1",
        ),
        (
            {"compress": "bf16", "sync": "local-sgd", "k": 4},
            "--sync local-sgd cannot have --compress bf16, which is for gradients",
        ),
        (
            {"compress": "powersgd", "sync": "local-sgd", "k": 4},
            "--sync local-sgd cannot have --compress powersgd",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(dayfly.RequestError, match=words):
        Settings(**given)


def test_codecs_need_sums_that_all_read_as_they_are_stored() -> None:
    for codec in ("bf16", "int8", "topk:0.01", "significance:0.7"):
        with pytest.raises(dayfly.RequestError, match=f"--compress {codec} needs .* ring does not"):
            check_compression(codec, "ring", stores=False)
    for method in ("none", "powersgd:8"):
        check_compression(method, "ring", stores=False)
