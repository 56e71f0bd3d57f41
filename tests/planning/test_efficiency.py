"""Samples to a target: curves, their interval, S(B), and what is said of what was not measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly import dataclass_json
from dayfly.errors import RequestError
from dayfly.planning.efficiency import (
    Convergence,
    Efficiencies,
    Efficiency,
    SeedCurve,
    given_efficiency,
)
from dayfly.planning.short_runs import epochs_to, measured_efficiency, noise_fit
from dayfly.specs.methods import BSP, Method

LOCAL = Method.parse("local-sgd:8")


def curves(*epochs: float | None) -> list[SeedCurve]:
    return [SeedCurve(seed=at, losses=(1.0,), epochs=one) for at, one in enumerate(epochs)]


def measured(method: Method, batch: int, *epochs: float | None) -> Efficiency:
    """With seeds of which bsp takes 4 epochs."""
    reference = curves(*[4.0] * len(epochs))
    return measured_efficiency(method, batch, 4, curves(*epochs), reference, 12)


def known() -> Convergence:
    return Convergence(
        batch_size=64,
        epochs=4,
        target_loss=0.5,
        most_epochs=12,
        measured=(
            measured(BSP, 64, 4.0, 4.0),
            measured(BSP, 128, 4.2, 4.2),
            measured(BSP, 256, 6.0, 6.0),
            measured(BSP, 512, 11.0, None),
            measured(LOCAL, 64, 5.0, 5.0),
            measured(Method.parse("nesterov:20"), 64, None),
        ),
        left_out={},
        fit=noise_fit({64: 1.0, 128: 1.05, 256: 1.5}, 64),
    )


def test_epochs_to_a_target_lie_between_two_validations() -> None:
    assert epochs_to([4.0, 2.0, 1.0], 2.0) == 2.0
    assert epochs_to([4.0, 1.0], 2.0) == 1.5  # halfway down, on a logarithmic scale
    assert epochs_to([1.0], 2.0) == 1.0
    assert epochs_to([4.0, None, 1.0], 2.0) == 3.0
    assert epochs_to([3.0, -1.0], 0.0) == 2.0
    assert epochs_to([4.0, 3.0], 2.0) is None


def test_seeds_say_how_sure_it_is() -> None:
    found = measured(LOCAL, 64, 4.0, 9.0)
    assert found.samples == pytest.approx(1.5)  # the geometric mean of 1 and 2.25
    # t of one degree of freedom, 6.314, times the standard error of log 1 and log 2.25.
    far = 6.314 * math.log(2.25) / 2
    assert (found.low, found.high) == pytest.approx((1.5 * math.exp(-far), 1.5 * math.exp(far)))
    alone = measured(LOCAL, 64, 5.5)
    assert (alone.low, alone.high) == (5 / 4, 6 / 3)


def test_a_target_that_one_seed_does_not_reach_is_not_reached() -> None:
    found = measured(LOCAL, 64, 4.0, 4.0, None)
    assert (found.samples, found.high, found.reached) == (None, None, 2)
    assert found.low == pytest.approx(3 ** (1 / 3))  # the geometric mean of 1, 1 and over 3
    assert "not reached" in found.words
    with pytest.raises(ValueError, match="did not reach"):
        found.epochs(4)


@settings(max_examples=30)
@given(st.floats(0.0, 1e4), st.sets(st.integers(65, 10_000), min_size=1, max_size=5))
def test_the_fit_finds_the_noise_scale_of_exact_samples(noise: float, batches: set[int]) -> None:
    f = {batch: (batch + noise) / (64 + noise) for batch in {64, *batches}}
    found = noise_fit(f, 64)
    assert found is not None
    assert found.noise is not None
    assert found.noise == pytest.approx(noise, rel=1e-3, abs=1e-6)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_a_fit_of_batches_that_cost_nothing_has_infinite_noise() -> None:
    found = noise_fit({64: 1.0, 128: 0.97, 256: 1.0}, 64)
    assert found is not None
    assert (found.noise, found.samples(256, 64)) == (None, 1.0)
    assert noise_fit({64: 1.0}, 64) is None


def test_the_largest_batch_that_converges_as_well() -> None:
    assert known().largest_batch == 128


def test_epochs_are_whole_and_within_the_tolerance_those_of_bsp() -> None:
    def epochs(samples: float) -> int:
        return Efficiency(method="bsp", batch_size=1, samples=samples, how="given").epochs(10)

    assert [epochs(one) for one in (0.5, 0.95, 1.0, 1.1, 1.11, 1.2, 2.01)] == [
        5,
        10,
        10,
        10,
        12,
        12,
        21,
    ]
    assert Efficiency(method="bsp", batch_size=1, samples=0.01, how="given").epochs(1) == 1


def test_what_was_not_measured_is_fitted_combined_or_assumed() -> None:
    of = Efficiencies(batch_size=64, convergence=known(), given=((BSP, 192, 1.3),))
    said = {
        (str(method), batch): (one.how, None if one.samples is None else round(one.samples, 3))
        for method, batch in [
            *((BSP, batch) for batch in (32, 64, 100, 128, 192, 200, 256, 300, 512)),
            *((LOCAL, batch) for batch in (32, 64, 192, 512)),
            *((Method.parse("nesterov:20"), batch) for batch in (64, 192)),
            *((Method.parse("hap:1"), batch) for batch in (64, 256, 512)),
        ]
        for one in [of.of(method, batch)]
    }
    fit = known().fit
    assert fit is not None
    assert said == {
        ("bsp", 32): ("assumed", 1.0),
        ("bsp", 64): ("measured", 1.0),
        ("bsp", 100): ("fitted", round(min(1.1, fit.samples(100, 64)), 3)),
        ("bsp", 128): ("measured", 1.05),
        ("bsp", 192): ("given", 1.3),
        ("bsp", 200): ("fitted", round(fit.samples(200, 64), 3)),
        ("bsp", 256): ("measured", 1.5),
        ("bsp", 300): ("fitted", None),  # beyond what reached the target
        ("bsp", 512): ("measured", None),
        ("local-sgd:8", 32): ("assumed", 1.25),
        ("local-sgd:8", 64): ("measured", 1.25),
        ("local-sgd:8", 192): ("combined", 1.625),
        ("local-sgd:8", 512): ("combined", None),
        ("nesterov:20", 64): ("measured", None),
        ("nesterov:20", 192): ("combined", None),
        ("hap:1", 64): ("assumed", 1.0),
        ("hap:1", 256): ("assumed", 1.5),  # as bsp's at that batch
        ("hap:1", 512): ("combined", None),
    }


def test_a_batch_that_missed_the_target_speaks_for_larger_ones() -> None:
    """Also where no other batch reached it, so that nothing is fitted."""
    alone = (measured(BSP, 64, 4.0), measured(BSP, 128, None))
    of = Efficiencies(batch_size=64, convergence=replace(known(), measured=alone, fit=None))
    assert [of.of(BSP, batch).how for batch in (64, 100, 128, 256)] == [
        "measured",
        "assumed",
        "measured",
        "fitted",
    ]
    for method in (BSP, LOCAL):
        found = of.of(method, 256)
        assert (found.samples, found.low) == (None, pytest.approx(3.0))


def test_a_comparison_with_another_batch_size_says_nothing() -> None:
    of = Efficiencies(batch_size=32, convergence=known())
    assert of.of(BSP, 128).how == of.of(LOCAL, 32).how == "assumed"
    assert of.of(BSP, 32).samples == 1.0


def test_given_by_hand() -> None:
    assert given_efficiency("local-sgd:8=1.3", 64) == (LOCAL, 64, 1.3)
    assert given_efficiency("@512=1.2", 64) == (BSP, 512, 1.2)
    for text in ("1.3", "bsp=", "bsp=0", "bsp=nan", "bsp=-1"):
        with pytest.raises(RequestError, match=r"such as local-sgd:8=1\.3"):
            given_efficiency(text, 64)


def test_it_survives_being_written_and_read() -> None:
    found = known()
    assert dataclass_json.read(Convergence, dataclass_json.dump(found), "x") == found
