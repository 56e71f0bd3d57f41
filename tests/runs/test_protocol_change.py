"""The protocol changes in mid-run: whose state goes on, and the same bits whoever dies."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import dayfly
from dayfly.callbacks import Callback
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs import launch
from dayfly.runs.changing import fitted, state_notes
from dayfly.runs.display import Display
from dayfly.runs.prepare import check_phases
from dayfly.runs.settings import Settings
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small
from tests.runs.test_resume import resume
from tests.runs.test_scaling import generations
from tests.runs.test_streaming import ROUNDED, killed_with_sums

EPOCH = small.STEPS_AN_EPOCH
#: What a callback asks for at the end of each epoch but the last.
COURSE: list[dict[str, Any]] = [
    {"sync": "hap", "aggregators": 1},
    {"sync": "local-sgd", "k": 4},
    {"outer": "nesterov", "fragments": 2, "k": 3},
    {"sync": "bsp"},
]
EPOCHS = len(COURSE) + 1


class Course(Callback):
    """Each epoch by another protocol."""

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        if record["epoch"] < EPOCHS:
            run.scale(**COURSE[record["epoch"] - 1])


def job(data: Path) -> dayfly.Job:
    return small.job(data, callbacks=[Course()], epochs=EPOCHS, ema=0.9)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dayfly.Run:
    """A run through all protocols, with nothing in its way."""
    directory = tmp_path_factory.mktemp("whole")
    return dayfly.train(job(data), workers=2, run_dir=directory, **small.SETTINGS)


@pytest.mark.long
@pytest.mark.quick
def test_a_run_goes_through_all_protocols_and_takes_each_step_once(whole: dayfly.Run) -> None:
    begun = generations(whole)
    assert [one["first_step"] for one in begun] == [EPOCH * epoch for epoch in range(EPOCHS)]
    said = [one["changes"] for one in begun]
    assert said[0] is None
    for words, flags in zip(
        said[1:],
        (
            ["--sync hap in place of bsp", "--aggregators 1 in place of none"],
            ["--sync local-sgd in place of hap", "--k 4", "--aggregators none in place of 1"],
            ["--k 3 in place of 4", "--outer nesterov in place of none", "--fragments 2"],
            ["--sync bsp in place of local-sgd", "--k none in place of 3", "--outer none"],
        ),
        strict=True,
    ):
        assert all(flag in words for flag in flags), words
    for rank in range(2):
        told = small.events(whole.directory, f"worker-{rank}")
        steps = [one["step"] for one in told if one["kind"] == "step"]
        assert sorted(steps) == list(range(EPOCH * EPOCHS))
    assert [one["epoch"] for one in whole.history] == list(range(1, EPOCHS + 1))
    assert whole.history[-1]["val_accuracy"] > 0.8
    page = whole.report().read_text()
    assert "--sync local-sgd in place of hap" in page


@pytest.mark.long
def test_deaths_around_the_changes_leave_the_same_bits(
    whole: dayfly.Run, data: Path, tmp_path: Path
) -> None:
    faults = [
        Fault(0, EPOCH, "start"),
        Fault(1, EPOCH + 1, "reduced"),
        Fault(0, 2 * EPOCH, "written"),
        Fault(1, 2 * EPOCH, "stepped"),
        Fault(0, 3 * EPOCH - 1, "decided"),
        Fault(1, 3 * EPOCH, "start"),
        Fault(0, 3 * EPOCH + 4, "computed"),
        Fault(1, 4 * EPOCH, "told"),
        Fault(0, 4 * EPOCH, "compute"),
    ]
    run = dayfly.train(job(data), workers=2, run_dir=tmp_path, faults=faults, **small.SETTINGS)
    assert run.result.restarts == len(faults), "each death happened, once"
    assert small.bits(run) == small.bits(whole)


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "place"),
    [
        (3 * EPOCH, "committed"),
        # Before and after the record of the change: as of any, see test_scaling_callback.py
        pytest.param(2 * EPOCH, "answered", marks=pytest.mark.slow),
        pytest.param(4 * EPOCH, "begin", marks=pytest.mark.slow),
    ],
)
def test_a_coordinator_that_is_killed_in_a_change_leaves_the_same_bits(
    step: int, place: str, whole: dayfly.Run, data: Path, tmp_path: Path
) -> None:
    coordinator.killed(
        data=data,
        run_dir=tmp_path,
        workers=2,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, step, place)],
        job="tests.runs.test_protocol_change:job",
    )
    assert resume(tmp_path)["status"] == "done"
    assert small.bits(tmp_path) == small.bits(whole)


@pytest.mark.long
@pytest.mark.parametrize(
    ("then", "places", "rounds"),
    [
        ({"sync": "bsp"}, [(8, "start"), (10, "grad-get")], []),
        ({"k": 3, "fragments": 3}, [(8, "start"), (10, "compute")], [8, 9, 12, 15]),
        # What fragments begin anew, another rate does, too.
        pytest.param(
            {"k": 5, "outer_lr": 0.4}, [(11, "computed")], [8, 9, 14], marks=pytest.mark.slow
        ),
        # As of other fragments, and as of bsp.
        pytest.param(
            {"sync": "local-sgd", "k": 3, "outer": "momentum", "fragments": None, "overlap": None},
            [(9, "stepped")],
            [8, 9, 12, 15],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["bsp", "fragments", "rate", "momentum"],
)
def test_sums_that_wait_in_mid_epoch_and_rounds_that_begin_there(
    then: dict[str, Any],
    places: list[tuple[int, str]],
    rounds: list[int],
    data: Path,
    tmp_path: Path,
) -> None:
    """Of streamed outer gradients by int8, from step 8 on; with deaths of both, and without."""
    killed_with_sums(data, tmp_path / "one", ROUNDED)
    shutil.rmtree(tmp_path / "one" / "faults")  # faults that happened, by number
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    given = {"collective": "scatter-reduce", "checkpoint_every_s": 1e6, **then}
    runs = []
    for name, faults in (
        ("one", []),
        ("other", [Fault(n % 2, *at) for n, at in enumerate(places)]),
    ):
        directory = tmp_path / name
        run = launch.resume(directory, display=Display(), faults=faults, **given)
        assert (run.result.status, run.result.steps) == ("done", small.STEPS)
        assert run.result.restarts == len(faults)
        runs.append(run)
    assert small.bits(runs[0]) == small.bits(runs[1])
    told = small.events(tmp_path / "one", "worker-0")
    begun = [one["step"] for one in told if one["kind"] == "round" and one["step"] >= 8]
    assert sorted(begun)[: len(rounds)] == rounds
    folder = next((tmp_path / "one" / "checkpoint").glob("0*"))
    own = [load_file(folder / f"own-{rank}-of-2") for rank in range(2)]
    assert not torch.equal(own[0]["residual"], own[1]["residual"])
    assert ("optimizer.json" in own[0]) == bool(rounds)


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"k": 4}, "--sync bsp takes no --k, and --k 4 was given"),
    ({}, {"sync": "local-sgd"}, "--sync local-sgd needs --k"),
    ({}, {"sync": "hap"}, "--sync hap needs --aggregators: how many of the workers sum, 1 to 2"),
    ({}, {"outer": "nesterov"}, "--sync bsp takes no --outer"),
    ({"workers": 1}, {"sync": "hap", "aggregators": 1}, "give --workers 2 or more, or bsp"),
    ({"cut": (1,), "workers": 2}, {"sync": "hap", "aggregators": 1}, "hap cannot have --cut"),
    ({"cut": (1,), "workers": 2}, {"sync": "local-sgd", "k": 4}, "local-sgd cannot have --cut"),
    ({"sync": "local-sgd", "k": 4}, {"cut": (1,)}, "local-sgd cannot have --cut"),
    ({"virtual_workers": 4}, {"sync": "local-sgd", "k": 4}, "--virtual-workers cannot be with"),
    ({"precision": "fp16"}, {"sync": "local-sgd", "k": 4}, "--precision fp16 cannot be with"),
    ({"compress": "powersgd"}, {"sync": "local-sgd", "k": 4}, "which is for gradients"),
    ({"compress": "int8"}, {"sync": "local-sgd", "k": 4}, "--outer nesterov sends what may be"),
    ({"shares": (2, 1, 1)}, {"sync": "local-sgd", "k": 4}, "or --shares that are equal"),
]


@pytest.mark.parametrize(("now", "then", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_what_cannot_be_is_refused(now: dict[str, Any], then: dict[str, Any], words: str) -> None:
    settings = Settings(**{"workers": 3, **now})
    with pytest.raises(RequestError, match=words):
        settings.changed(**then)


def test_a_cut_waits_until_the_run_has_left_its_outer_optimizer(data: Path) -> None:
    """A stage has no place for the optimizers that workers have of their own."""
    before = Settings(workers=2, sync="local-sgd", k=4, outer="nesterov")
    record: Any = SimpleNamespace(settings=before.changed(sync="bsp", cut=(1,)))
    with pytest.raises(RequestError, match="change to --sync bsp first"):
        fitted(before, record, small.job(data), FileStore(data))


def test_what_belongs_to_the_protocol_before_goes_with_it() -> None:
    streamed = Settings(workers=3, shares=(1, 1, 1), sync="local-sgd", k=4, outer="momentum")
    streamed = streamed.changed(outer_lr=0.5, fragments=2)
    assert (streamed.k, streamed.outer_lr, streamed.fragments) == (4, 0.5, 2)
    hap = streamed.changed(sync="hap", aggregators=1)
    assert hap == Settings(workers=3, shares=(1, 1, 1), sync="hap", aggregators=1)
    assert hap.changed(sync="local-sgd", k=2).aggregators is None


def test_a_job_with_several_optimizers_keeps_to_bsp(data: Path) -> None:
    steps = {"a": lambda *_: None, "b": lambda *_: None}
    several = small.job(
        data,
        optimizer={"a": small.adam, "b": small.adam},
        step=steps,
        loss=None,
        scheduler=None,
        clip_norm=None,
    )
    with pytest.raises(RequestError, match="several optimizers cannot have --sync local-sgd"):
        check_phases(several, Settings(sync="local-sgd", k=4))


def test_what_is_dropped_is_said() -> None:
    bsp = Settings(workers=2, compress="int8", collective="scatter-reduce")
    outer = bsp.changed(sync="local-sgd", k=4, outer="nesterov")
    there, back = list(state_notes(bsp, outer)), list(state_notes(outer, bsp))
    assert there[0] == "--outer nesterov begins here, with a state as at a run's beginning"
    assert back[0].startswith("all workers go on with worker 0's optimizer from here on")
    assert there[1] == back[1]
    assert there[1].startswith("what --compress int8 has held back is dropped here")
    assert list(state_notes(outer, outer.changed(k=8, outer_lr=0.1))) == []
    streamed = outer.changed(fragments=2)
    own = "each worker's own parameters of streaming are dropped"
    for after in (streamed.changed(fragments=None, overlap=None), streamed.changed(sync="bsp")):
        assert any(note.startswith(own) for note in state_notes(streamed, after))
    assert list(state_notes(streamed, streamed.changed(fragments=4))) == []
    assert list(state_notes(bsp, bsp.changed(sync="hap", aggregators=1, collective=None))) == []
