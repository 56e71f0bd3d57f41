"""`dayfly bench accuracy`: epochs, seconds and dollars to a target, and that nothing stays."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.parts import namespaces
from benchmarks.parts.accuracy.capped import Took, lines
from benchmarks.parts.accuracy.curves import Curve, Curves, check_alike
from benchmarks.parts.accuracy.forms import BATCH, FORMS, TRAIN, images
from benchmarks.parts.accuracy.reached import functions_usd, machines_usd, rows, targets
from benchmarks.parts.accuracy.shown import figures, tables
from benchmarks.parts.accuracy.ways import AVERAGES, BSP, DDP, WAYS, ways_on
from rich.console import Console

from benchmarks import accuracy
from dayfly.errors import RequestError, RunFailed
from dayfly.models import parameters_of
from tests.benchmarks.left import scratch, spaces

EPOCH = AVERAGES[-1]


def curve(*accuracies: float, train_loss: float = 1.0) -> Curve:
    losses = [1 - one for one in accuracies]
    return Curve(
        accuracies=list(accuracies),
        losses=losses,
        train_losses=[train_loss] * len(losses),
        steps=80,
    )


def took(*epoch_s: float) -> list[Took]:
    return [Took(epoch_s=one, mb=3.0) for one in epoch_s]


@pytest.fixture(scope="module")
def made() -> list[dict[str, Any]]:
    """Two seeds and three rounds; with the second seed the average does not come there."""
    of_bsp = [curve(0.5, 0.9, 1.0), curve(0.5, 0.8, 0.8)]
    curves = {
        DDP: [curve(0.5, 0.99, 0.9), curve(0.7, 0.9, 0.9)],
        BSP: of_bsp,
        EPOCH: [curve(0.5, 0.9, 0.995), curve(0.7, 0.7, 0.7)],
    }
    seconds = {
        DDP.name: took(4.0, 5.0, 6.0),
        BSP.name: took(5.0, 5.0, 5.0),
        EPOCH.name: took(1.0, 2.0, 1.0),
    }
    return rows(curves, targets(of_bsp), seconds, 2)


def test_seconds_are_epochs_to_the_target_times_those_of_an_epoch(
    made: list[dict[str, Any]],
) -> None:
    ddp, bsp, average = made
    assert [row["way"] for row in made] == [DDP.name, "bsp", "average k epoch"]
    assert ddp["target"] == pytest.approx(0.99 * (1.0 + 0.8) / 2)
    assert (ddp["epochs_by_seed"], bsp["epochs_by_seed"]) == ([2, 2], [3, 2])
    assert (ddp["seconds"], ddp["faster"], ddp["faster_max"]) == (10.0, 1.0, 1.0)
    assert (bsp["seconds_min"], bsp["seconds_max"]) == (10.0, 15.0)
    assert (bsp["faster_min"], bsp["faster_max"]) == (pytest.approx(2 / 3), 1.0)
    assert (average["reached"], average["epochs_by_seed"]) == (1, [3, None])
    assert (average["seconds"], average["faster"]) == (3.0, pytest.approx(10 / 3))
    assert average["epoch_ratios"] == [4.0, 2.5, 6.0], "of measurements that followed each other"
    assert "functions_usd" not in ddp, "functions cannot reach each other"
    assert average["functions_usd"] == functions_usd(2, 3.0)


def test_dollars_are_those_of_the_catalogue() -> None:
    """Lambda: 1,769 MiB have a vCPU; m5.large: $0.096 an hour for two."""
    assert functions_usd(2, 10.0) == pytest.approx(2 * (10 * 1769 / 1024 * 1.66667e-5 + 2e-7))
    assert machines_usd(2, 3600.0) == pytest.approx(0.096)
    assert machines_usd(3, 3600.0) == pytest.approx(2 * 0.096)


def test_the_plateau_is_of_the_last_quarter() -> None:
    assert curve(0.1, 0.2, 0.3, 0.4, 0.99, 0.5, 0.6, 0.8).plateau == pytest.approx(0.7)
    assert targets([curve(0.5, 0.9, 1.0)]) == [0.99]


def test_what_was_not_timed_has_no_seconds() -> None:
    curves = {DDP: [curve(0.9)], BSP: [curve(0.9)]}
    for row in rows(curves, [0.8], {}, 2):
        assert (row["epochs"], row["best"]) == (1, 0.9)
        assert not {"epoch_s", "seconds", "faster", "functions_usd"} & row.keys()


def test_a_person_sees_all_of_it(made: list[dict[str, Any]]) -> None:
    page = io.StringIO()
    for one in tables({"lenet": made}):
        Console(file=page, width=80).print(one)
    text = page.getvalue()
    assert "…" not in text, "it fits into a terminal"
    assert "1 of 2" in text
    assert "3.33" in text
    rising, sweeps = figures({"lenet": made})
    (panel,) = rising.panels
    assert panel.named("average k epoch").xs == (1.0, 2.0, 3.0)
    assert panel.named(DDP.name).xs == (5.0, 10.0, 15.0)
    bars = sweeps.panel("s to the target, by k").named("lenet")
    assert dict(zip(bars.xs, bars.ys, strict=True)) == {"DDP": 10.0, "k epoch": 3.0}


def test_sides_that_did_not_train_alike_are_not_compared() -> None:
    form = FORMS["lenet"]
    check_alike(form, 0, curve(0.9), curve(0.9, train_loss=1.005))
    with pytest.raises(RunFailed, match="lenet, seed 3: bsp and DDP did not train alike"):
        check_alike(form, 3, curve(0.9), curve(0.9, train_loss=1.02))


def test_images_are_the_same_each_time_and_validation_has_others() -> None:
    one, again = images(3, 16), images(3, 16)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert one["x_train"].shape == (TRAIN, 3, 16, 16)
    seen = {image.tobytes() for image in one["x_train"]}
    assert not seen & {image.tobytes() for image in one["x_val"]}
    assert set(one["y_val"].tolist()) == set(range(10))


def test_forms_are_as_large_as_they_say() -> None:
    sizes = {name: parameters_of(form.model()) for name, form in FORMS.items()}
    assert sizes == {"lenet": 44_426, "resnet": 78_042, "vgg": 422_954}
    assert all(TRAIN % (BATCH * workers) == 0 for workers in (2, 4, 8))


def test_all_ways_are_trained_on_the_first_number_of_workers() -> None:
    assert ways_on(2, (2, 4)) == WAYS
    assert [one.name for one in ways_on(4, (2, 4))] == [
        DDP.name,
        "average k 16",
        "average k epoch",
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--workers", "1"], "--workers 1: give 2 or more"),
        (["--workers", "3"], "1280 samples are whole steps of 16"),
        (["--rate", "0"], "--rate 0: give MB/s above 0"),
        (["--seeds", "0"], "--seeds 0: give 1 or more"),
        (["--first-seed", "100"], "--first-seed 100: give 0 to 99"),
        (["--curves", "--rounds", "2"], "nothing is timed"),
        (["--keep", "/none/kept"], "there is no such directory"),
        (["--pictures", "/none"], "there is no such directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        accuracy.run(asked)


def test_without_root_curves_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "possible", lambda: False)
    with pytest.raises(RequestError, match=r"need root, ip and tc.*give --curves"):
        accuracy.run([])


needs_namespaces = pytest.mark.skipif(
    not namespaces.possible(), reason="network namespaces need root, ip and tc"
)


@needs_namespaces
@pytest.mark.long
def test_functions_train_behind_the_bucket(tmp_path: Path) -> None:
    """Model and momentum of LeNet travel once an epoch, and this process is where it was."""
    form = replace(FORMS["lenet"], timed_epochs=2)
    here = os.stat("/proc/thread-self/ns/net").st_ino
    with lines(tmp_path, 2, 20e6) as sides:
        assert os.stat("/proc/thread-self/ns/net").st_ino != here
        took = sides.epoch(form, EPOCH, 2)
    a_round_mb = 2 * 4 * parameters_of(form.model()) / 1e6
    assert a_round_mb < took.mb < 2 * a_round_mb
    assert took.epoch_s > a_round_mb / 20
    assert os.stat("/proc/thread-self/ns/net").st_ino == here
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()


@needs_namespaces
@pytest.mark.slow  # four spawned peers; dayfly's side is tested above
def test_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are kept, and not repeated; both sides send as much behind the bucket."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # benches beside have theirs elsewhere
    keep = tmp_path / "kept.jsonl"
    result = accuracy.run(["--quick", "--rate", "40", "--keep", str(keep)])
    by_way: Mapping[str, Any] = {row["way"]: row for row in result["parts"]["lenet"]}
    ddp, bsp, average = (by_way[one.name] for one in (DDP, BSP, EPOCH))
    assert bsp["accuracies"] == pytest.approx(ddp["accuracies"], abs=0.02)
    a_step_mb = 4 * parameters_of(FORMS["lenet"].model()) / 1e6
    for row in (ddp, bsp):
        assert row["mb"] > TRAIN / BATCH / 2 * a_step_mb, "2(n-1)/n of the gradients in each step"
    assert average["mb"] < bsp["mb"] / 5
    assert average["epoch_s"] > 0
    assert len([json.loads(line) for line in keep.read_text().splitlines()]) == len(by_way)
    for name in ("_by_dayfly", "_by_ddp"):
        monkeypatch.setattr(Curves, name, lambda *_: pytest.fail("it is there"))
    again = accuracy.run(["--quick", "--curves", "--keep", str(keep)])["parts"]["lenet"]
    assert [row["accuracies"] for row in again] == [row["accuracies"] for row in by_way.values()]
    assert scratch(tmp_path) == []
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()
