"""How sure predictions are: by what was measured, part by part."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.conditions import Conditions
from dayfly.planning.configuration import Configuration
from dayfly.planning.intervals import (
    MODEL,
    MODEL_CLOSED_FORM,
    interval_of,
)
from dayfly.planning.plan import Interval, Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Figure, Pass, SizeProfile, Transfer
from tests.planning.by_hand import given, layer, profile, size, transfer

AWS = Catalogue().platform("aws-lambda")
#: 90% of a normal distribution lie within so many standard deviations.
Z = 1.6448536269514722
#: The pace of a machine that was watched and was even, still.
PACE = 0.01
EVEN = Conditions(stolen=0.0, other_cores=0.0, pace_s=(1.0, 1.0, 1.0))


def passes(low: float = 1.0, high: float = 1.0, count: int = 9) -> tuple[Pass, ...]:
    """As the lines of `size` have them, with a spread."""
    found = []
    for samples in (10, 20, 40):
        forward, backward = (
            (Figure(each * samples, low * each * samples, high * each * samples, count),)
            for each in (0.001, 0.002)
        )
        found.append(Pass(samples=samples, forward=forward, backward=backward, data=given(0.0)))
    return tuple(found)


def made(
    workers: int = 1, c: Any = None, more: Any = None, **changes: Any
) -> tuple[Prediction, Interval]:
    """changes: of the functions. c: of the configuration; more: of the prediction."""
    kept = {"conditions": EVEN, "passes": passes(), **changes}
    layers = [layer("a", 1000), layer("b", 1000)] if c and "cut" in c else [layer("a", 1000)]
    if len(layers) > 1:
        kept["passes"] = ()
    known = profile(layers, size(len(layers), **kept), how="measured")
    asked: dict[str, Any] = {
        "workers": workers,
        "memory_mib": (1024,),
        "batch_size": 40 * workers,
        "epochs": 10,
        **(c or {}),
    }
    said = predict(known, Configuration(**asked), AWS, **(more or {}))
    assert said.interval is not None
    return said, said.interval


def sd(said: Prediction, found: Interval) -> float:
    """Relative standard deviation of the step; the interval is as wide both ways."""
    low, high = found.step_s
    assert low * high == pytest.approx(said.step_s**2)
    return math.log(high / said.step_s) / Z


def test_of_a_perfect_profile_the_models_error_is_left() -> None:
    said, found = made()
    assert said.breakdown["compute"] == pytest.approx(said.step_s)
    assert found.level == 0.9
    assert sd(said, found) == pytest.approx(math.hypot(MODEL, PACE))
    assert next(iter(found.sources)) == "model"
    assert sum(found.sources.values()) == pytest.approx(1.0)


def test_a_machine_that_nobody_watched_is_less_sure() -> None:
    said, found = made(conditions=None)
    assert sd(said, found) == pytest.approx(math.hypot(MODEL, 0.05))


def test_waiting_is_of_what_others_do() -> None:
    """A third of computing and transfers is waited for besides, and is as unsure as they are."""
    slow = Transfer(latency_s=given(0.0), peak_bytes_per_s=Figure(10e6, 5e6, 15e6, 4))
    known = profile(
        [layer("a", 1000)],
        size(1, conditions=EVEN, passes=passes(), up=slow, down=slow),
        how="measured",
    )
    asked = Configuration(workers=2, memory_mib=(1024,), batch_size=80)
    said = predict(known, asked, AWS)
    parts = {"compute": 0.5, "transfer": 0.25, "sync": 0.25, "overhead": 0.0}
    waits = replace(said, step_s=1.0, breakdown=parts)
    found = interval_of(known, asked, waits, simulated=True)
    assert found is not None
    messages = math.sqrt(math.pi / 2) * (1.0 / 1.3489795) / 2
    third = 1 + 0.25 / 0.75
    assert sd(waits, found) == pytest.approx(
        math.hypot(MODEL, third * 0.5 * PACE, third * 0.25 * messages)
    )


def test_stages_and_closed_forms_are_less_sure() -> None:
    said, found = made(2, {"cut": (1,), "replicas": 1, "micro_batches": 2})
    assert sd(said, found) > MODEL
    said, found = made(2, more={"most_simulated": 1})
    simulated, by_messages = made(2)
    more = sd(said, found) ** 2 - sd(simulated, by_messages) ** 2
    assert more == pytest.approx(MODEL_CLOSED_FORM**2, rel=0.2)


def _slow(latency: Figure) -> Transfer:
    return Transfer(latency_s=latency, peak_bytes_per_s=given(10e6))


@pytest.mark.parametrize(
    ("source", "remedy", "workers", "changes"),
    [
        ("passes", "--repeat", 1, {"passes": passes(0.5, 1.5)}),
        ("pace", "--force", 1, {"conditions": Conditions(stolen=0.3)}),
        ("pace", "--force", 1, {"conditions": Conditions(pace_s=(1.0, 1.4))}),
        ("pace", "--force", 1, {"conditions": Conditions(spread=0.9)}),
        ("messages", "--repeat", 2, {"up": _slow(Figure(0.2, 0.1, 0.3, 5))}),
        ("overhead", "--repeat", 1, {"step_s": Figure(1.0, 0.5, 1.5, 5)}),
        ("start", "epochs", 1, {"start_s": Figure(99.0, 99.0, 99.0, 1)}),
    ],
)
def test_the_greatest_source_is_named_with_what_would_tell_more(
    source: str, remedy: str, workers: int, changes: dict[str, Any]
) -> None:
    _, found = made(workers, **changes)
    assert next(iter(found.sources)) == source
    assert found.to_measure is not None
    assert remedy in found.to_measure
    _, before = made(workers)
    assert found.total_s[1] / found.total_s[0] > before.total_s[1] / before.total_s[0]


def test_the_median_of_many_is_surer_than_that_of_few() -> None:
    few, many = (sd(*made(passes=passes(0.5, 1.5, count))) for count in (4, 400))
    median_of_four = math.sqrt(math.pi / 2) * (1.0 / 1.3489795) / 2
    assert few == pytest.approx(math.hypot(MODEL, PACE, median_of_four))
    assert many < few / 4


def test_batches_that_were_not_measured_are_less_sure() -> None:
    """Four times as many samples as were measured: two doublings."""
    said, found = made(1, {"batch_size": 160})
    assert sd(said, found) == pytest.approx(math.hypot(MODEL, PACE, 0.1))


def test_requests_are_counted_and_have_no_error() -> None:
    """A dearer store shifts both ends by as much."""
    two: SizeProfile = size(1, conditions=EVEN, up=transfer(latency_s=0.01))
    known = profile([layer("a", 1000)], two, how="measured", channel="s3")
    asked = Configuration(workers=2, memory_mib=(1024,), batch_size=40)
    free, priced = (predict(known, asked, AWS, store) for store in (None, Catalogue().store("s3")))
    assert free.interval is not None
    assert priced.interval is not None
    more = priced.cost_usd - free.cost_usd
    assert more > 0
    for low_or_high in (0, 1):
        shifted = priced.interval.cost_usd[low_or_high] - free.interval.cost_usd[low_or_high]
        assert shifted == pytest.approx(more)


def test_what_was_not_measured_has_no_interval() -> None:
    known = profile([layer("a", 1000)])
    assert known.how == "by hand"
    asked = Configuration(workers=1, memory_mib=(1024,), batch_size=40)
    assert predict(known, asked, AWS).interval is None


def test_times_add_up() -> None:
    said, found = made(2)
    assert said.startup_s == pytest.approx(0.75)
    assert said.train_s is not None
    assert said.startup_s + said.train_s + 0.125 == pytest.approx(said.total_s, abs=0.01)
    assert said.run_s == said.total_s  # its old name
    assert found.total_s[0] < said.total_s < found.total_s[1]
