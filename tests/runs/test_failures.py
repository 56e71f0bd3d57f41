"""What fails a run, with its cause; and that it does so within seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.data.npy_arrays import load_arrays
from tests.runs import small

pytestmark = pytest.mark.long

MARK = 99.0


@pytest.fixture(scope="module")
def marked(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data with some samples marked that the probe does not look at."""
    arrays = dict(load_arrays(data))
    arrays["x_train"][[57, 58, 59, 60], 0] = MARK
    path = tmp_path_factory.mktemp("marked") / "marked.npz"
    np.savez(path, **arrays)
    return path


class Raises(nn.Module):
    """Misbehaves in training when it sees a marked sample, whoever computes it, again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small.plain_model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and bool((x[:, 0] > MARK / 2).any()):
            self.misbehave()
        return self.inner(x)

    def misbehave(self) -> None:
        raise ArithmeticError("the user's own mistake")


class Exits(Raises):
    def misbehave(self) -> None:
        os._exit(7)


class Hungry(Raises):
    def misbehave(self) -> None:
        self.hoard = [torch.ones(2**20) for _ in range(2000)]


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def fail(model: Any, marked: Path, directory: Path, **settings: Any) -> str:
    job = small.job(marked, model=model, epochs=1)
    with pytest.raises(dayfly.RunFailed) as failure:
        dayfly.train(job, workers=2, run_dir=directory, progress=False, **settings)
    record = (directory / "run.json").read_text()
    assert '"status": "failed"' in record
    return str(failure.value)


def test_an_exception_of_the_user_arrives_with_its_traceback_in_seconds(
    marked: Path, tmp_path: Path
) -> None:
    began = time.monotonic()
    text = fail(Raises, marked, tmp_path)
    assert time.monotonic() - began < 200, "seconds, and not the time that peers wait for messages"
    place = line_of("raise ArithmeticError(")
    assert "raised ArithmeticError: the user's own mistake in step " in text
    assert f", twice at {place}: " in text
    deaths = [one for one in small.events(tmp_path, "coordinator") if one.get("death")]
    assert [one["place"] for one in deaths] == [place] * len(deaths)
    functions = [one["used"]["function"] for one in deaths]
    assert max(functions.count(one) for one in functions) == 2, "it is tried once more, and no more"
    assert "in misbehave" in text
    assert "test_failures.py" in text
    assert "local_function" not in text
    assert "dayfly/runs/" not in text, "the traceback begins with the user's own code"


def test_a_function_that_ends_itself_is_named_with_its_exit_code(
    marked: Path, tmp_path: Path
) -> None:
    assert "ended itself (exit code 7)" in fail(Exits, marked, tmp_path)


def test_out_of_memory_says_who_how_much_and_what_to_do(marked: Path, tmp_path: Path) -> None:
    text = fail(Hungry, marked, tmp_path, memory_mib=500)
    assert "ran out of memory" in text
    assert "500 MiB" in text
    assert "--memory" in text


def test_more_memory_than_the_limit_is_no_death_without_the_limit(
    marked: Path, tmp_path: Path
) -> None:
    """The control: the same job runs where no limit is imposed."""

    class Fed(Raises):
        def misbehave(self) -> None:
            self.hoard = [torch.ones(2**20) for _ in range(150)]

    with pytest.raises(dayfly.RunFailed, match="ran out of memory"):
        dayfly.train(
            small.job(marked, model=Fed, epochs=1),
            workers=1,
            memory_mib=500,
            run_dir=tmp_path / "limited",
            progress=False,
        )
    run = dayfly.train(
        small.job(marked, model=Fed, epochs=1), workers=1, run_dir=tmp_path / "free", progress=False
    )
    assert run.result.restarts == 0


def test_too_little_memory_for_torch_is_refused_before_anything_starts(
    marked: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    too_small = r"functions of 100 MiB are too small: .* at least \d+ MiB.*--memory"
    with pytest.raises(dayfly.RequestError, match=too_small):
        dayfly.train(
            small.job(marked), workers=2, memory_mib=100, run_dir=directory, progress=False
        )
    assert not directory.exists()


def test_results_that_cannot_be_written_fail_the_run_and_lose_nothing(
    data: Path, tmp_path: Path
) -> None:
    """The model's function works in every worker, and not in the coordinator at the end."""
    needed = tmp_path / "pretrained"
    needed.touch()

    def model() -> nn.Module:
        needed.stat()
        return small.plain_model()

    def last_seen(x: torch.Tensor) -> torch.Tensor:
        if "DAYFLY_SESSION" in os.environ:  # in a function, which has its model by then
            needed.unlink(missing_ok=True)
        return x

    job = small.job(data, model=model, eval_transform=last_seen, epochs=1)
    directory = tmp_path / "run"
    with pytest.raises(dayfly.RunFailed, match=r"results cannot be written.*pretrained"):
        dayfly.train(job, workers=1, run_dir=directory, progress=False)
    needed.touch()
    run = dayfly.resume(directory, progress=False)
    assert run.result.steps == small.STEPS_AN_EPOCH
    assert (directory / "weights.safetensors").exists()


class Odd(torch.optim.SGD):
    """Has another learning rate in every process that loads its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.param_groups[0]["lr"] = 1e-9 * os.getpid()


def odd(parameters: Any) -> torch.optim.Optimizer:
    return Odd(parameters, lr=0.1)


def test_replicas_that_begin_with_other_states_fail_the_run(data: Path, tmp_path: Path) -> None:
    job = small.job(data, optimizer=odd, scheduler=None)
    wrong = r"loaded another state before step 0 than worker \d"
    with pytest.raises(dayfly.RunFailed, match=wrong):
        dayfly.train(job, workers=2, run_dir=tmp_path / "run", **small.SETTINGS)
