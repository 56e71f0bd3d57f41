"""K-reduce: its schedules drawn and asserted, its time by FasDL, and all-reduce, which it is at 1.

In the drawings one line is one lane; an operation stands right of all that it waits for.
"""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.collectives import all_reduce_s, k_reduce_s, scatter_reduce_s

from dayfly.errors import RequestError
from dayfly.wire.collectives import COLLECTIVES, collective, names
from dayfly.wire.collectives.k_reduce import contributing, k_reduce, reading
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span
from tests.collectives.timing import LATENCY_S, RATE, link, seconds

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def part(source: int, destination: int) -> Name:
    """The contribution of `source` to the shard that `destination` is in charge of."""
    return Name("part", source, destination)


def total(owner: int) -> Name:
    """The finished sum of the shard that `owner` is in charge of, for everyone."""
    return Name("sum", owner)


def test_an_aggregator_rank_1_of_3_with_2() -> None:
    """5 elements are cut in |0 1 2|3 4|; rank 1 is in charge of the second.

    uplink    0 part>0                                            4 sum 1
    downlink            1 part<0  2 part<2                                6 sum 0
    compute                                 3 reduce 0+1+2                5 drop
    """
    assert k_reduce(2).schedule(1, 3, 5).ops == (
        Op(PUT, Span(0, 3), part(1, 0), feeds=total(0)),
        Op(FETCH, Span(3, 5), part(0, 1), after=(0,)),
        Op(FETCH, Span(3, 5), part(2, 1), after=(0,)),
        Op(REDUCE, Span(3, 5), terms=(part(0, 1), None, part(2, 1)), after=(1, 2)),
        Op(PUT, Span(3, 5), total(1), after=(3,)),
        Op(DROP, Span(0, 0), terms=(part(0, 1), part(2, 1)), after=(4,)),
        Op(GET, Span(0, 3), total(0), after=(0, 4)),
    )


def test_another_rank_2_of_3_with_2() -> None:
    """It is in charge of nothing: it uploads all, and downloads all.

    uplink    0 part>0  1 part>1
    downlink                      2 sum 0  3 sum 1
    """
    assert k_reduce(2).schedule(2, 3, 5).ops == (
        Op(PUT, Span(0, 3), part(2, 0), feeds=total(0)),
        Op(PUT, Span(3, 5), part(2, 1), feeds=total(1)),
        Op(GET, Span(0, 3), total(0), after=(0, 1)),
        Op(GET, Span(3, 5), total(1), after=(1,)),
    )


def test_another_with_a_sum_stored() -> None:
    """It contributes to the other alone.

    uplink    0 part>1
    downlink            1 sum 0  2 sum 1
    """
    assert k_reduce(2).schedule(2, 3, 5, {total(0)}).ops == (
        Op(PUT, Span(3, 5), part(2, 1), feeds=total(1)),
        Op(GET, Span(0, 3), total(0), after=(0,)),
        Op(GET, Span(3, 5), total(1), after=(0,)),
    )


def test_all_reduce_is_one_aggregator() -> None:
    """Rank 0 of 2, and rank 1.

    uplink                              2 sum 0       0 part>0
    downlink  0 part<1                                          1 sum 0
    compute             1 reduce 0+1            3 drop
    """
    all_reduce = COLLECTIVES["all-reduce"]
    assert all_reduce.schedule(0, 2, 5).ops == (
        Op(FETCH, Span(0, 5), part(1, 0)),
        Op(REDUCE, Span(0, 5), terms=(None, part(1, 0)), after=(0,)),
        Op(PUT, Span(0, 5), total(0), after=(1,)),
        Op(DROP, Span(0, 0), terms=(part(1, 0),), after=(2,)),
    )
    assert all_reduce.schedule(1, 2, 5).ops == (
        Op(PUT, Span(0, 5), part(1, 0), feeds=total(0)),
        Op(GET, Span(0, 5), total(0), after=(0,)),
    )
    assert all_reduce.sums(2, 5, 1) == (total(0),)


def test_scatter_reduce_is_as_many_aggregators_as_ranks() -> None:
    for rank in range(4):
        made = COLLECTIVES["scatter-reduce"].schedule(rank, 4, 30)
        assert made == k_reduce(4).schedule(rank, 4, 30)


