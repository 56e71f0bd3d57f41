"""Outer optimizers on functions: deaths at any operation of an exchange leave the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.keys import COORDINATOR, EVERYONE
from dayfly.wire.schedule import Kind
from tests.runs import small
from tests.runs.test_local_sgd import FIRST_S, LIFETIME_S, THEN_S
from tests.runs.test_resume import killed, resume

pytestmark = pytest.mark.long

WORKERS, K = 2, 4
#: First steps of the rounds of the three epochs of nine steps.
ROUNDS = [epoch * 9 + first for epoch in range(3) for first in (0, 4, 8)]
NESTEROV: dict[str, Any] = {"sync": "local-sgd", "k": K, "outer": "nesterov"}
INT8 = {**NESTEROV, "compress": "int8", "collective": "scatter-reduce"}
TOPK = {**INT8, "compress": "topk:0.1"}
Undisturbed = Callable[..., dayfly.Run]


def train(data: Path, directory: Path, how: dict[str, Any], **more: Any) -> dayfly.Run:
    given = {"workers": WORKERS, **small.SETTINGS, **how, **more}
    job = more.pop("job", None) or small.job(data)
    given.pop("job", None)
    return dayfly.train(job, run_dir=directory, **given)


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The run with these settings, with nothing in its way."""

    @cache
    def run(**how: Any) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp("alone"), how)

    return run


def test_it_learns_and_sends_a_third_of_what_averaging_does(alone: Undisturbed) -> None:
    """The optimizer is Adam, whose state is twice the parameters."""
    run, averaged = alone(**NESTEROV), alone(sync="local-sgd", k=K)
    assert run.result.steps == small.STEPS
    assert run.history[-1]["val_accuracy"] > 0.8
    assert small.bits(run)[0] != small.bits(averaged)[0]
    up = [sum(one["bytes_up"] for one in traffic(each)) for each in (run, averaged)]
    assert up[0] < 0.5 * up[1], "validation and reports are in both"


def traffic(run: dayfly.Run) -> list[dict[str, Any]]:
    """The last counters of each worker."""
    found = []
    for rank in range(WORKERS):
        told = small.events(run.directory, f"worker-{rank}")
        found.append([one for one in told if one["kind"] == "traffic"][-1])
    return found


def points(operation: str) -> list[str]:
    """Every operation of an exchange, by its fault point, in the order of rank 0's schedule."""
    found = []
    for op in COLLECTIVES["scatter-reduce"].schedule(0, WORKERS, 1000):
        point = f"{operation}-{op.kind.value}"
        if op.kind is Kind.PUT:
            assert op.name is not None
            point += "-sum" if op.name.destination == EVERYONE else "-part"
        found.append(point)
    assert len(set(found)) == len(found), "each happens once"
    return found


