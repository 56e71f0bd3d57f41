"""What each epoch took: seconds while functions ran, dollars that add up, CPU time, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dayfly
from dayfly.catalogue.metering import MeteredInvocation
from dayfly.runs.events import function_lives
from dayfly.runs.report.epoch_use import uses
from dayfly.specs.events import Ended, EpochTold, Event, GenerationBegun, Invoked, TrafficTold


def invoked(function: str, at: float, attempt: int = 0) -> Invoked:
    return Invoked(at=at, function=function, attempt=attempt, memory_mib=1024)


def ended(function: str, at: float, run_s: float, attempt: int = 0) -> Ended:
    used = MeteredInvocation(
        function=function,
        attempt=attempt,
        memory_mib=1024,
        init_s=0.0,
        run_s=run_s,
        outcome="returned",
    )
    return Ended(at=at, used=used, death=False)


def told(
    at: float, epoch: int, cpu_s: float, *, generation: int = 0, attempt: int = 0
) -> EpochTold:
    return EpochTold(
        at=at,
        generation=generation,
        attempt=attempt,
        record={"epoch": epoch},
        spans={},
        cpu_s=cpu_s,
    )


def traffic(at: float) -> TrafficTold:
    return TrafficTold(at=at, generation=0, attempt=0, bytes_up=0, bytes_down=0, requests=0)


def generation(at: float, number: int, workers: int) -> GenerationBegun:
    return GenerationBegun(at=at, number=number, first_step=0, workers=workers)


def test_what_epochs_took_of_a_run_whose_coordinator_died_and_whose_workers_went_back() -> None:
    """A dollar a second of a function.

    coordinator   |0 .. 40|   |100 .. 150|        nothing ran from 40 to 100
    epochs             |10 1 20|2 ..40  100.. 2 110|3 130| back to 110 |3 150|
    """
    coordinator: list[Event] = [
        generation(0, 0, 2),
        invoked("worker-0", 0),
        invoked("worker-1", 0),
        generation(100, 1, 1),  # of the next coordinator; nobody heard of the first one's end
        invoked("worker-0", 100),
        ended("worker-0", 130, 30.0),
        generation(130, 2, 1),
        invoked("worker-0", 130, attempt=1),
        ended("worker-0", 150, 20.0, attempt=1),
    ]
    workers = {
        0: [
            told(20, 1, 15.0),
            told(25, 1, 1.0, attempt=3),  # of one that caught up, and whose start nobody knows
            traffic(40),
            told(110, 2, 5.0, generation=1),
            told(130, 3, 20.0, generation=1),
            told(150, 3, 12.0, generation=2, attempt=1),
        ],
        1: [told(21, 1, 21.0), traffic(40)],
    }
    found = uses(coordinator, workers, 10.0, 100, lambda one: one.run_s)
    assert list(found) == [1, 2, 3]
    one, two, three = found.values()
    assert (one.workers, two.workers, three.workers) == (2, 1, 1)
    assert (one.seconds, two.seconds, three.seconds) == (10, 30, 40)
    assert one.samples_per_s == pytest.approx(10)
    assert (one.cost_usd, two.cost_usd, three.cost_usd) == (40, 50, 40)
    assert one.cpu == pytest.approx(36 / 41)
    assert two.cpu == pytest.approx(0.5)
    assert three.cpu == pytest.approx((15 + 12) / (20 + 20))


def test_one_that_still_runs_is_priced_by_its_own_list() -> None:
    """As after a change of the place: the next generation has other prices."""
    one = Invoked(at=0.0, function="successor-0", attempt=1, price_list="cloud-run", vcpus=2.0)
    (life,) = function_lives([one], {0: [told(9.0, 1, 5.0, attempt=1)]})
    assert (life.began, life.ended, life.used.run_s) == (0.0, 9.0, 9.0)
    assert (life.used.price_list, life.used.vcpus) == ("cloud-run", 2.0)
    (use,) = uses([one], {0: [told(9.0, 1, 4.5, attempt=1)]}, 0.0, 100, lambda _: 1.0).values()
    assert use.cpu == pytest.approx(0.5), "a successor's CPU time is its worker's"


@pytest.mark.long
def test_a_run_s_history_has_them_and_the_dollars_are_the_bill_s(
    undisturbed: Callable[[int], dayfly.Run],
) -> None:
    run = undisturbed(2)
    history: list[dict[str, Any]] = run.history
    assert list(history[0])[:4] == ["epoch", "train_loss", "val_loss", "val_accuracy"]
    for one in history:
        assert one["workers"] == 2
        assert 0 < one["cpu"] < 1.5
        assert one["samples_per_s"] == pytest.approx(180 / one["seconds"])
    paid = sum(one["cost_usd"] for one in history)
    functions = sum(one["cost_usd"] for one in run.bill["functions"])
    assert 0.5 * functions < paid <= functions * (1 + 1e-9)
