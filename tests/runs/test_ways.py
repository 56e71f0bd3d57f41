"""Mixed precision, moving averages and several optimizers: deaths and resumes leave the bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.training.precision import FIRST_SCALE
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small, staged, ways

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Way:
    """job: a function of `ways`. faults: where workers die, beside where the coordinator does."""

    job: str
    faults: tuple[Fault, ...]
    workers: int = 2
    settings: dict[str, Any] = field(default_factory=dict)


IN_BSP = (Fault(1, 2, "grad-put-part"), Fault(0, 5, "reduced"), Fault(1, 17, "evaluated"))
IN_STAGES = (Fault(1, 2, "forward-0"), Fault(0, 5, "applied"), Fault(2, 8, "epoch"))
WAYS = {
    "fp16": Way("scaled", IN_BSP, settings={"precision": "fp16"}),
    "stages": Way(
        "scaled",
        IN_STAGES,
        workers=3,
        settings={"cut": staged.CUT, "micro_batches": 2, "precision": "fp16"},
    ),
    "local": Way(
        "averaged",
        (Fault(1, 4, "stepped"), Fault(0, 5, "reduced")),
        settings={"sync": "local-sgd", "k": 3, "precision": "bf16"},
    ),
    "gan": Way(
        "gan", (Fault(1, 2, "computed-d"), Fault(0, 5, "applied-d"), Fault(1, 8, "reduced-g"))
    ),
}


def train(data: Path, run_dir: Path, way: Way, **more: Any) -> dayfly.Run:
    given = {"workers": way.workers, **small.SETTINGS, **way.settings, **more}
    return dayfly.train(getattr(ways, way.job)(data), run_dir=run_dir, **given)


def last_tree(run: dayfly.Run) -> Any:
    store = FileStore(run.directory)
    checkpoint = checkpoints.latest(store)
    assert checkpoint is not None
    return checkpoints.read(store, checkpoint)[0]["replica"]


@pytest.fixture(scope="module")
def undisturbed(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dayfly.Run]:
    @cache
    def run(name: str) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp(name), WAYS[name])

    return run


def same(one: Path, other: Path) -> None:
    assert small.bits(one) == small.bits(other)
    names = ["ema.safetensors"]
    assert [(one / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]


@pytest.mark.parametrize("name", WAYS)
def test_deaths_and_a_resume_leave_the_same_bits(
    name: str, data: Path, undisturbed: Callable[[str], dayfly.Run], tmp_path: Path
) -> None:
    reference, way = undisturbed(name), WAYS[name]
    run = train(data, tmp_path / "deaths", way, faults=way.faults)
    assert run.result.restarts == len(way.faults)
    same(run.directory, reference.directory)
    broken = tmp_path / "resumed"
    coordinator.killed(
        data=data,
        job=f"tests.runs.ways:{way.job}",
        run_dir=broken,
        workers=way.workers,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, 13, "step")],
        **way.settings,
    )
    dayfly.resume(broken, progress=False)
    same(broken, reference.directory)
    shutil.rmtree(broken)


@pytest.mark.parametrize("name", ["fp16", "stages"])
def test_steps_that_overflow_are_skipped_by_all(
    name: str, undisturbed: Callable[[str], dayfly.Run]
) -> None:
    run = undisturbed(name)
    scaler = last_tree(run)["scaler"]
    assert scaler["scale"] < FIRST_SCALE
    skipped = small.STEPS - scaler["good"]
    assert 0 < skipped < small.STEPS / 2
    assert run.history[-1]["val_accuracy"] > 0.5