@pytest.mark.parametrize(
    ("rank", "how"),
    # With int8 and of rank 0 they are in test_streaming.py, too.
    [pytest.param(0, INT8, marks=pytest.mark.slow), (1, TOPK)],
    ids=["int8", "topk"],
)
def test_a_death_at_every_operation_of_an_exchange_leaves_the_same_bits(
    rank: int, how: dict[str, Any], data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """One after another in rounds of four steps, and beside the exchange."""
    steps = [first for first in ROUNDS if first % 9 != 8]
    faults = [Fault(rank, steps[n % len(steps)], point) for n, point in enumerate(points("grad"))]
    ends = [(first + K - 1, point) for first in steps[1:2] for point in small.IN_LOCAL_STEPS[:1]]
    ends += [(steps[n] + K - 1, point) for n, point in ((2, "computed"), (3, "reduced"))]
    ends += [(steps[4] + K - 1, "applied"), (steps[5] + 1, "compute"), (8, "epoch")]
    faults += [Fault(rank, *place) for place in ends]
    run = train(data, tmp_path, how, faults=faults)
    assert run.result.restarts == len(faults), "each death happened, once"
    assert small.bits(run) == small.bits(alone(**how))


def test_lives_that_end_within_a_round_hand_over_within_it(
    data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """With what the round began with, the outer momentum and the inner state."""
    assert FIRST_S + (small.STEPS_AN_EPOCH - 1) * THEN_S > LIFETIME_S / 2
    how = {**NESTEROV, "k": "epoch"}
    run = train(
        data,
        tmp_path,
        how,
        job=small.job(data, transform=small.Slowly(FIRST_S, THEN_S)),
        lifetime_s=LIFETIME_S,
    )
    assert small.bits(run) == small.bits(alone(**how))
    assert run.result.restarts == 0, "hand-overs are planned, no deaths"
    assert not small.recomputed(run.directory, WORKERS), "a hand-over repeats no step"


@pytest.mark.parametrize(
    "how",
    # The codec keeps something besides what a plain one has; topk keeps what int8 does, and what
    # it sends is tested in tests/training/test_outer.py.
    [
        pytest.param(NESTEROV, marks=pytest.mark.slow),
        INT8,
        pytest.param(TOPK, marks=pytest.mark.slow),
    ],
    ids=["plain", "int8", "topk"],
)
def test_resume_after_a_kill_of_the_coordinator(
    how: dict[str, Any], data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """From a run checkpoint, which has the outer state once and the inner ones by rank."""
    killed(data, tmp_path, [Fault(COORDINATOR, 20, "step")], checkpoint_every_s=1e-4, **how)
    folder = next((tmp_path / "checkpoint").glob("0*"))
    assert int(folder.name) > 0, "there was one in the middle"
    with pytest.raises(dayfly.RequestError, match="goes on as it began"):
        dayfly.resume(tmp_path, progress=False, compress="int4")
    assert resume(tmp_path)["status"] == "done"
    assert small.bits(tmp_path) == small.bits(alone(**how))


def test_a_checkpoint_has_what_is_shared_once_and_the_rest_by_rank(alone: Undisturbed) -> None:
    folder = next((alone(**INT8).directory / "checkpoint").glob("0*"))
    shared = [name for part in folder.glob("part-*") for name in load_file(part)]
    assert len(shared) == len(set(shared))
    assert not [name for name in shared if name.startswith("optimizer.state")]
    assert len([name for name in shared if name.endswith("momentum_buffer")]) == 6
    own = [load_file(folder / f"own-{rank}-of-{WORKERS}") for rank in range(WORKERS)]
    moments = [one["optimizer.state.0.weight.exp_avg"] for one in own]
    assert not torch.equal(*moments)
    assert not torch.equal(own[0]["residual"], own[1]["residual"])


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_another_number_of_workers_goes_on_with_the_states_of_those_before(
    workers: int, data: Path, tmp_path: Path
) -> None:
    """Rank j goes on with the inner state of rank j modulo the ranks before."""
    first = train(data, tmp_path, INT8, epochs=1)
    folder = next((first.directory / "checkpoint").glob("0*"))
    before = [load_file(folder / f"own-{rank}-of-2") for rank in range(2)]
    run = dayfly.resume(tmp_path, epochs=2, workers=workers, progress=False)
    assert run.result.status == "done"
    assert run.history[-1]["val_accuracy"] > 0.5
    folder = next((run.directory / "checkpoint").glob("0*"))
    after = [load_file(folder / f"own-{rank}-of-{workers}") for rank in range(workers)]
    counts = [one["optimizer.state.0.weight.step"].item() for one in (*before, *after)]
    assert counts == [9] * 2 + [18] * workers, "steps of inner optimizers go on"


def outer_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02)


def test_the_jobs_own_outer_optimizer(data: Path, tmp_path: Path) -> None:
    job = small.job(data, outer_optimizer=outer_adam, epochs=2)
    local = {"sync": "local-sgd", "k": K}
    whole = train(data, tmp_path / "a", local, job=job)
    faults = [Fault(1, 12, "stepped"), Fault(0, 13, "grad-get")]
    run = train(data, tmp_path / "b", local, job=job, faults=faults)
    assert small.bits(run) == small.bits(whole)
    folder = next((run.directory / "checkpoint").glob("0*"))
    shared = [name for part in folder.glob("part-*") for name in load_file(part)]
    assert [name for name in shared if name.startswith("outer.state") and "exp_avg" in name]
    with pytest.raises(
        dayfly.RequestError, match="has an outer_optimizer, and --sync bsp takes none"
    ):
        dayfly.resume(run.directory, epochs=3, sync="bsp", progress=False)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"outer": "nesterov"}, "--sync bsp takes no --outer"),
    ({}, {"sync": "local-sgd", "outer": "nesterov"}, "--sync local-sgd needs --k"),
    ({}, {**NESTEROV, "outer": "newton"}, "--outer newton: give one of average, nesterov"),
    ({}, {"sync": "local-sgd", "k": 2, "outer_lr": 0.5}, "--outer-lr 0.5 is for --outer nesterov"),
    ({}, {**NESTEROV, "compress": "powersgd"}, "give one of bf16, int8, int4, topk"),
    ({}, {**NESTEROV, "virtual_workers": 2}, "cannot be with --sync local-sgd"),
    ({}, {**NESTEROV, "cut": (1,), "workers": 2}, "--sync local-sgd cannot have --cut"),
    ({}, {**NESTEROV, "precision": "fp16"}, "give --precision bf16"),
    ({}, {**INT8, "collective": "ring"}, "needs a collective that stores its sums"),
    ({}, {"sync": "local-sgd", "k": 2, "outer": "job"}, "and the job has none"),
    ({"outer_optimizer": outer_adam}, {}, "--sync bsp takes none"),
    ({"outer_optimizer": outer_adam}, NESTEROV, "has an outer_optimizer of its own: leave out one"),
    ({"outer_optimizer": small.plain_model}, {"sync": "local-sgd", "k": 2}, "cannot be built"),
]


@pytest.mark.quick
@pytest.mark.parametrize(("of_job", "given", "words"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_is_refused(
    of_job: dict[str, Any], given: dict[str, Any], words: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(dayfly.RequestError, match=words):
        dayfly.train(small.job(data, **of_job), run_dir=tmp_path / "run", progress=False, **given)
    assert not (tmp_path / "run").exists()
