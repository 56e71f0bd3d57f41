"""The terms of a worker's peak, one by one, and how it grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning import configuration, memory
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import Holding, between_passes, holding, peak_mib
from dayfly.planning.predict import predict
from dayfly.planning.profile import Pass, Profile
from dayfly.registry import Registry
from dayfly.specs.protocols import PROTOCOLS, ExchangeDescription, Part, ProtocolDescription
from tests.planning import by_hand
from tests.planning.by_hand import layer, profile

MIB = 2**20
#: Of a MiB, 2 MiB and 4 MiB; the last two pass on as much of each sample as the first.
LAYERS = (
    layer("a", MIB // 4, moving=1000, passed=8.0),
    layer("b", MIB // 2, passed=16.0),
    layer("c", MIB, passed=4.0),
)
FAR = "redis://host:6379/0"


def asked(**more: Any) -> Configuration:
    values = {"workers": 1, "memory_mib": (1024,), "batch_size": 64, **more}
    return Configuration(**values)


def held(stage: int = 0, of: Profile | None = None, **more: Any) -> Holding:
    return holding(of or profile(LAYERS), asked(**more), stage)


def test_a_replica_of_the_whole_model() -> None:
    has = held()
    assert has.model == 7 * MIB + 4000
    assert has.state == 7 * MIB
    # Beside gradients and moves: a flag for each parameter, loss and wishes.
    assert has.gradients == 7 * MIB + 4000 + 4 * (3 + 3)
    assert has.before == 4000
    assert has.gradient == 4 * MIB
    assert has.activations == 64 * 2 * (8 + 16 + 4)
    assert has.work == 64 * 2 * 16
    assert has.copy == has.model + has.state
    assert has.read == has.model
    assert (has.average, has.boundary, has.wire, has.residual) == (0, 0, 0, 0)


def test_workers_share_the_batch_and_the_checkpoint() -> None:
    one, four = held(), held(workers=4)
    assert four.activations == one.activations / 4
    assert four.copy == max(one.copy / 4, one.gradient)
    assert (four.model, four.state, four.gradients) == (one.model, one.state, one.gradients)


def test_blocks_are_kept_where_memory_is_not_limited() -> None:
    """A quarter of what a pass takes; with a limit, and of small passes, the end of the heap."""
    large = (layer("a", MIB, passed=MIB / 4), layer("b", MIB))
    sizes = tuple(by_hand.size(2, mib) for mib in (1024, None))
    of = replace(profile(large), sizes=sizes)
    limited, kept = held(of=of), held(of=of, memory_mib=(None,))
    taken = kept.activations + kept.work
    assert limited.heap - 8 * MIB == kept.heap - taken / 4 > 0
    few = held(of=of, memory_mib=(None,), batch_size=2)
    assert few.heap == held(of=of, batch_size=2).heap


def test_accumulation_holds_one_micro_batch() -> None:
    assert held(micro_batches=8).activations == held().activations / 8


def test_local_sgd_averages_model_and_state() -> None:
    has = held(workers=2, sync="local-sgd", k=5)
    assert has.gradients == 7 * MIB
    assert has.average == 4 * (2 * 7 * MIB // 4 + 1000 + 3 + 5 + 2)


def test_an_outer_optimizer_holds_the_rounds_start_and_its_momentum() -> None:
    """The momentum is in a run checkpoint once, and the inner optimizer's state at each worker."""
    nesterov: dict[str, Any] = {"workers": 2, "sync": "local-sgd", "k": 5, "outer": "nesterov"}
    has, small = held(**nesterov), held(**nesterov, compress="int8")
    assert has.average == 4 * (7 * MIB // 4 + 1000 + 5 + 2) + 2 * 7 * MIB
    assert has.copy == (has.model + 7 * MIB) / 2 + has.state
    assert (has.residual, small.residual) == (0, 7 * MIB)
    assert small.copy == has.copy + 7 * MIB
    assert small.average == has.average


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "expected"),
    [
        ("fill-drain", 8, [8, 8, 8]),
        ("1f1b", 8, [3, 2, 1]),
        ("1f1b", 2, [2, 2, 1]),
    ],
)
def test_a_stage_holds_what_its_schedule_leaves_between_passes(
    schedule: str, micro_batches: int, expected: list[int]
) -> None:
    cut = asked(workers=3, cut=(1, 2), schedule=schedule, micro_batches=micro_batches)
    assert [between_passes(cut, stage) for stage in range(3)] == expected


def test_a_stage_has_its_own_layers_and_copies_nothing() -> None:
    has = held(1, workers=3, cut=(1, 2), micro_batches=4)
    assert (has.model, has.state) == (2 * MIB, 2 * MIB)
    assert (has.copy, has.read, has.samples) == (0, 0, 0)
    assert has.activations == 64 * 2 * 16
    # Outputs of four micro-batches; two messages ahead and behind, each way.
    assert has.boundary == 16 * (4 * 16 + 2 * 2 * 16)


