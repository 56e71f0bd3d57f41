"""Fits find the coefficients from which points were made."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.planning.fits import fit_affine, fit_fasdl, fit_transfer
from dayfly.planning.profile import Affine, Figure, Transfer

SIZES = [2.0**n for n in range(10, 25)]


def test_line_through_its_points() -> None:
    line = fit_affine([(n, 0.002 + 0.0005 * n) for n in (4, 8, 32)])
    assert line.fixed == pytest.approx(0.002)
    assert line.each == pytest.approx(0.0005)


def test_line_of_one_number_of_samples_grows_from_nothing() -> None:
    assert fit_affine([(8, 0.4), (8, 0.6)]) == Affine(0.0, 0.0625)


def test_line_has_no_negative_part() -> None:
    line = fit_affine([(1, 1.0), (2, 4.0), (3, 9.0)])
    assert line.fixed == 0.0
    assert line.each > 0
    assert fit_affine([(1, 0.0), (2, 0.0)]) == Affine(0.0, 0.0)


@settings(max_examples=50)
@given(
    values=st.lists(st.one_of(st.just(0.0), st.floats(0.01, 1.0)), min_size=4, max_size=4),
    weight=st.floats(0.01, 100.0),
)
def test_equal_weights_change_nothing(values: list[float], weight: float) -> None:
    points = list(zip((2.0, 4.0, 8.0, 16.0), values, strict=True))
    weighted, plain = fit_affine(points, [weight] * 4), fit_affine(points)
    for n, _ in points:
        assert weighted(n) == pytest.approx(plain(n), rel=1e-6, abs=1e-12)


def test_a_line_goes_where_weights_are() -> None:
    points = [(1.0, 1.0), (2.0, 2.0), (4.0, 8.0), (8.0, 20.0)]
    last = fit_affine(points, [0.0, 0.0, 1.0, 1.0])
    assert last == Affine(0.0, pytest.approx(20 / 8, rel=0.3))  # the line of both would begin below
    first = fit_affine(points, [1.0, 1.0, 0.0, 0.0])
    assert (first.fixed, first.each) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0))


@settings(max_examples=25)
@given(
    latency=st.floats(1e-5, 0.1),
    peak=st.floats(1e6, 1e9),
)
def test_even_throughput_is_found(latency: float, peak: float) -> None:
    found = fit_transfer([(s, latency + s / peak) for s in SIZES])
    assert found[0] == pytest.approx(latency, rel=1e-3)
    assert found[1] == pytest.approx(peak, rel=1e-3)
    assert math.isinf(found[2])


@settings(max_examples=25)
@given(
    peak=st.floats(1e6, 1e9),
    saturated_at=st.floats(1e5, 2e6),
)
def test_saturating_throughput_is_found(peak: float, saturated_at: float) -> None:
    """What counts is the time of a message: latency and t both say what a small one takes."""
    true = _transfer(1e-4, peak, 1 / saturated_at)
    found = _transfer(*fit_transfer([(s, true.message_s(s)) for s in SIZES]))
    for s in (3e3, 1e5, 1e6, 1e7):
        assert found.message_s(s) == pytest.approx(true.message_s(s), rel=0.03)


def test_message_that_takes_no_longer_for_more_bytes() -> None:
    latency, peak, _ = fit_transfer([(1000.0, 0.01), (2000.0, 0.01)])
    assert latency == pytest.approx(0.01)
    assert peak > 0


@settings(max_examples=25)
@given(
    a=st.floats(0.01, 100.0),
    b=st.floats(0.0, 50.0),
    m=st.floats(-100.0, 3000.0),
)
def test_fasdl_is_found(a: float, b: float, m: float) -> None:
    points = [
        (samples, memory, a * (samples + b) / (memory + m))
        for samples in (4.0, 16.0, 64.0)
        for memory in (256.0, 512.0, 1024.0, 2048.0)
    ]
    fit = fit_fasdl(points)
    assert fit is not None
    assert fit.error < 1e-3
    assert fit.step_s(32.0, 700.0) == pytest.approx(a * (32 + b) / (700 + m), rel=1e-2)


def test_fasdl_needs_sizes_that_differ() -> None:
    assert fit_fasdl([(4.0, 512.0, 1.0), (8.0, 512.0, 2.0)]) is None
    same = [(b, memory, 0.1 * b) for b in (4.0, 8.0) for memory in (512.0, 1024.0)]
    assert fit_fasdl(same) is None


def _transfer(latency_s: float, peak: float, t: float) -> Transfer:
    return Transfer(
        latency_s=Figure.given(latency_s),
        peak_bytes_per_s=Figure.given(peak),
        saturation_per_byte=t,
    )
