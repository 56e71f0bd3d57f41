"""Evaluations in a script's own loop: figures of one process, on any number of functions."""

from __future__ import annotations

import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from dayfly.life.faults import Fault
from tests.run_command.scripts import Ran, run
from tests.run_command.test_parallel import OFTEN, same_bits, undisturbed, weights

pytestmark = pytest.mark.long

#: Five steps an epoch: one evaluation after the third of them, two behind the last.
LOOP = """
import os
import dayfly, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

print("starts")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(180, 6), torch.randint(3, (180,))
loader = DataLoader(TensorDataset(x[:80], y[:80]), 16, shuffle=True)
held_out, few = TensorDataset(x[80:], y[80:]), (x[80:90], y[80:90])
weight = torch.tensor([1.0, 2.0, 5.0])

def recall(outputs, targets):
    return ((outputs.argmax(1) == targets) & (targets == 1)).sum() / (targets == 1).sum()

model = dayfly.parallel(
    model,
    loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, weight),
    optimizer=optimizer,
    metrics={"recall": recall},
    OPTIONS
)
FIRST
for epoch in model.epochs(2):
    for number, (x, y) in enumerate(loader):
        model.step(x, y)
        if number == 2:
            early = model.evaluate(DataLoader(held_out, 32))
    drawn = torch.rand(()).item()
    print(epoch, [early, model.evaluate(*few), model.evaluate(held_out)], drawn)
weights = model.state_dict()
if model.rank == 0:
    torch.save(weights, "weights.pt")
"""
#: An evaluation of the first weights, which are the same bits anywhere.
FIRST = "print(-1, [model.evaluate(held_out)], 0)"


def script(options: str = "micro_batches=1", first: str = "") -> str:
    return LOOP.replace("OPTIONS", options).replace("FIRST", first)


def found(lines: list[str]) -> dict[int, list[dict[str, float]]]:
    """Of each epoch what was measured in it."""
    measured = [line for line in lines if line[:1] in "-01"]
    return {
        int(line.partition(" ")[0]): ast.literal_eval(line.partition(" ")[2].rpartition(" ")[0])
        for line in measured
    }


def alone(text: str) -> list[str]:
    """What the script prints in this process: one of its own, as test_parallel has, takes 1 s."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue().splitlines()


def history(ran: Ran) -> list[dict[str, Any]]:
    tree = json.loads((ran.directory / "history.json").read_text())
    epochs: list[dict[str, Any]] = tree["epochs"]
    return epochs


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ("micro_batches=1", 3),
        # Rounds and gathering of stages are those of `tests/pipelines/`, in the suite.
        pytest.param("cut=(2,), micro_batches=2", 4, marks=pytest.mark.slow),
    ],
)
def test_it_measures_what_one_process_does(here: Path, options: str, workers: int) -> None:
    text = script(options, "" if "cut" in options else FIRST)
    plain = found(alone(text))
    ran = run(here, text, workers=workers)
    assert ran.result.status == "done", ran.result.error
    ranks = [found(ran.of(rank)) for rank in range(workers)]
    assert all(one == ranks[0] for one in ranks), "the same bits at every rank"
    assert ranks[0].get(-1) == plain.get(-1), "of the same weights, whatever the functions"
    assert [list(one) for one in plain[0]] == [["loss", "accuracy", "recall"]] * 3
    for epoch, measured in plain.items():
        for mine, theirs in zip(ranks[0][epoch], measured, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-5)
    last = ranks[0][1][-1]
    record = history(ran)[-1]
    assert [one["epoch"] for one in history(ran)] == [1, 2]
    assert (record["val_loss"], record["val_accuracy"]) == (last["loss"], last["accuracy"])
    assert record["recall"] == last["recall"]
    assert (ran.result.epochs, ran.result.val_loss) == (2, last["loss"])
    assert [one["epoch"] for one in ran.epochs] == [1, 2], "told as it goes on"


CASES = {
    # The step before an evaluation, within it, and between two of the same step; from the log.
    "whole": ("checkpoint_every_s=60", 2, [(1, 3, "evaluated"), (0, 5, "gathered")]),
    "often": (OFTEN, 2, [(0, 3, "gathered"), (1, 8, "evaluated"), (1, 9, "compute")]),
    "stages": ("cut=(2,), micro_batches=2, " + OFTEN, 4, [(3, 5, "gathered-0"), (1, 8, "compute")]),
}


@pytest.mark.parametrize(
    "name",
    [
        "often",
        pytest.param("whole", marks=pytest.mark.slow),  # as "often", from an earlier checkpoint
        pytest.param("stages", marks=pytest.mark.slow),  # of jobs: tests/runs/test_pipeline_deaths
    ],
)
def test_a_death_changes_no_figure(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options, workers, places = CASES[name]
    faults = [Fault(*place) for place in places]
    expected = undisturbed(tmp_path, monkeypatch, script(options), workers)
    known = weights(tmp_path / "undisturbed")
    monkeypatch.chdir(here)
    ran = run(here, script(options), workers=workers, faults=faults, max_restarts=0)
    assert ran.result.status == "done", ran.result.error
    assert ran.result.restarts == len(faults)
    for rank in range(workers):
        assert sorted(set(ran.of(rank))) == sorted(expected.of(0))
    assert history(ran) == history(expected)
    same_bits(weights(here), known)


WRONG = {
    "other samples": (
        "held_out, few = TensorDataset(x[80:], y[80:])",
        "held_out, few = TensorDataset(x[80:] + int(os.environ['RANK']), y[80:])",
        "model.evaluate() of rank 1 was given other samples than that of rank 0, after 3 steps",
    ),
    "a metric that fails": (
        "return ((outputs",
        "return outputs[:, 7] + ((outputs",
        "the script fails on one batch: its metric 'recall' fails: IndexError",
    ),
    "no step of a cut model": (
        "OPTIONS\n)",
        "stages=2\n)\nmodel.evaluate(held_out)",
        "model.evaluate(): of a model that is cut, take a step first",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_a_sentence(here: Path, name: str) -> None:
    old, new, expected = WRONG[name]
    assert old in LOOP
    text = LOOP.replace(old, new).replace("OPTIONS", "").replace("FIRST", "")
    ran = run(here, text, max_restarts=0)
    assert ran.result.status == "failed"
    assert expected in (ran.result.error or "")


def test_an_epoch_that_the_script_leaves_early_is_told_of(here: Path) -> None:
    text = script().replace("    drawn =", "    if epoch == 1: break\n    drawn =")
    ran = run(here, text)
    assert ran.result.status == "done", ran.result.error
    assert [one["epoch"] for one in history(ran)] == [1, 2]