def test_the_ends_of_a_cut_model_have_one_neighbour() -> None:
    last = held(2, workers=3, cut=(1, 2), micro_batches=1)
    assert last.boundary == 0
    assert held(0, workers=3, cut=(1, 2), micro_batches=1).boundary == 64 * 8


def test_contributions_lie_beside_the_buffer_where_the_channel_does_not_lend_them() -> None:
    far = profile(LAYERS, channel=FAR)
    assert held(workers=4).wire == 0
    whole = held(of=far, workers=4, collective="all-reduce").wire
    shared = held(of=far, workers=4, collective="scatter-reduce").wire
    cut = held(of=far, workers=4, collective="overlapped").wire
    assert whole == pytest.approx(4 * shared, rel=1e-5)
    assert shared > cut > 0


@pytest.mark.parametrize("compress", ["int8", "topk:0.01"])
def test_who_sends_less_keeps_the_rest_and_writes_it(compress: str) -> None:
    plain, small = held(workers=2), held(workers=2, compress=compress)
    assert small.residual == 7 * MIB
    assert small.copy == plain.copy + 7 * MIB
    assert held(workers=2, compress="bf16").residual == 0


def test_a_buffer_counts_by_its_own_size_and_no_more_than_the_others_contributions() -> None:
    # Two buckets, of which the first goes out by itself: 4 MiB, and the 3 MiB of the others.
    has = held(of=profile(LAYERS, channel=FAR), workers=2, collective="scatter-reduce")
    assert has.wire == pytest.approx(has.gradients / 2)
    three = held(of=profile(LAYERS, channel=FAR), workers=3, collective="scatter-reduce")
    assert three.wire == pytest.approx(three.gradients * 2 / 3, rel=1e-5)


def seen(*points: tuple[int, float | None]) -> Profile:
    """Whose passes took so many MiB, beside the 4 MiB of the largest gradient and 56 bytes of
    activations a sample."""
    nothing = (by_hand.given(0.0),) * 3
    passes = tuple(
        Pass(samples=n, forward=nothing, backward=nothing, data=nothing[0], held_mib=mib)
        for n, mib in points
    )
    return profile(LAYERS, by_hand.size(3, passes=passes))


def test_what_a_pass_needs_beside_is_measured() -> None:
    has = held(of=seen((32, 6.0), (128, 12.0)))
    assert has.work == 8 * MIB - 4 * MIB - has.activations
    assert has.heap == memory.HEAP_BYTES
    assert held(of=seen((32, None), (128, None))) == held()


@pytest.mark.parametrize(
    ("batch", "held_mib"),
    [
        (32, 6.0),
        (80, 9.0),
        (128, 12.0),
        (144, 13.0),  # as between the two, which is more than on average
        (16, 6.0 - 16 * 56 / MIB),
    ],
)
def test_between_and_beyond_what_was_measured(batch: int, held_mib: float) -> None:
    has = held(of=seen((128, 12.0), (32, 6.0)), batch_size=batch)
    assert has.work + has.activations + has.gradient == pytest.approx(held_mib * MIB)


def test_of_one_measurement_and_of_less_with_more_samples() -> None:
    one, less = (held(of=of, batch_size=96) for of in (seen((64, 9.0)), seen((32, 9.0), (64, 8.0))))
    both = [has.work + has.activations + has.gradient for has in (one, less)]
    # On average, without the gradient: 5 MiB of 64 samples.
    assert both == pytest.approx([9 * MIB + 32 * 5 * MIB / 64] * 2)


def test_a_stage_needs_what_one_micro_batch_needs_or_its_part_of_all() -> None:
    cut = {"workers": 3, "cut": (1, 2), "micro_batches": 8, "schedule": "fill-drain"}
    made = seen((8, 6.0), (64, 6.0))
    first, second = (held(stage, of=made, **cut) for stage in (0, 1))
    more = 6 * MIB - 4 * MIB - 8 * 56
    assert first.work == second.work == more
    # Of 28 parts of the activations it keeps 8, or 16, and of eight micro-batches.
    gaps = [has.heap - memory.HEAP_BYTES for has in (first, second)]
    assert gaps == pytest.approx([more * 8 * 8 / 28 - more, more * 8 * 16 / 28 - more])


def test_the_peak_is_that_of_the_fullest_moment() -> None:
    has, base = held(), 200 + memory.WORKER_MIB
    always = has.model + has.state + has.gradients + has.before + has.samples + has.heap
    step = always + has.gradient + has.activations + has.work
    short = peak_mib(profile(LAYERS), asked(), 0, lasts_s=10)
    assert short == pytest.approx(base + max(step, always + has.copy) / MIB)
    # A checkpoint beside steps comes with time, or as the log fills.
    long = peak_mib(profile(LAYERS), asked(), 0)
    assert long == pytest.approx(base + (step + has.copy) / MIB)
    assert peak_mib(profile(LAYERS), asked(), 0, lasts_s=61) == long
    many = profile(LAYERS, samples=64 * 1000)
    full = peak_mib(many, asked(workers=2), 0, lasts_s=10)
    assert full > peak_mib(profile(LAYERS), asked(workers=2), 0, lasts_s=10)


