"""Local SGD on functions: deaths, lifetimes and stops leave the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.runs.test_resume import killed, resume

pytestmark = pytest.mark.long

#: Seconds of a function's first step, of those that follow, and of its life; half of that is kept
#: to end in order.
FIRST_S, THEN_S, LIFETIME_S = 2.0, 0.4, 9.0
Undisturbed = Callable[[int, Any], dayfly.Run]


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The run on so many workers with such rounds, with nothing in its way."""

    @cache
    def run(workers: int, k: Any) -> dayfly.Run:
        directory = tmp_path_factory.mktemp(f"alone-{workers}-{k}")
        return train(data, directory, workers, k)

    return run


def train(data: Path, directory: Path, workers: int, k: Any, **more: Any) -> dayfly.Run:
    given = {**small.SETTINGS, "sync": "local-sgd", "k": k, **more}
    return dayfly.train(small.job(data), workers=workers, run_dir=directory, **given)


@pytest.mark.parametrize("k", [4, pytest.param("epoch", marks=pytest.mark.slow)])
def test_it_learns_and_tells_every_step(alone: Undisturbed, k: Any) -> None:
    run = alone(3, k)
    assert run.result.steps == small.STEPS
    assert run.history[-1]["val_accuracy"] > 0.8
    losses = small.history(run)["step_loss"]
    assert len(losses) == small.STEPS
    by_epoch = np.array(losses).reshape(small.EPOCHS, -1).mean(axis=1)
    assert by_epoch == pytest.approx([record["train_loss"] for record in run.history], rel=1e-5)


def test_rounds_differ_from_each_other_and_from_bsp(
    alone: Undisturbed, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    runs = [alone(2, 4), alone(2, "epoch"), undisturbed(2)]
    assert len({small.bits(run)[0] for run in runs}) == 3


PLACES = (
    "compute",
    "stepped",
    "computed",
    "grad-put-part",
    "grad-reduce",
    "grad-put-sum",
    "grad-get",
    "reduced",
    "applied",
)


@pytest.mark.parametrize(("k", "seed"), [(4, 1), pytest.param("epoch", 2, marks=pytest.mark.slow)])
def test_random_deaths_leave_the_same_bits(
    k: Any, seed: int, data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """Steps within rounds, and ends of rounds, where the wire's places are."""
    random = np.random.default_rng(seed)
    steps = range(small.STEPS)
    ends = [s for s in steps if s % 9 == 8 or (k == 4 and s % 9 in (3, 7))]
    firsts = [s for s in steps if s % 9 == 0 or (k == 4 and s % 9 in (4, 8))]
    places = [(s, place) for s in steps for place in PLACES[:2]]
    places += [(s, "computed") for s in ends] + [(s, place) for s in ends for place in PLACES[-2:]]
    places += [(s, place) for s in firsts for place in PLACES[3:7]]
    chosen = random.choice(len(places), size=8, replace=False)
    faults = [
        Fault(int(random.integers(3)), *places[n], "zygote" if number % 4 == 3 else "self")
        for number, n in enumerate(chosen)
    ]
    run = train(data, tmp_path, 3, k, faults=faults)
    assert run.result.restarts == len(faults), "every planned death happened, once"
    assert small.bits(run) == small.bits(alone(3, k))
    assert small.history(run)["step_loss"] == small.history(alone(3, k))["step_loss"]


@pytest.mark.slow  # it takes several lifetimes; deaths within a round are in test_rollback.py
def test_lives_shorter_than_a_round_go_on_within_it(
    data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    """An epoch does not fit into what a life has for steps."""
    assert FIRST_S + (small.STEPS_AN_EPOCH - 1) * THEN_S > LIFETIME_S / 2
    run = dayfly.train(
        small.job(data, transform=small.Slowly(FIRST_S, THEN_S)),
        workers=2,
        sync="local-sgd",
        k="epoch",
        lifetime_s=LIFETIME_S,
        run_dir=tmp_path,
        progress=False,
    )
    assert small.bits(run) == small.bits(alone(2, "epoch"))
    assert run.result.restarts == 0, "hand-overs are planned, no deaths"
    assert not small.recomputed(run.directory, 2), "a hand-over repeats no step"
    assert not (run.directory / "private").exists()


@pytest.mark.parametrize("step", [13, pytest.param(0, marks=pytest.mark.slow)])
def test_resume_after_a_kill_of_the_coordinator(
    step: int, data: Path, alone: Undisturbed, tmp_path: Path
) -> None:
    killed(data, tmp_path, [Fault(COORDINATOR, step, "step")], sync="local-sgd", k=4)
    assert resume(tmp_path)["status"] == "done"
    assert small.bits(tmp_path) == small.bits(alone(2, 4))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sync": "local-sgd"}, "--sync local-sgd needs --k"),
        ({"sync": "local-sgd", "k": 0}, "--k 0: give a number of steps from 1, or epoch"),
        ({"sync": "local-sgd", "k": "often"}, 'k is "often": give a whole number, or "epoch"'),
        ({"k": 2}, "--sync bsp takes no --k, and --k 2 was given"),
    ],
)
def test_wrong_rounds_are_refused(given: dict[str, Any], words: str, data: Path) -> None:
    with pytest.raises(dayfly.RequestError, match=words):
        dayfly.train(small.job(data), progress=False, **given)
