"""FasDL's own numbers, and its equations against dayfly's schedules in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from benchmarks.parts.papers.formulas.collectives import k_reduce_s
from benchmarks.parts.papers.formulas.fasdl import (
    degradation,
    download_s,
    others_batch,
    printed_communication_s,
    transfer_usd,
    upload_s,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.formulas import (
    aggregate_s,
    communication_s,
    functions_usd,
    global_batch,
    hybrid_step_s,
    loading_s,
    requests_usd,
    run_s,
)
from dayfly.planning.profile import Figure, Fit, Transfer
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.k_reduce import hybrid_costs, k_reduce_bytes, k_reduce_requests
from dayfly.wire.collectives.link import plain_link
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, Work, split
from dayfly.wire.virtual import Link, finish_s, simulate

pytestmark = pytest.mark.long

MIB = 2**20


@dataclass(frozen=True)
class Workload:
    """A row of tables II and IV: S_m in MiB, a, b, m, and the configuration of K-REDUCE.

    most: the limit of the global batch. limit_s: of the run's time.
    """

    size_mib: float
    fit: Fit
    most: int
    limit_s: float
    workers: int
    memory_mib: int
    aggregators_samples: int
    aggregators: int
    others_samples: int

    @property
    def used(self) -> float:
        """B^g."""
        return global_batch(
            self.workers, self.aggregators, self.aggregators_samples, self.others_samples
        )

    def others(self, bytes_per_s: float, most: int | None = None) -> int:
        """Equation 16 over links of so many bytes a second each way."""
        size = self.size_mib * MIB
        return others_batch(
            lambda samples: self.fit.step_s(samples, self.memory_mib),
            self.aggregators_samples,
            aggregate_s(size, self.workers, self.aggregators, bytes_per_s, bytes_per_s),
            workers=self.workers,
            aggregators=self.aggregators,
            most_samples=10**6,
            most_global_samples=most or self.most,
        )


def fit(a: float, b: float, m: float) -> Fit:
    """Coefficients of table II; the error is not in the paper."""
    return Fit(a=a, b=b, m=m, error=math.nan)


WORKLOADS = {
    "BERT-Base": Workload(417.17, fit(2344.97, 2.37, 1145.66), 640, 2500, 10, 10240, 32, 4, 84),
    "ResNet50": Workload(97.49, fit(37.19, 12.48, -111.46), 1024, 8000, 7, 1536, 128, 4, 170),
    "MobileNet": Workload(13.37, fit(13.50, 9.57, -92.88), 512, 4000, 3, 1920, 128, 1, 192),
    "SqueezeNet": Workload(4.71, fit(2.16, 22.60, -93.22), 384, 3000, 2, 768, 128, 1, 201),
}


def test_table_4_keeps_its_limits_and_reaches_one() -> None:
    """Equation 6. MobileNet's is the limit itself: equation 12's < is <=."""
    used = {name: one.used for name, one in WORKLOADS.items()}
    assert used == {"BERT-Base": 632, "ResNet50": 1022, "MobileNet": 512, "SqueezeNet": 329}
    assert [name for name, one in WORKLOADS.items() if one.used == one.most] == ["MobileNet"]


def test_table_4s_batches_of_other_workers() -> None:
    """Equation 16 as a cap. At Lambda's 70 MB/s the global batch is what limits two of four.

    170.67 is rounded down to 170, and 192 is what is left. The other two are limited by equation 16
    proper, where the throughput p(M) (1 - exp(-t(M) S_s)) is only plotted; what it has to be for
    table IV's figures is within what Lambda gives: 40 MB/s of a small function for a small
    shard, 100 MB/s of the largest.
    """
    at_70_mb_s = {name: one.others(70e6) for name, one in WORKLOADS.items()}
    assert at_70_mb_s["ResNet50"] == WORKLOADS["ResNet50"].others_samples == 170
    assert at_70_mb_s["MobileNet"] == WORKLOADS["MobileNet"].others_samples == 192
    squeeze, bert = WORKLOADS["SqueezeNet"], WORKLOADS["BERT-Base"]
    assert squeeze.others(42e6) == squeeze.others_samples == 201
    assert bert.others(101e6) == bert.others_samples == 84


def test_table_3() -> None:
    """Degradation and what is printed of it; BERT's is 13.2%, not 11.6%."""
    dollars = {"BERT": (3.42, 3.02), "ResNet50": (1.49, 1.30), "MobileNet": (0.38, 0.37)}
    found = {name: f"{degradation(*pair):.1%}" for name, pair in dollars.items()}
    assert found == {"BERT": "13.2%", "ResNet50": "14.6%", "MobileNet": "2.7%"}
    assert f"{degradation(0.104, 0.098):.1%}" == "6.1%"


