"""Lines near the samples that a worker has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.planning.configuration import Configuration, micro_samples, stage_size
from dayfly.planning.function_times import interpolated
from dayfly.planning.profile import Affine, Pass, SizeProfile
from tests.planning.by_hand import given, layer, profile, size

#: Seconds forward and backward by samples: 1 ms a sample, and twice that from 16 samples on.
BENT = {4: 0.004, 8: 0.008, 16: 0.016, 32: 0.048, 64: 0.112}


def bent() -> SizeProfile:
    passes = tuple(
        Pass(samples=n, forward=(given(s),), backward=(given(2 * s),), data=given(0.1 * s))
        for n, s in BENT.items()
    )
    return replace(size(1), passes=passes)


def test_few_and_many_samples_have_lines_of_their_own() -> None:
    few, many = interpolated(bent(), 4), interpolated(bent(), 64)
    assert few.forward[0](4) == pytest.approx(0.004, rel=0.05)
    assert many.forward[0](64) == pytest.approx(0.112, rel=0.1)
    assert many.forward[0](96) > 1.5 * few.forward[0](96)
    assert few.backward[0](4) == pytest.approx(2 * few.forward[0](4))
    assert few.data(4) == pytest.approx(0.1 * few.forward[0](4))


def test_one_disturbed_pass_is_smoothed() -> None:
    even = {n: 0.001 * n for n in BENT} | {16: 0.024}
    passes = tuple(
        Pass(samples=n, forward=(given(s),), backward=(given(s),), data=given(0.0))
        for n, s in even.items()
    )
    assert interpolated(replace(size(1), passes=passes), 16).forward[0](16) < 0.8 * 0.024


def test_without_passes_the_lines_stay() -> None:
    made = size(1)
    assert interpolated(made, 16) is made
    two = replace(made, passes=bent().passes[:2])
    assert interpolated(two, 16) is two


def test_a_stage_is_near_what_it_computes_at_once() -> None:
    made = profile((layer("a", 10), layer("b", 10)), size(2), samples=640)
    c = Configuration(workers=4, memory_mib=(1024,), batch_size=64)
    assert micro_samples(made, c) == 16
    assert micro_samples(made, replace(c, micro_batches=4)) == 4
    cut = replace(c, cut=(1,), replicas=2, micro_batches=4)
    assert micro_samples(made, cut) == 8
    few = profile((layer("a", 10),), bent(), samples=640)
    alone = replace(c, workers=1)
    assert stage_size(few, alone, 0).forward == interpolated(bent(), 64).forward
    assert stage_size(few, replace(alone, micro_batches=16), 0).forward[0] != Affine(0.0, 0.0)
    assert (
        stage_size(few, replace(alone, micro_batches=16), 0).forward
        == interpolated(bent(), 4).forward
    )
