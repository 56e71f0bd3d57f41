"""`dayfly bench plans`: what it counts, and a few plans of each planner."""

from __future__ import annotations

import pytest

from benchmarks import plans
from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point


def test_what_is_missed_and_what_is_dominated() -> None:
    every = [Point(1.0, 4.0, "a"), Point(2.0, 2.0, "b"), Point(4.0, 1.0, "c")]
    assert plans.compare(Front.of(every), every, 0.0) == (0, 0, 0.0, 3)
    # Without b: a costs twice as much, and c takes twice as long.
    missed, dominated, worst, count = plans.compare(Front.of([every[0], every[2]]), every, 0.0)
    assert (missed, dominated, count) == (1, 0, 3)
    assert worst == pytest.approx(1.0)
    assert plans.compare(Front.of([every[0], every[2]]), every, 1.01)[0] == 0
    # One that is shown, and b is faster and cheaper.
    slow = Front.of([every[0], Point(3.0, 3.0, "d"), every[2]])
    assert plans.compare(slow, every, 0.0)[:2] == (1, 1)


#: Of these tests/runs/test_variants.py, tests/choose/test_data_parallel.py and
#: tests/choose/test_k_reduce.py say in the suite what counts; all plans take minutes.
_SLOW = dict.fromkeys(("methods", "streams", "k-reduce", "large"), pytest.mark.slow)


@pytest.mark.parametrize(
    "planner", [pytest.param(name, marks=_SLOW.get(name, ())) for name in plans.PLANNERS]
)
def test_planners_show_what_trying_every_plan_finds(planner: str) -> None:
    _, share = plans.PLANNERS[planner]
    many = 100 if planner in plans.PREDICTED else 500
    (row,) = plans.run(["--only", planner, "--plans", str(round(many / share))])["rows"]
    assert row["plans"] >= many
    if planner == "large":  # nobody tries all plans: some around those that are shown are better
        assert row["missed"] < 0.15 * row["plans"]
    else:
        assert (row["missed"], row["dominated"]) == (0, 0)
    assert plans.table({"rows": [row]}).row_count == 1


def test_planners_are_named_one_by_one_or_together() -> None:
    apart = plans.run(["--only", "servers", "--only", "vcpus", "--plans", "2"])["rows"]
    together = plans.run(["--only", "servers", "vcpus", "--plans", "2"])["rows"]
    assert [row["planner"] for row in apart] == [row["planner"] for row in together]
    assert {row["planner"] for row in apart} == {"servers", "vcpus"}


def test_a_number_that_cannot_be() -> None:
    with pytest.raises(RequestError, match="--plans 0: give 1 or more"):
        plans.run(["--plans", "0"])