def test_what_table_3s_dollars_leave_for_requests() -> None:
    """Equation 8 with the whole of the time allowed is all but the requests, at Lambda's price.

    Equation 9 corrected then says how many epochs there were at least: those of ResNet50 and
    SqueezeNet need 12 and 18; BERT's and MobileNet's may have been done sooner.
    """
    functions, s3 = Catalogue().platform("aws-lambda").prices, Catalogue().store("s3")
    assert functions is not None
    assert s3.usd_per_put is not None
    assert s3.usd_per_get is not None
    samples, least = 50_000, {}
    for name, printed_usd in (("ResNet50", 1.49), ("SqueezeNet", 0.104)):
        one = WORKLOADS[name]
        most_usd = functions_usd(
            functions.usd_per_gb_s, one.limit_s, one.memory_mib / 1024, one.workers
        )
        epoch_usd = requests_usd(
            s3.usd_per_put, s3.usd_per_get, one.workers, one.aggregators, samples / one.used, 1
        )
        least[name] = math.ceil((printed_usd - most_usd) / epoch_usd)
    assert least == {"ResNet50": 12, "SqueezeNet": 18}


@pytest.mark.parametrize("name", WORKLOADS)
def test_traffic_and_requests_are_those_of_the_schedules(name: str) -> None:
    """Section V-B: K W puts, 2K(W-1) gets and S(3W-2) bytes, counted in the schedules."""
    one, length = WORKLOADS[name], 1200
    made = collective("k-reduce", one.aggregators, one.workers)
    ops = [op for rank in range(one.workers) for op in made.schedule(rank, one.workers, length)]
    puts = [len(op.span) for op in ops if op.kind is Kind.PUT]
    gets = [len(op.span) for op in ops if op.kind in (Kind.GET, Kind.FETCH)]
    w, k = one.workers, one.aggregators
    assert (len(puts), len(gets)) == (k * w, 2 * k * (w - 1)) == k_reduce_requests(w, k)
    assert sum(puts) + sum(gets) == length * (3 * w - 2) == sum(k_reduce_bytes(length, w))


counts = st.tuples(st.integers(2, 9), st.integers(1, 9)).filter(lambda pair: pair[1] <= pair[0])
rates = st.floats(1, 100)


@settings(deadline=None)
@given(counts, rates, rates, st.floats(0, 0.5))
def test_equation_3_corrected_is_the_schedules_time(
    pair: tuple[int, int], up: float, down: float, latency_s: float
) -> None:
    """Exact, for any two rates; 2520 elements are divided by any number of aggregators here."""
    workers, aggregators = pair
    made = collective("k-reduce", aggregators, workers)
    link = Link(up_bytes_per_s=up, down_bytes_per_s=down, latency_s=latency_s)
    schedules = [made.schedule(rank, workers, 2520) for rank in range(workers)]
    found_s = finish_s(simulate(schedules, link, itemsize=1))
    said_s = communication_s(2520, workers, aggregators, up, down, latency_s)
    assert found_s == pytest.approx(said_s)


@given(counts, rates, rates)
def test_as_printed_it_is_an_upper_bound(pair: tuple[int, int], up: float, down: float) -> None:
    """What it has too much is one shard up and one down, at most: an aggregator's own."""
    workers, aggregators = pair
    printed_s = printed_communication_s(1000, workers, aggregators, up, down)
    said_s = communication_s(1000, workers, aggregators, up, down, 0.0)
    shard_s = 1000 / aggregators / up + 1000 / aggregators / down
    assert -1e-9 <= printed_s - said_s <= shard_s + 1e-9


@given(counts, rates, st.floats(0, 1))
def test_with_equal_rates_it_is_the_closed_form_of_k_reduce(
    pair: tuple[int, int], rate: float, latency_s: float
) -> None:
    workers, aggregators = pair
    said_s = communication_s(1000, workers, aggregators, rate, rate, latency_s)
    assert said_s == pytest.approx(k_reduce_s(1000, workers, aggregators, rate, latency_s))


