"""What settings say of a pipeline, in words: stages, layers, workers, memory, the ideal bubble."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.runs.report.stages import Stages
from dayfly.runs.scripts.record import ScriptSettings
from dayfly.runs.settings import Settings
from tests.report.made_up import settings_of

SETTINGS = {
    "cut": [4, 5],
    "replicas": 2,
    "micro_batches": 8,
    "schedule": "1f1b",
    "stage_memory_mib": [1024, 2048, 512],
}


def found(**settings: Any) -> Stages:
    made = Stages.of(settings_of(settings))
    assert made is not None
    return made


def test_all_that_settings_say() -> None:
    stages = found(**SETTINGS)
    assert stages.form() == "3 stages, 2 replicas, 8 micro-batches, 1F1B"
    assert [stages.title(n) for n in range(stages.count)] == [
        "stage 0: layers 0 to 3, 1024 MiB",
        "stage 1: layer 4, 2048 MiB",
        "stage 2: layers 5 to the last, 512 MiB",
    ]
    assert [stages.name(n) for n in (0, 3, 5)] == [
        "stage 0, replica 0 (worker 0)",
        "stage 1, replica 1 (worker 3)",
        "stage 2, replica 1 (worker 5)",
    ]
    assert stages.short(3) == "s1r1"
    assert [stages.stage_of(n) for n in range(6)] == [0, 0, 1, 1, 2, 2]


def test_what_settings_leave_out() -> None:
    stages = found(cut=[2], replicas=None, memory_mib=1769)
    assert stages.form() == "2 stages, fill-drain"
    assert found(cut=[2], micro_batches=1).form() == "2 stages, 1 micro-batch, fill-drain"
    assert stages.name(1) == "stage 1 (worker 1)"
    assert stages.short(1) == "s1"
    assert stages.title(0) == "stage 0: layers 0 to 1, 1769 MiB"
    assert found(cut=[2]).title(1) == "stage 1: layers 2 to the last"


def test_a_model_that_was_not_cut_has_no_stages() -> None:
    assert Stages.of(Settings(workers=4, micro_batches=8)) is None
    assert Stages.of(ScriptSettings()) is None


@pytest.mark.parametrize(
    ("cut", "micro_batches", "bubble"),
    [([4], 1, 1 / 2), ([4, 9, 12], 1, 3 / 4), ([4, 9, 12], 12, 3 / 15), ([4], 99, 1 / 100)],
)
def test_the_ideal_bubble(cut: list[int], micro_batches: int, bubble: float) -> None:
    assert found(cut=cut, micro_batches=micro_batches).ideal_bubble == pytest.approx(bubble)
