"""A script's own loop on functions: `dayfly.parallel`, with deaths of single ranks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from dayfly.life.faults import Fault
from tests.run_command.scripts import Ran, resume, run

pytestmark = pytest.mark.long

#: Ten steps an epoch. Ranks have other weights at first, and shuffle otherwise: rank 0's count.
LOOP = """
import os, sys
import dayfly, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rank = int(os.environ.get("RANK", 0))
print("starts")
torch.manual_seed(rank)
model = nn.Sequential(
    nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(16, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
generator = torch.Generator().manual_seed(1)
x, y = torch.randn(156, 6, generator=generator), torch.randint(3, (156,), generator=generator)
loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
loss_of = nn.functional.cross_entropy

model = dayfly.parallel(
    model, loss=loss_of, optimizer=optimizer, state={"scheduler": scheduler}, OPTIONS
)
for epoch in model.epochs(3):
    total = 0.0
    for x, y in loader:
        loss = model.step(x, y)
        scheduler.step()
        total += loss
    print("epoch", epoch, total, optimizer.param_groups[0]["lr"])
weights = model.state_dict()
if rank == 0:
    torch.save(weights, "weights.pt")
"""


def script(options: str = "", dropout: float = 0.2) -> str:
    options = options or "micro_batches=1"
    return LOOP.replace("OPTIONS", options).replace("DROPOUT", str(dropout))


#: A loss with a denominator of its own, which parts of each batch have in other shares.
WEIGHTED = "loss_of = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 9.0]))"


def weights(here: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(here / "weights.pt")
    return found


def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, workers: int) -> Ran:
    place = tmp_path / "undisturbed"
    place.mkdir()
    monkeypatch.chdir(place)
    ran = run(place, text, workers=workers)
    assert ran.result.status == "done", ran.result.error
    return ran


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


OFTEN = "checkpoint_every_s=1e-6"
CASES = {
    # Before the first checkpoint, from what rank 0 began with; then from the log alone.
    "rarely": ("micro_batches=2", 2, [Fault(1, 3, "compute"), Fault(0, 12, "reduced")]),
    "often": (OFTEN, 2, [Fault(0, 5, "told"), Fault(1, 19, "applied"), Fault(0, 20, "compute")]),
    "stages": (
        "cut=(2,), micro_batches=2, clip_norm=1.0, checkpoint_every_s=1e-6",
        4,
        [Fault(3, 4, "forward-1"), Fault(0, 17, "reduced")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rank_that_dies_starts_again_alone_and_changes_no_bit(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options, workers, faults = CASES[name]
    text = script(options)
    if name == "often":  # all processes have to combine the parts of its loss alike
        text = text.replace("loss_of = nn.functional.cross_entropy", WEIGHTED)
    expected = undisturbed(tmp_path, monkeypatch, text, workers)
    known = weights(tmp_path / "undisturbed")
    monkeypatch.chdir(here)
    ran = run(here, text, workers=workers, faults=faults, max_restarts=0)
    assert ran.result.status == "done", ran.result.error
    died = [fault.worker for fault in faults]
    assert [ran.of(rank).count("starts") for rank in range(workers)] == [
        1 + died.count(rank) for rank in range(workers)
    ]
    assert ran.result.restarts == len(faults)
    assert len(ran.notes) == len(faults)
    assert all(note.endswith("it starts again alone") for note in ran.notes)
    # What a rank printed before its death, it may print again.
    for rank in range(workers):
        assert sorted(set(ran.of(rank))) == sorted(expected.of(0))
    same_bits(weights(here), known)
    assert not (ran.directory / "checkpoint").exists(), "of a run that is done"


def plainly(text: str) -> list[str]:
    """What plain Python prints, in one process."""
    Path("plain.py").write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, "plain.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.quick
@pytest.mark.parametrize(("options", "workers"), [("", 3), ("stages=2", 2)])
def test_it_is_what_one_process_computes(here: Path, options: str, workers: int) -> None:
    # Statistics of a batch depend on the slices that it is computed in.
    text = script(options, dropout=0.0).replace("nn.BatchNorm1d(16)", "nn.LayerNorm(16)")
    plain, known = plainly(text), weights(here)
    ran = run(here, text, workers=workers)
    assert ran.result.status == "done", ran.result.error
    for one, other in zip(plain, ran.of(workers - 1), strict=True):
        numbers = [[float(part) for part in line.split()[2:]] for line in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)
    for name, tensor in weights(here).items():
        torch.testing.assert_close(tensor, known[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channel", "groups"),
    [("tcp://", False), pytest.param(None, True, marks=pytest.mark.slow)],  # the same way back
    ids=["tcp", "groups"],
)
def test_all_go_back_to_the_checkpoint_where_none_can_catch_up_alone(
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    channel: str | None,
    groups: bool,
) -> None:
    text = script(OFTEN)
    if groups:
        text = "import torch.distributed as dist\ndist.init_process_group()\n" + text
    undisturbed(tmp_path, monkeypatch, text, 2)
    known = weights(tmp_path / "undisturbed")
    monkeypatch.chdir(here)
    ran = run(here, text, channel=channel, faults=[Fault(1, 13, "computed")])
    assert ran.result.status == "done", ran.result.error
    assert [ran.of(rank).count("starts") for rank in range(2)] == [2, 2]
    assert ran.notes[0].endswith("all workers start again")
    if groups:  # sums over sockets have another order than those in memory
        same_bits(weights(here), known)


def test_a_run_that_failed_goes_on_from_the_loops_checkpoint(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = script(OFTEN).replace(
        "        scheduler.step()",
        "        scheduler.step()\n"
        "        if epoch == 1 and total > 0 and os.path.exists('fail') and rank == 1:\n"
        "            raise ValueError('once')",
    )
    undisturbed(tmp_path, monkeypatch, text, 2)
    known = weights(tmp_path / "undisturbed")
    monkeypatch.chdir(here)
    (here / "fail").touch()
    failed = run(here, text, max_restarts=0)
    assert failed.result.status == "failed"
    assert "ValueError: once" in (failed.result.error or "")
    (here / "fail").unlink()
    ran = resume(here)
    assert ran.result.status == "done", ran.result.error
    assert [line for line in ran.of(0) if line.startswith("epoch 0")] == [], "it was over"
    same_bits(weights(here), known)


@pytest.mark.slow  # it waits for lifetimes; a rank's successor catches up as after a death, above
def test_ranks_hand_over_to_their_successors_within_their_lifetimes(here: Path) -> None:
    text = script(dropout=0.0).replace(
        "        loss = model.step(x, y)", "        loss = model.step(x, y); time.sleep(0.15)"
    )
    ran = run(here, text.replace("import os,", "import os, time,"), lifetime_s=3.0, max_restarts=0)
    assert ran.result.status == "done", ran.result.error
    assert ran.result.restarts == 0
    assert all(ran.of(rank).count("starts") > 1 for rank in range(2))
    assert ran.notes == ()


WRONG: dict[str, tuple[Sequence[tuple[str, str]], str]] = {
    "stages": ([("OPTIONS", "stages=3")], "2 functions are not 3 stages times any number"),
    "no scheduler": ([('state={"scheduler": scheduler}, ', "")], 'state={"scheduler": scheduler}'),
    "after epochs": (
        [("weights = model", "model.step(x, y)\nweights = model")],
        "take all steps inside of model.epochs()",
    ),
    "a forward pass of stages": (
        [("OPTIONS", "stages=2"), ("weights = model", "model(x)\nweights = model")],
        "the model is cut, so no function has all of it",
    ),
    "a sum": (
        [("loss_of = nn.functional.cross_entropy", "loss_of = lambda o, y: o.sum()")],
        "the script's loss is a sum over its samples",
    ),
    "batches by rank": (
        [("loss = model.step(x, y)", "loss = model.step(x + rank, y)")],
        "model.step() of rank 1 was given another batch than that of rank 0, in step 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_a_sentence(here: Path, name: str) -> None:
    changes, expected = WRONG[name]
    text = LOOP
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    text = text.replace("OPTIONS", "micro_batches=1").replace("DROPOUT", "0.1")
    ran = run(here, text, max_restarts=0)
    assert ran.result.status == "failed"
    assert expected in (ran.result.error or "")