@given(counts, rates, rates, st.floats(1, 10))
def test_more_bandwidth_is_never_slower(
    pair: tuple[int, int], up: float, down: float, factor: float
) -> None:
    now_s = communication_s(1000, *pair, up, down, 0.1)
    assert communication_s(1000, *pair, up * factor, down, 0.1) <= now_s * (1 + 1e-12)
    assert communication_s(1000, *pair, up, down * factor, 0.1) <= now_s * (1 + 1e-12)
    assert communication_s(1000, *pair, up, down, 0.1 / factor) <= now_s


def hybrid(rank: int, workers: int, aggregators: int, length: int, steps: int) -> Schedule:
    """What a rank does in so many steps of the hybrid asynchronous protocol (section IV-B).

    Training of a step waits for what was read in the step before; an aggregator reads its own
    step's sums, another rank those of the step before.
    """
    draft, shards = Draft(), split(length, aggregators)
    ready: tuple[int, ...] = ()
    for step in range(steps):
        work = Work("train", step)
        trained = draft.add(Op(Kind.COMPUTE, Span(0, 0), work=work, after=ready))
        before: tuple[int, ...] = (trained,)
        for owner in range(aggregators):
            if owner != rank:
                part = Name(f"part-{step}", rank, owner)
                put = draft.add(Op(Kind.PUT, shards[owner], part, after=(trained,)))
                before = (*before, put)
        if rank < aggregators:
            parts = tuple(Name(f"part-{step}", one, rank) for one in range(workers) if one != rank)
            held = tuple(
                draft.add(Op(Kind.FETCH, shards[rank], one, after=before)) for one in parts
            )
            before = (draft.add(Op(Kind.PUT, shards[rank], Name(f"sum-{step}", rank), after=held)),)
        of = step if rank < aggregators else step - 1
        ready = before
        if of >= 0:
            ready += tuple(
                draft.add(Op(Kind.GET, shards[owner], Name(f"sum-{of}", owner), after=before))
                for owner in range(aggregators)
                if owner != rank
            )
    return draft.schedule()


def pace_s(
    workers: int,
    aggregators: int,
    up: float,
    down: float,
    latency_s: float,
    aggregator_s: float,
    other_s: float,
) -> float:
    """Seconds from step to step of that schedule: from the middle of 64 steps to their end."""
    steps = 64
    schedules = [hybrid(rank, workers, aggregators, 840, steps) for rank in range(workers)]
    link = Link(up_bytes_per_s=up, down_bytes_per_s=down, latency_s=latency_s)

    def takes_s(rank: int, work: Work) -> float:
        return aggregator_s if rank < aggregators else other_s

    times = simulate(schedules, link, itemsize=1, work_s=takes_s)
    began = [[one.start_s for one in timed if one.op.kind is Kind.COMPUTE] for timed in times]
    half = steps // 2
    return max(one[-1] - one[-1 - half] for one in began) / half


@pytest.mark.parametrize(
    ("workers", "aggregators", "line", "aggregator_s", "other_s"),
    [
        (3, 1, (7.0, 3.0, 1.0), 5.0, 5.0),  # a lone aggregator, which neither sends nor reads
        (5, 2, (50.0, 90.0, 0.5), 0.0, 0.0),
        (4, 3, (20.0, 40.0, 2.0), 1.0, 900.0),  # who aggregates nothing sets the pace
    ],
)
def test_the_hybrid_asynchronous_step_by_virtual_time(
    workers: int,
    aggregators: int,
    line: tuple[float, float, float],
    aggregator_s: float,
    other_s: float,
) -> None:
    found_s = pace_s(workers, aggregators, *line, aggregator_s, other_s)
    said_s = hybrid_step_s(aggregator_s, other_s, 840, workers, aggregators, *line)
    assert found_s == pytest.approx(said_s, rel=1e-6)


