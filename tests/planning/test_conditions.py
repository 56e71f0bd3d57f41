"""What speaks against a measurement, by the machine meanwhile and by the other sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.planning.conditions import Conditions, Pace, contradictions, disturbances


@pytest.mark.parametrize(
    ("disturbed", "quiet", "said"),
    [
        ({"stolen": 0.33}, {"stolen": 0.03}, "the host of this machine took 33% of the CPU time"),
        ({"other_cores": 0.74}, {"other_cores": 0.2}, "other processes used 0.74 of 2 cores"),
        ({"spread": 0.4}, {"spread": 0.25}, "lies within 40% of the median"),
        ({"pace_s": (1.0, 1.3, 1.1)}, {"pace_s": (1.0, 1.15)}, "pace changed by 30%"),
    ],
)
def test_each_bound_is_said(disturbed: dict[str, Any], quiet: dict[str, Any], said: str) -> None:
    (sentence,) = disturbances(Conditions(**disturbed), 2, "512 MiB")
    assert said in sentence
    assert "512 MiB" in sentence
    assert disturbances(Conditions(**quiet), 2, "512 MiB") == ()


def test_what_a_kernel_does_not_tell_is_no_doubt() -> None:
    assert disturbances(Conditions(), 2, "512 MiB") == ()


def _paces(*passes: tuple[float, float]) -> list[Pace]:
    return [
        Pace(size=f"size {at}", speed=speed, pass_s=pass_s)
        for at, (speed, pass_s) in enumerate(passes)
    ]


def test_more_cpu_cannot_be_slower() -> None:
    """The longer measurement is the wrong one: nothing makes a pass shorter than it is."""
    found = contradictions(_paces((0.25, 4.0), (0.5, 4.4)))
    assert list(found) == [1]
    assert contradictions(_paces((1.0, 1.0), (1.0, 1.3))) == {}, "it has no more CPU"
    assert found[1] == (
        "functions of size 1 have 2 times the CPU of those of size 0, and were 10% slower",
    )


def test_the_same_pass_takes_about_the_same_cpu_time() -> None:
    assert contradictions(_paces((0.25, 4.8), (0.5, 2.0), (1.0, 1.0))) == {}
    found = contradictions(_paces((0.25, 6.4), (0.5, 2.0), (1.0, 1.0)))
    assert found == {
        0: (
            "the same pass took 1.6 times the CPU time in functions of size 0 as in those of "
            "size 1",
        )
    }
