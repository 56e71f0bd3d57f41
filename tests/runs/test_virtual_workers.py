"""With virtual workers a run has the same bits at any size, also where that changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs import coordinator
from dayfly.runs.changes import Changes
from dayfly.runs.settings import Settings
from dayfly.runs.steering import scale
from tests.runs import small
from tests.runs.test_scaling import Asking, generations

pytestmark = pytest.mark.long

#: Leaves of a batch of 28; the last batch of an epoch has 12.
LEAVES, BATCH = 5, 28
JOB: dict[str, Any] = {"batch_size": BATCH, "epochs": 2, "scheduler": None}


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dayfly.Run]:
    """The run on one worker."""

    @cache
    def run() -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp("alone"), 1)

    return run


def train(data: Path, directory: Path, workers: int | None, **more: Any) -> dayfly.Run:
    settings = {**small.SETTINGS, "virtual_workers": LEAVES, **more}
    return dayfly.train(small.job(data, **JOB), workers=workers, run_dir=directory, **settings)


@pytest.mark.parametrize(
    ("workers", "collective"),
    [
        # Unequal numbers of leaves, and one of each.
        (3, "overlapped"),
        (5, "all-reduce"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, None), (4, "pipelined"))),
    ],
)
def test_weights_and_history_are_the_same_at_any_size(
    data: Path,
    tmp_path: Path,
    alone: Callable[[], dayfly.Run],
    workers: int,
    collective: str | None,
) -> None:
    run = train(data, tmp_path / "run", workers, collective=collective)
    assert small.bits(run) == small.bits(alone())
    assert run.result.workers == workers


@pytest.fixture(scope="module")
def staged_alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    """The run of a model in two stages of one replica each."""
    return train(data, tmp_path_factory.mktemp("staged"), None, cut=(3,))


@pytest.mark.parametrize(
    ("cut", "replicas", "more"),
    [
        ((3,), 2, {"schedule": "1f1b"}),
        ((1, 3), 3, {"collective": "overlapped"}),
        # A replica a leaf, as of uncut models above.
        pytest.param((3,), LEAVES, {"channel": "tcp://"}, marks=pytest.mark.slow),
    ],
)
def test_neither_replicas_nor_cut_nor_schedule_show_in_the_bits_of_a_model_in_stages(
    data: Path,
    tmp_path: Path,
    staged_alone: dayfly.Run,
    cut: tuple[int, ...],
    replicas: int,
    more: dict[str, Any],
) -> None:
    run = train(data, tmp_path / "run", None, cut=cut, replicas=replicas, **more)
    assert small.bits(run) == small.bits(staged_alone)
    assert run.result.workers == (len(cut) + 1) * replicas


def test_stages_are_resized_and_one_dies_in_mid_run(
    data: Path, tmp_path: Path, staged_alone: dayfly.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 x 2 functions, then 2 x 3, of which one dies in a backward pass, with a leaf kept."""
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.05)
    asking = Asking(tmp_path, lambda run: [scale(run, Changes(replicas=3), 60.0)])
    faults = [Fault(4, 2 * 7 - 1, "backward-1"), Fault(1, 3, "grad-fetch")]
    stages: dict[str, Any] = {"workers": None, "cut": (3,), "replicas": 2}
    run = asking.train(data, job=JOB, virtual_workers=LEAVES, faults=faults, **stages)
    assert [one["workers"] for one in generations(run)] == [4, 6], asking.answer
    assert run.result.restarts >= 1
    assert small.bits(run) == small.bits(staged_alone)


def test_resizes_and_a_death_in_mid_run_leave_the_same_bits(
    data: Path, tmp_path: Path, alone: Callable[[], dayfly.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 workers, then 2, then 4, of which one dies with part of its nodes sent."""
    monkeypatch.setattr(coordinator, "LOOK_EVERY_S", 0.05)

    def resize(run: str) -> list[str]:
        return [scale(run, Changes(workers=workers), 60.0) for workers in (2, 4)]

    asking = Asking(tmp_path, resize)
    last = 2 * 7 - 1
    faults = [Fault(1, last, "grad-put-part"), Fault(2, 3, "grad-fetch")]
    few = {"job": JOB, "step_s": 0.5}  # steps, of which two changes have to find some left
    run = asking.train(data, workers=3, virtual_workers=LEAVES, faults=faults, **few)
    assert [one["workers"] for one in generations(run)] == [3, 2, 4], asking.answer
    assert run.result.restarts >= 1
    assert small.bits(run) == small.bits(alone())


def test_a_run_without_virtual_workers_is_as_it_was(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    """Up to three leaves the tree adds in rank order: as many workers have the bits of that run."""
    run = dayfly.train(
        small.job(data), workers=3, virtual_workers=3, run_dir=tmp_path / "run", **small.SETTINGS
    )
    assert small.bits(run) == small.bits(undisturbed(3))


def test_what_was_begun_stays(data: Path, tmp_path: Path) -> None:
    """The leaves, and the pieces of each, are the run's for life; workers are not."""
    directory = tmp_path / "run"
    train(data, directory, 2)
    for changes, said in (
        ({"virtual_workers": 8}, "--virtual-workers 8: .* goes on as it began, with 5"),
        ({"micro_batches": 2}, "--micro-batches 2: .* goes on as it began"),
        ({"workers": 6}, "--virtual-workers 5 cannot be shared by 6 workers"),
    ):
        with pytest.raises(RequestError, match=said):
            dayfly.resume(directory, epochs=3, progress=False, **changes)
    longer = dayfly.resume(directory, epochs=3, progress=False, workers=3)
    other = dayfly.train(
        small.job(data, **{**JOB, "epochs": 3}),
        workers=1,
        virtual_workers=LEAVES,
        run_dir=tmp_path / "other",
        **small.SETTINGS,
    )
    assert small.bits(longer) == small.bits(other)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"virtual_workers": 0}, "--virtual-workers 0: give a number from 1"),
    ({"workers": 4, "virtual_workers": 3}, "cannot be shared by 4 workers"),
    ({"collective": "ring"}, "cannot have --collective ring, .*: give one of all-reduce, k-reduce"),
    ({"collective": "push-pull"}, "push-pull"),
    ({"channel": "ps://"}, "cannot be with ps://.*, whose server adds in an order of its own"),
    ({"compress": "bf16"}, "cannot be with --compress bf16"),
    ({"sync": "local-sgd", "k": 2}, "cannot be with --sync local-sgd"),
    ({"cut": (2,), "micro_batches": 4}, "cannot be with --micro-batches of a cut model"),
    ({"cut": (2,), "replicas": 9, "workers": 18}, "cannot be shared by 9 workers"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Settings(**{"workers": 2, "virtual_workers": 8, **given})


def test_a_direct_channel_sums_along_the_tree_by_another_algorithm_than_a_ring() -> None:
    asked = {"workers": 2, "channel": "tcp://"}
    assert Settings(**asked).algorithm == "ring"
    assert Settings(**asked, virtual_workers=4).algorithm == "overlapped"


def test_more_leaves_than_samples_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a batch of 28 cannot be shared by 29 virtual workers"):
        train(data, tmp_path / "run", 2, virtual_workers=29)