@pytest.mark.slow  # three cases of it are above
@settings(deadline=None, max_examples=50)
@given(
    counts.filter(lambda pair: pair[1] < pair[0]),
    rates,
    rates,
    st.floats(0, 2),
    st.floats(0, 50),
    st.floats(0, 50),
)
def test_the_hybrid_asynchronous_step_is_the_schedules_pace(
    pair: tuple[int, int],
    up: float,
    down: float,
    latency_s: float,
    aggregator_s: float,
    other_s: float,
) -> None:
    """Exact in the mean."""
    line = (up, down, latency_s)
    said_s = hybrid_step_s(aggregator_s, other_s, 840, *pair, *line)
    assert pace_s(*pair, *line, aggregator_s, other_s) == pytest.approx(said_s, rel=1e-6)


@given(counts)
def test_a_hybrid_step_has_the_messages_of_its_roles(pair: tuple[int, int]) -> None:
    """Of the third step, as nobody reads sums before the first."""
    workers, aggregators = pair
    length, roles = 2520, (range(aggregators), range(aggregators, workers))
    one = AllReduce(members=workers, length=length, itemsize=1, link=plain_link(1.0, 1.0, 0.0))
    aggregator, *other = hybrid_costs(one, aggregators=aggregators)
    for costs, ranks in zip(([aggregator], other), roles, strict=True):
        after = [
            [op for rank in ranks for op in hybrid(rank, workers, aggregators, length, steps)]
            for steps in (2, 3)
        ]
        for kinds, requests, nbytes in (
            ({Kind.PUT}, sum(c.puts for c in costs), sum(c.bytes_up for c in costs)),
            (
                {Kind.GET, Kind.FETCH},
                sum(c.gets for c in costs),
                sum(c.bytes_down for c in costs),
            ),
        ):
            sent = [[len(op.span) for op in ops if op.kind in kinds] for ops in after]
            assert len(sent[1]) - len(sent[0]) == requests
            assert sum(sent[1]) - sum(sent[0]) == nbytes - requests * HEADER_BYTES


@given(st.integers(1, 40), rates, rates, st.floats(0, 2))
def test_all_being_aggregators_it_is_equation_3(
    workers: int, up: float, down: float, latency_s: float
) -> None:
    line = (1000, workers, workers, up, down, latency_s)
    said_s = communication_s(*line)
    assert hybrid_step_s(0.0, 0.0, *line) == pytest.approx(said_s)


@given(st.sampled_from(sorted(WORKLOADS)), st.floats(10e6, 200e6), st.integers(200, 3000))
def test_equation_16_keeps_what_it_says(name: str, rate: float, most: int) -> None:
    """No slower than an aggregator, not over the global batch; one sample more would be."""
    one = WORKLOADS[name]
    if most - one.aggregators * one.aggregators_samples < one.workers - one.aggregators:
        with pytest.raises(ValueError, match=r"none of .* samples are left"):
            one.others(rate, most)
        return
    found = one.others(rate, most)
    limit_s = one.fit.step_s(one.aggregators_samples, one.memory_mib) + aggregate_s(
        one.size_mib * MIB, one.workers, one.aggregators, rate, rate
    )

    def fits(samples: int) -> bool:
        used = global_batch(one.workers, one.aggregators, one.aggregators_samples, samples)
        return one.fit.step_s(samples, one.memory_mib) <= limit_s and used <= most

    assert fits(found)
    assert not fits(found + 1)
    assert one.others(rate, most + 100) >= found


def test_time_and_dollars_by_hand() -> None:
    """Equations 1a, 1c, 2, 5 and 7 to 10 with round numbers."""
    assert upload_s(100, 10) == 10
    assert download_s(100, 5) == 20
    assert aggregate_s(100, 5, 2, 10, 5) == 4 * 50 / 5 + 50 / 10
    assert loading_s(100, 1000, 30, 120, 10) == (100 + 250) / 10
    assert run_s(35, 2, 3, steps=10, epochs=4) == (35 + 50) * 4
    assert functions_usd(2e-5, 340, 1.5, 4) == pytest.approx(2e-5 * 340 * 6)
    assert requests_usd(5e-6, 4e-7, 4, 2, 10, 3) == pytest.approx(30 * (8 * 5e-6 + 12 * 4e-7))
    assert transfer_usd(1e-9, 1000, 100, 4, 10, 3) == pytest.approx(3e-9 * (2000 + 10 * 1000))
    lane = Transfer(
        latency_s=Figure.given(0.0), peak_bytes_per_s=Figure.given(70e6), saturation_per_byte=1e-6
    )
    assert lane.throughput(1e6) == pytest.approx(70e6 * (1 - math.exp(-1)))