def schedules(aggregators: int, size: int, length: int) -> list[Schedule]:
    """Every rank's."""
    return [k_reduce(aggregators).schedule(rank, size, length) for rank in range(size)]


@pytest.mark.parametrize("latency_s", [0.0, LATENCY_S])
@pytest.mark.parametrize(
    ("size", "aggregators"), [(1, 1), (2, 1), (2, 2), (3, 2), (8, 1), (8, 3), (8, 8)]
)
def test_virtual_time_is_fasdls_equation_1(size: int, aggregators: int, latency_s: float) -> None:
    """As corrected; 24000 elements are divided by every number of aggregators here."""
    took_s = seconds(schedules(aggregators, size, 24_000), link(latency_s=latency_s))
    expected_s = k_reduce_s(96_000, size, aggregators, RATE, latency_s)
    assert took_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_ends_are_the_other_papers_forms(size: int) -> None:
    one = k_reduce_s(1e6, size, 1, RATE, LATENCY_S)
    assert one == pytest.approx(all_reduce_s(1e6, size, RATE, LATENCY_S), rel=1e-12)
    all_of_them = k_reduce_s(1e6, size, size, RATE, LATENCY_S)
    assert all_of_them == pytest.approx(scatter_reduce_s(1e6, size, RATE, LATENCY_S), rel=1e-12)


def test_fasdls_own_sum_of_the_three_steps_is_longer_by_what_nobody_sends() -> None:
    """Equation 1 as printed: S/w + (W-1)/K S/w + S/(Kw) + S/w."""
    s, w = 1e6, RATE
    for size, k, spared in ((8, 1, 0), (8, 3, 1), (8, 8, 2)):
        printed_s = s / w + (size - 1) / k * s / w + s / (k * w) + s / w
        assert k_reduce_s(s, size, k, w, 0.0) == pytest.approx(printed_s - spared * s / (k * w))


def test_too_few_and_too_many_aggregators() -> None:
    for aggregators in (0, 4):
        with pytest.raises(ValueError, match=f"{aggregators} aggregators of 3 ranks"):
            k_reduce(aggregators).schedule(0, 3, 10)


def test_a_collective_by_its_name() -> None:
    assert set(names()) == {*COLLECTIVES, "k-reduce"}
    for name in COLLECTIVES:
        assert collective(name, None, 4) is COLLECTIVES[name]
    assert collective("k-reduce", 2, 4).sums(4, 10, 1) == (total(0), total(1))


@pytest.mark.parametrize(
    ("name", "aggregators", "words"),
    [
        ("k-reduce", None, "k-reduce needs --aggregators: .* 1 to 4"),
        ("k-reduce", 0, "--aggregators 0: give 1 to 4"),
        ("k-reduce", 5, "--aggregators 5: give 1 to 4"),
        ("ring", 2, "--aggregators 2 is for --collective k-reduce: ring has its own"),
        ("shout", None, "'shout' is not known: give one of all-reduce, k-reduce, overlapped"),
    ],
)
def test_wrong_requests(name: str, aggregators: int | None, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        collective(name, aggregators, 4)


def test_who_lags_behind_contributes_first_and_reads_the_sums_later() -> None:
    """Together they are what rank 2 of 3 does with 2 aggregators.

    uplink    0 part>0  1 part>1                ... a step later
    downlink                                    0 sum 0  1 sum 1
    """
    assert contributing(2).schedule(2, 3, 5).ops == (
        Op(PUT, Span(0, 3), part(2, 0), feeds=total(0)),
        Op(PUT, Span(3, 5), part(2, 1), feeds=total(1)),
    )
    assert reading(2).schedule(2, 3, 5).ops == (
        Op(GET, Span(0, 3), total(0)),
        Op(GET, Span(3, 5), total(1)),
    )
    assert contributing(2).schedule(2, 3, 5, {total(0)}).ops == (
        Op(PUT, Span(3, 5), part(2, 1), feeds=total(1)),
    )
    assert not contributing(2).schedule(2, 3, 5, {total(0), total(1)}).reads_buffer


def test_an_aggregator_never_lags_behind() -> None:
    for made in (contributing(2), reading(2)):
        with pytest.raises(ValueError, match="rank 1 is one of 2 aggregators"):
            made.schedule(1, 3, 5)
