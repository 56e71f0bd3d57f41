"""Workers beside each other on one machine: computing takes longer, by what a profile says."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.closed_form import MOST_SIMULATED
from dayfly.planning.configuration import Configuration
from dayfly.planning.function_times import contended, slowdown
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, Profile
from tests.planning.by_hand import given, layer, profile, size, transfer

AWS = Catalogue().platform("aws-lambda")
#: A tenth slower beside three cores.
CROWD: dict[str, Any] = {"crowd": given(1.1), "crowd_cores": 3.0}


@pytest.mark.parametrize(
    ("others_cores", "factor"), [(0.0, 1.0), (1.5, 1.05), (3.0, 1.1), (9.0, 1.1)]
)
def test_it_grows_until_as_many_cores_as_were_measured(others_cores: float, factor: float) -> None:
    assert slowdown(1.1, 3.0, others_cores) == pytest.approx(factor)


def test_what_was_not_measured_slows_nobody() -> None:
    assert slowdown(1.0, 0.0, 8.0) == 1.0
    made = size(1)
    assert contended(made, 8.0) is made


def test_all_that_is_computed_is_slower() -> None:
    made = size(
        1,
        data=Affine(0.01, 0.0),
        apply=Affine(0.02, 0.0),
        step_s=given(0.03),
        sum_cpu_s=0.001,
        **CROWD,
    )
    found = contended(made, 3.0)
    assert found.forward[0](10) == pytest.approx(1.1 * 0.01)
    assert found.backward[0](10) == pytest.approx(1.1 * 0.02)
    assert found.data(1) == pytest.approx(1.1 * 0.01)
    assert found.apply(1) == pytest.approx(1.1 * 0.02)
    assert found.step_s.value == pytest.approx(1.1 * 0.03)
    assert (found.up, found.sum_cpu_s, found.start_s) == (made.up, 0.001, made.start_s)


def known(*sizes: Any) -> Profile:
    """Two layers that send next to nothing, of 3 ms a sample each."""
    return profile([layer("a", 1), layer("b", 1)], *sizes)


def step_s(made: Profile, *, most_simulated: int = MOST_SIMULATED, **asked: Any) -> float:
    usual: dict[str, Any] = {"workers": 1, "memory_mib": (1024,), "collective": "overlapped"}
    configuration = Configuration(**{**usual, **asked})
    return predict(made, configuration, AWS, most_simulated=most_simulated).step_s


def test_a_worker_alone_is_not_slower() -> None:
    assert step_s(known(size(2, **CROWD)), batch_size=10) == pytest.approx(0.06)


def test_workers_beside_each_other() -> None:
    """Of two, one core is at work beside each; of five, more than was measured."""
    made = known(size(2, **CROWD))
    for workers, factor in ((2, 1 + 0.1 / 3), (5, 1.1)):
        found = step_s(made, workers=workers, batch_size=100 * workers)
        assert found == pytest.approx(0.6 * factor, rel=2e-3)


def test_many_workers() -> None:
    whole = step_s(known(size(2, **CROWD)), most_simulated=1, workers=10, batch_size=1000)
    assert whole == pytest.approx(0.66, rel=2e-3)
    asked: dict[str, Any] = {"workers": 20, "cut": (1,), "replicas": 10, "batch_size": 1000}
    cut = [step_s(known(size(2, **more)), most_simulated=1, **asked) for more in ({}, CROWD)]
    assert cut[1] == pytest.approx(1.1 * cut[0], rel=2e-3)


def test_stages_beside_each_other() -> None:
    """Each of one core's functions has one of half a core beside it, and the other way round."""
    half, one = size(2, 512, cpu_cores=0.5, **CROWD), size(2, 1024, cpu_cores=1.0, **CROWD)
    asked = {"workers": 2, "cut": (1,), "memory_mib": (512, 1024), "batch_size": 100}
    found = step_s(known(half, one), **asked)
    assert found == pytest.approx(0.3 * (1 + 0.1 / 3) + 0.3 * (1 + 0.05 / 3), rel=5e-3)


def test_a_sum_takes_cpu_time_by_itself() -> None:
    """Once a step, whatever it moves; alone nothing is summed."""
    way: dict[str, Any] = {"up": transfer(cpu_s=1e-5), "down": transfer(cpu_s=1e-5)}
    for workers, more_s in ((1, 0.0), (2, 0.02)):
        without, by_itself = (
            step_s(
                known(size(2, cpu_cores=0.5, sum_cpu_s=sum_cpu_s, **way)),
                workers=workers,
                batch_size=10 * workers,
            )
            for sum_cpu_s in (0.0, 0.01)
        )
        assert by_itself - without == pytest.approx(more_s, abs=1e-3)
