"""Streaming on functions: exchanges beside the steps, and the same bits whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import dayfly
from dayfly.life.checkpoints import latest, read
from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small
from tests.runs.test_outer import INT8, NESTEROV, WORKERS, K, outer_adam, points, train
from tests.runs.test_resume import resume

pytestmark = pytest.mark.long

#: Two fragments, as the model has three layers with parameters; rounds of 4, 4 and 1 steps.
STREAMED: dict[str, Any] = {**NESTEROV, "fragments": 2, "overlap": 1}
#: Two exchanges of a round, of which some are in flight at its end.
ROUNDED: dict[str, Any] = {**INT8, "fragments": 2, "overlap": 2}
OFTEN: dict[str, Any] = {"checkpoint_every_s": 1e-6}
#: What the plain one does, the other does, too, and its codec keeps what it did not send.
PLAIN_OR_INT8 = [
    pytest.param(STREAMED, id="plain", marks=pytest.mark.slow),
    pytest.param(ROUNDED, id="int8"),
]
Undisturbed = Callable[..., dayfly.Run]


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The run with these settings, with nothing in its way; time brings no checkpoint."""

    @cache
    def run(**how: Any) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp("alone"), how, checkpoint_every_s=1e6)

    return run


def checkpoints(run: dayfly.Run) -> list[int]:
    """Steps within epochs before which run checkpoints were made."""
    found = small.events(run.directory, "coordinator")
    steps = [event["step"] for event in found if event["kind"] == "checkpoint"]
    return [step for step in steps if step % small.STEPS_AN_EPOCH]


@pytest.mark.quick
def test_one_fragment_without_overlap_is_diloco(alone: Undisturbed) -> None:
    run = alone(**NESTEROV, fragments=1, overlap=0)
    assert small.bits(run) == small.bits(alone(**NESTEROV))