#: Of 32 MiB: a checkpoint is more than all that only steps have.
WIDE = tuple(layer(name, 2 * MIB, passed=1.0) for name in "abcd")


def test_a_worker_that_starts_has_lost_nothing_to_the_heap_yet() -> None:
    made = replace(profile(WIDE), state_per_trained_byte=0.0)
    has = held(of=made, workers=64)
    assert has.read == 32 * MIB > has.heap + has.gradient + has.activations + has.work
    start = has.model + has.gradients + has.samples + has.read
    short = peak_mib(made, asked(workers=64), 0, lasts_s=10)
    assert short == pytest.approx(200 + memory.WORKER_MIB + start / MIB)


def test_a_successor_reads_the_optimizers_state_too() -> None:
    plain = replace(profile(WIDE), state_per_trained_byte=8.0)
    cut = asked(workers=64, lifetime_s=20.0)
    assert peak_mib(plain, cut, 0, lasts_s=10) > peak_mib(
        plain, replace(cut, lifetime_s=None), 0, lasts_s=10
    )


def test_the_base_is_that_of_the_stages_functions() -> None:
    sizes = (by_hand.size(3, 512, base_mib=by_hand.given(100.0)), by_hand.size(3, 1024))
    made = profile(LAYERS, *sizes)
    cut = asked(workers=2, cut=(1,), memory_mib=(512, 1024))
    swapped = replace(cut, memory_mib=(1024, 512))
    gained = [peak_mib(made, swapped, stage) - peak_mib(made, cut, stage) for stage in (0, 1)]
    assert gained == pytest.approx([100, -100])


counts = some.integers(1, 8)


@settings(max_examples=200)
@given(
    batch=some.integers(8, 200),
    workers=counts,
    micro=counts,
    sync=some.sampled_from(["bsp", "local-sgd"]),
    channel=some.sampled_from(["file:///dev/shm", FAR]),
)
def test_more_samples_take_more_and_more_pieces_or_replicas_less(
    batch: int, workers: int, micro: int, sync: str, channel: str
) -> None:
    made = profile(LAYERS, channel=channel)
    one = asked(batch_size=batch, workers=workers, micro_batches=micro, sync=sync)

    def peak(**changes: Any) -> float:
        return holding(made, replace(one, **changes), 0).activations

    assert peak(batch_size=batch + 1) >= peak()
    assert peak(micro_batches=micro + 1) <= peak()
    assert peak(workers=workers + 1) <= peak()
    most = peak_mib(made, one, 0)
    assert peak_mib(made, replace(one, batch_size=2 * batch), 0) >= most
    assert peak_mib(made, replace(one, micro_batches=2 * micro), 0) <= most


@settings(max_examples=200)
@given(batch=some.integers(8, 200), micro=counts, replicas=counts, stage=some.integers(0, 2))
def test_1f1b_never_takes_more_than_fill_drain(
    batch: int, micro: int, replicas: int, stage: int
) -> None:
    made = profile(LAYERS)
    drained = asked(
        workers=3 * replicas,
        replicas=replicas,
        cut=(1, 2),
        batch_size=batch,
        micro_batches=micro,
    )
    peak = peak_mib(made, drained, stage)
    assert peak_mib(made, replace(drained, schedule="1f1b"), stage) <= peak
    fewer = replace(drained, workers=3 * (replicas + 1), replicas=replicas + 1)
    before, after = (holding(made, one, stage).activations for one in (drained, fewer))
    assert after <= before


def test_what_a_protocol_exchanges_and_holds_is_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that averages parameters alone, and holds those of the last round and their momentum."""
    parts = frozenset({Part.PARAMETERS, Part.BUFFERS})
    outer = ProtocolDescription(
        name="outer",
        exchanges=(ExchangeDescription(parts=parts),),
        holds=(Part.PARAMETERS, Part.PARAMETERS),
    )
    known = Registry("protocol", "none", {"outer": outer, "local-sgd": PROTOCOLS["local-sgd"]})
    monkeypatch.setattr(configuration, "PROTOCOLS", known)
    local, other = (held(workers=2, sync=name, k=4) for name in ("local-sgd", "outer"))
    # Of 7 MiB of parameters; the optimizer's state is as large, and stays with its worker, as do
    # the three flags that say who has some.
    assert other.average == local.average - local.state - 4 * 3 + 2 * 7 * MIB
    far = profile(LAYERS, channel=FAR)
    ways = (
        Configuration(workers=2, batch_size=8, memory_mib=(1024,), sync=name, k=4)
        for name in ("local-sgd", "outer")
    )
    moved = [predict(far, way, Catalogue().platform("aws-lambda")).step_volume for way in ways]
    # Two workers put the buffer once each, in four steps.
    assert moved[0].bytes_up - moved[1].bytes_up == pytest.approx(2 * local.state / 4, rel=1e-3)