@pytest.mark.parametrize("how", PLAIN_OR_INT8)
def test_checkpoints_with_exchanges_in_flight_change_no_bits(
    how: dict[str, Any], data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    many = train(data, tmp_path, how, **OFTEN)
    assert checkpoints(many), "within an epoch"
    assert not checkpoints(alone(**how))
    assert small.bits(many) == small.bits(alone(**how))
    assert alone(**how).history[-1]["val_accuracy"] > 0.8
    losses = small.history(many)["step_loss"]
    assert len(losses) == small.STEPS
    assert None not in losses


# Of rank 1 they are in test_outer.py, too.
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_death_at_every_operation_of_every_exchange_leaves_the_same_bits(
    rank: int, data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """One after another, in rounds of four steps; the last exchanges run in the round after."""
    every = [point for number in range(2) for point in points(f"frag-{number}")]
    firsts = [epoch * 9 + first for epoch in range(3) for first in (0, 4)]
    faults = [Fault(rank, firsts[n % len(firsts)], point) for n, point in enumerate(every)]
    run = train(data, tmp_path, ROUNDED, faults=faults, **OFTEN)
    assert run.result.restarts == len(faults), "each death happened, once"
    assert small.bits(run) == small.bits(alone(**ROUNDED))


def test_deaths_beside_exchanges_at_checkpoints_and_ends_of_epochs(
    data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """Of both workers; checkpoints before steps 8 and 17 have sums that wait."""
    places = [(1, "computed"), (2, "compute"), (3, "stepped"), (3, "reduced"), (5, "applied")]
    places += [(8, "checkpoint"), (8, "written")]
    places += [(17, "checkpoint"), (17, "told"), (17, "compute"), (17, "applied")]
    places += [(17, "evaluated"), (17, "val-get"), (17, "epoch"), (18, "checkpoint")]
    faults = [Fault(number % 2, *place) for number, place in enumerate(places)]
    run = train(data, tmp_path, ROUNDED, faults=faults, **OFTEN)
    assert run.result.restarts == len(faults), "each death happened, once"
    assert small.bits(run) == small.bits(alone(**ROUNDED))


def killed_with_sums(
    data: Path, directory: Path, how: dict[str, Any], workers: int = WORKERS
) -> None:
    """Kill a run once it has its checkpoint before step 8, in which an exchange's sum waits."""
    coordinator.killed(
        data=data,
        run_dir=directory,
        workers=workers,
        faults=[Fault(COORDINATOR, 8, "committed")],
        log_budget_mib=1,
        **OFTEN,
        **how,
    )
    store = FileStore(directory)
    made = latest(store)
    assert made is not None
    assert made.step == 8
    _, tensors = read(store, made)
    assert {name for name in tensors if name.startswith("sum.")} == {"sum.fragment.1", "sum.rest"}


@pytest.mark.parametrize("how", PLAIN_OR_INT8)
def test_resume_with_sums_that_wait(
    how: dict[str, Any], data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    killed_with_sums(data, tmp_path, how)
    assert resume(tmp_path)["status"] == "done"
    assert small.bits(tmp_path) == small.bits(alone(**how))


def test_an_epochs_end_has_the_outer_model_once_and_the_workers_own_by_rank(
    data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """Nothing is in flight there; more epochs go on with the same bits."""
    first = train(data, tmp_path, ROUNDED, epochs=2)
    folder = next((first.directory / "checkpoint").glob("0*"))
    shared = {n: t for part in folder.glob("part-*") for n, t in load_file(part).items()}
    own = [load_file(folder / f"own-{rank}-of-{WORKERS}") for rank in range(WORKERS)]
    assert not [name for name in shared if name.startswith("sum.")]
    assert len({name for name in shared if name.endswith("momentum_buffer")}) == 6
    weights = [one["own.model.0.weight"] for one in own]
    assert not torch.equal(*weights)
    assert not torch.equal(weights[0], shared["model.0.weight"])
    counts = [one["own.model.1.num_batches_tracked"] for one in own]
    assert counts[0] == counts[1] == shared["model.1.num_batches_tracked"] == 18
    trained = load_file(first.directory / "weights.safetensors")
    assert torch.equal(trained["0.weight"], shared["model.0.weight"])
    dayfly.resume(tmp_path, epochs=small.EPOCHS, progress=False)
    assert small.bits(tmp_path) == small.bits(alone(**ROUNDED))


@pytest.mark.slow  # in the suite: checkpoints with sums that wait, and going on from them
def test_lives_that_end_hand_over_between_rounds(
    data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    job = small.job(data, transform=small.Slowly(0.5, 0.5))
    run = train(data, tmp_path, ROUNDED, job=job, lifetime_s=14.0)
    assert small.bits(run) == small.bits(alone(**ROUNDED))
    assert run.result.restarts == 0, "hand-overs are planned, no deaths"
    assert not small.recomputed(run.directory, WORKERS), "a hand-over repeats no step"
    invoked = [
        one for one in small.events(run.directory, "coordinator") if one["kind"] == "invoked"
    ]
    assert len(invoked) > WORKERS


@pytest.mark.parametrize(
    ("before", "then"),
    [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow)],  # newcomers are in the next test, too
)
def test_another_number_of_workers_goes_on_with_sums_that_wait(
    before: int, then: int, data: Path, tmp_path: Path
) -> None:
    """One worker has no codec, and the same exchanges."""
    killed_with_sums(data, tmp_path, ROUNDED, before)
    run = dayfly.resume(tmp_path, workers=then, progress=False)
    assert run.result.status == "done"
    assert run.result.steps == small.STEPS
    assert run.history[-1]["val_accuracy"] > 0.8


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 3])  # 1 is above
def test_another_number_of_workers_goes_on(workers: int, data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, ROUNDED, epochs=1)
    run = dayfly.resume(tmp_path, epochs=2, workers=workers, progress=False)
    assert run.result.status == "done"
    assert run.history[-1]["val_accuracy"] > 0.5


def test_the_jobs_own_outer_optimizer_steps_by_fragments(data: Path, tmp_path: Path) -> None:
    job = small.job(data, outer_optimizer=outer_adam, epochs=2, ema=0.9)
    local = {"sync": "local-sgd", "k": K, "fragments": 3, "overlap": 3}
    whole = train(data, tmp_path / "a", local, job=job)
    faults = [Fault(1, 12, "stepped"), Fault(0, 13, "frag-1-get")]
    run = train(data, tmp_path / "b", local, job=job, faults=faults)
    assert run.result.restarts == 2
    assert small.bits(run) == small.bits(whole)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"fragments": 2}, "--fragments 2 streams outer gradients: give --sync local-sgd"),
    ({"sync": "local-sgd", "k": 4, "overlap": 2}, "--overlap 2 streams outer gradients"),
    ({**NESTEROV, "fragments": 4}, "--fragments 4 are more than the model's 3 layers"),
    ({**NESTEROV, "k": 2, "fragments": 3}, "--fragments 3 are more than the 2 steps"),
    ({**NESTEROV, "fragments": 2, "overlap": 4}, "--overlap 4 must be less than --k 4"),
    ({**NESTEROV, "fragments": 0}, "--fragments 0: give a number from 1"),
    ({**STREAMED, "compress": "powersgd"}, "give one of bf16, int8, int4, topk"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[row[1] for row in REFUSED])
def test_what_cannot_be_is_refused(
    given: dict[str, Any], words: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(dayfly.RequestError, match=words):
        dayfly.train(small.job(data), run_dir=tmp_path / "run", progress=False, **given)
    assert not (tmp_path / "run").exists()
