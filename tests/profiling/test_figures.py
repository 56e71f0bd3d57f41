"""From measurements to figures: what was put in comes out."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dayfly.runs.profiling.between_stages import PASSED_BYTES
from dayfly.runs.profiling.figures import size_profile, step_points
from dayfly.runs.profiling.measurements import Measured
from dayfly.runs.profiling.passes import Marks
from dayfly.wire.collectives import collective

#: CPU seconds of two layers, forward and backward: fixed, and of each sample.
FORWARD = [(1e-4, 2e-5), (3e-4, 1e-5)]
BACKWARD = [(2e-4, 4e-5), (1e-4, 3e-5)]
SAMPLES = (32, 16, 8, 4)
SHARE = 0.25
APPLY, NOTHING, READ, AROUND, REST = 5e-3, 1e-3, 1e-5, 2e-4, 5e-4
#: Of the training thread in a step of 32 samples: computing, and all.
COMPUTE = sum(fixed + each * 32 for lines in (FORWARD, BACKWARD) for fixed, each in lines) + (
    READ * 32 + AROUND
)
STEP = COMPUTE + APPLY + REST


def _at(lines: list[tuple[float, float]], samples: int) -> list[float]:
    return [fixed + each * samples for fixed, each in lines]


def _life() -> dict[str, Any]:
    parts: dict[str, Any] = {"share": [(SHARE, 1.0)] * 3, "apply": [(APPLY, NOTHING)] * 3}
    for samples in SAMPLES:
        forward, backward = _at(FORWARD, samples), _at(BACKWARD, samples)
        parts[f"plain {samples}"] = [(sum(forward), sum(backward), AROUND)] * 3
        # Hooks take time: a tenth, here.
        slower = [1.1 * one for one in forward], [1.1 * one for one in backward]
        parts[f"split {samples}"] = [slower] * 3
        parts[f"read {samples}"] = [(READ * samples, READ * samples)] * 3
    return {
        "start_s": 2.0,
        "first": (1.0, STEP, STEP, COMPUTE, APPLY),
        "rounds": [(STEP / SHARE, STEP, STEP, COMPUTE, APPLY)] * 5,
        "block_steps": 32,
        "parts": parts,
        "passing": {"quiet": [0.010, 0.012, 0.011], "busy": [0.0121, 0.0132, 0.0143]},
        "held_mib": {str(samples): 3.0 + 0.5 * samples for samples in SAMPLES},
    }


def _rows(latency_s: float, rate: float) -> list[tuple[int, float, float]]:
    return [(s, latency_s + s / rate, 1e-4 + 1e-10 * s) for s in (1024, 2**16, 2**20, 2**22)] * 3


def measured(**changes: Any) -> Measured:
    # Two puts and two gets, one after another: 10 ms latency each, and lanes add 1 ms to each.
    few = {"sums": 1, "puts": 2, "gets": 2, "put_bytes": 64, "got_bytes": 64, "added_bytes": 32}
    sums = {"short": {"wall_s": [0.044] * 5, "cpu_s": [4e-4 + 8e-4] * 5, **few}}
    lead = {
        "rows": _rows(0.01, 4e7),
        "sums": sums,
        "reduce": [1e-10] * 3,
        "beside": [(0.01, 0.0025, 0.02, 0.003)] * 3,
    }
    given: dict[str, Any] = {
        "memory_mib": 512,
        "cpu_cores": SHARE,
        "period_s": 0.02,
        "at_once_s": 0.005,
        "samples": SAMPLES,
        "step_samples": 32,
        "trained_bytes": 4000,
        "inits_s": (0.1, 0.2, 0.3),
        "bases_mib": (290.0, 291.0, 292.0),
        "life": _life(),
        "run_s": 10.0,
        "last_s": 9.0,
        "lead": lead,
        "follow": {"rows": _rows(0.01, 8e7), "sums": sums},
        "collective": collective("scatter-reduce", None, 2),
        "few": 16,
        "in_flight": 8,
    }
    return Measured(**{**given, **changes})


def test_parts_of_a_step() -> None:
    profile = size_profile(measured())
    for lines, found in ((FORWARD, profile.forward), (BACKWARD, profile.backward)):
        for (fixed, each), line in zip(lines, found, strict=True):
            assert line.fixed == pytest.approx(fixed / SHARE)
            assert line.each == pytest.approx(each / SHARE)
    # Fetching takes of the same share as computing.
    assert profile.data(8) == pytest.approx(2 * READ * 8 / SHARE)
    assert profile.apply(0) == pytest.approx(NOTHING / SHARE)
    assert profile.apply(4000) == pytest.approx(APPLY / SHARE)
    assert profile.step_s.value == pytest.approx((AROUND + REST) / SHARE)
    assert profile.reduce_s_per_byte == pytest.approx(1e-10 / SHARE)


def test_what_a_pass_holds_is_what_its_worker_saw() -> None:
    found = {one.samples: one.held_mib for one in size_profile(measured()).passes}
    assert found == {samples: 3.0 + 0.5 * samples for samples in SAMPLES}
    unseen = {**_life(), "held_mib": dict.fromkeys(map(str, SAMPLES))}
    assert all(one.held_mib is None for one in size_profile(measured(life=unseen)).passes)


def test_what_passes_of_a_stage_take_beside_layers() -> None:
    assert size_profile(measured()).pass_cpu_s == 0, "of a model that cannot be cut"
    life = _life()
    least = sum(_at(FORWARD, 4)) + sum(_at(BACKWARD, 4))
    life["parts"]["staged"] = [4 * (least + 2 * beside) for beside in (3e-4, 1e-4, 5e-4)]
    assert size_profile(measured(life=life)).pass_cpu_s == pytest.approx(3e-4)
    for times, found in ((3.9, 0), (400, 2e-3)):
        life["parts"]["staged"] = [times * least] * 3
        assert size_profile(measured(life=life)).pass_cpu_s == found


def test_a_step_of_a_real_worker_is_the_sum_of_its_parts() -> None:
    profile = size_profile(measured())
    samples, seconds = step_points(profile, 4000)[-1]
    assert samples == 32
    assert seconds == pytest.approx((STEP + READ * 32) / SHARE)  # and fetching beside


def test_parts_and_the_rest_are_the_median_round() -> None:
    life = _life()
    life["rounds"] = [
        (1.05 * more / SHARE, more, 1.05 * more, COMPUTE, APPLY)
        for more in (STEP * factor for factor in (1.0, 1.3, 1.1, 1.02, 1.2))
    ]
    profile = size_profile(measured(life=life))
    fetching_s = READ * 32 / SHARE  # beside
    threads_s = 0.05 * 1.1 * STEP / SHARE
    assert step_points(profile, 4000)[-1][1] == pytest.approx(
        1.1 * STEP / SHARE + threads_s + fetching_s
    )


@pytest.mark.parametrize("slower", [0.8, 1.25])
def test_parts_take_what_they_take_in_real_steps(slower: float) -> None:
    """All of computing, the flat buffer included; applying is half as much slower."""
    life = _life()
    compute_s, apply_s = slower * COMPUTE, (1 + slower) / 2 * APPLY
    step_s = compute_s + apply_s + REST
    life["rounds"] = [(step_s / SHARE, step_s, step_s, compute_s, apply_s)] * 5
    profile = size_profile(measured(life=life))
    assert profile.forward[0](8) == pytest.approx(slower * _at(FORWARD, 8)[0] / SHARE)
    assert profile.data(8) == pytest.approx(slower * 2 * READ * 8 / SHARE)
    assert profile.apply(4000) == pytest.approx((1 + slower) / 2 * APPLY / SHARE)
    assert profile.step_s.value == pytest.approx((slower * AROUND + REST) / SHARE)


def test_a_round_that_was_disturbed_makes_no_part_more_than_twice_as_fast() -> None:
    life = _life()
    life["rounds"] = [(STEP / SHARE, STEP, STEP, 0.0, 0.0)] * 5
    profile = size_profile(measured(life=life))
    assert profile.forward[0](8) == pytest.approx(0.5 * _at(FORWARD, 8)[0] / SHARE)
    assert profile.apply(4000) == pytest.approx(0.5 * APPLY / SHARE)


def test_on_a_whole_core_fetching_is_done_beside() -> None:
    life = _life()
    life["parts"]["share"] = [(1.0, 1.0)]
    life["rounds"] = [(STEP + 1e-3, STEP, STEP, COMPUTE, APPLY)] * 5
    profile = size_profile(measured(cpu_cores=None, at_once_s=None, life=life))
    assert profile.data(8) == pytest.approx(READ * 8)
    assert profile.step_s.value == pytest.approx(AROUND + REST + 1e-3)  # waits count as well
    assert profile.beta.value == pytest.approx(2.0)


def test_start_and_end() -> None:
    profile = size_profile(measured())
    (wall_s, *_) = measured().life["rounds"][0]
    assert profile.start_s.value == pytest.approx(2.0 + 1.0 - wall_s)  # the first step is slower
    assert profile.end_s.value == pytest.approx(1.0)
    assert profile.init_s.value == 0.2
    assert profile.base_mib.value == 291.0


def test_messages() -> None:
    profile = size_profile(measured())
    assert profile.up.latency_s.value == pytest.approx(0.011, rel=1e-3)
    assert profile.up.peak_bytes_per_s.value == pytest.approx(4e7, rel=1e-3)
    assert profile.down.peak_bytes_per_s.value == pytest.approx(8e7, rel=1e-3)
    # A put's or a get's own, and what the engine's lanes take of it.
    assert profile.up.cpu_s == pytest.approx(1e-4 + 2e-4, rel=1e-3)
    assert profile.up.cpu_s_per_byte == pytest.approx(1e-10, rel=1e-3)


def _end(sums: dict[str, dict[str, Any]], rate: float) -> dict[str, Any]:
    return {**measured().lead, "rows": _rows(0.01, rate), "sums": sums}


def test_a_sum_of_many_messages_tells_apart_what_is_each_ones() -> None:
    """A message takes 0.3 ms, a byte 0.1 ns each way and to add, and a sum 2 ms by itself; the long
    ones are three at once."""
    few = {"sums": 1, "puts": 2, "gets": 2, "put_bytes": 64, "got_bytes": 64, "added_bytes": 32}
    many = {
        "sums": 3,
        "puts": 64,
        "gets": 64,
        "put_bytes": 4 * 10**6,
        "got_bytes": 4 * 10**6,
        "added_bytes": 2 * 10**6,
    }
    sums = {
        kind: {"wall_s": [0.044] * 3, "cpu_s": [_cpu_s(one)] * 3, **one}
        for kind, one in (("short", few), ("long", many))
    }
    profile = size_profile(measured(lead=_end(sums, 4e7), follow=_end(sums, 8e7)))
    assert profile.up.cpu_s == pytest.approx(3e-4, rel=1e-3)
    assert profile.down.cpu_s == pytest.approx(3e-4, rel=1e-3)
    assert profile.sum_cpu_s == pytest.approx(2e-3, rel=1e-3)
    # Four latencies of 10 ms and what the sum takes by itself are 42 of the 44 ms.
    assert profile.up.latency_s.value == pytest.approx(0.0105, rel=1e-3)


def _cpu_s(one: dict[str, int]) -> float:
    messages, moved = one["puts"] + one["gets"], one["put_bytes"] + one["got_bytes"]
    return 2e-3 * one["sums"] + 3e-4 * messages + 1e-10 * (moved + one["added_bytes"])


def test_a_sum_of_few_messages_charges_all_to_them() -> None:
    profile = size_profile(measured())
    assert profile.sum_cpu_s == 0


def test_beside_neighbours() -> None:
    """11 ms alone; five neighbours of a quarter of a core each."""
    profile = size_profile(measured(neighbours=5))
    assert profile.crowd.value == pytest.approx(1.2)
    assert [profile.crowd.low, profile.crowd.high] == pytest.approx([1.1, 1.3])
    assert profile.crowd_cores == 1.25
    alone = size_profile(measured())
    assert (alone.crowd.value, alone.crowd_cores) == (1.0, 0.0)


def test_neighbours_make_nobody_faster() -> None:
    life = _life()
    life["passing"]["busy"] = [0.009, 0.010, 0.0121]
    crowd = size_profile(measured(life=life, neighbours=1)).crowd
    assert [crowd.low, crowd.value, crowd.high] == pytest.approx([1.0, 1.0, 1.1])


def test_the_spread_of_passes_is_that_beside_neighbours() -> None:
    """The standard deviation, of a machine that becomes slower meanwhile, a wild pass aside."""
    draw = Random(0)
    busy = [draw.gauss(0.1, 0.005) + 0.00001 * n for n in range(4000)]
    life = _life()
    life["passing"]["busy"] = [*busy, 9.0]
    found = size_profile(measured(life=life, neighbours=3)).jitter
    assert found == pytest.approx(0.005 / 0.12, rel=0.05)


def test_of_few_passes_it_is_that_of_steps_and_of_few_steps_nothing() -> None:
    life = _life()
    steps = [COMPUTE * (1 + 0.01 * (-1) ** n) for n in range(9)]
    life["rounds"] = [(STEP / SHARE, STEP, STEP, one, APPLY) for one in steps]
    found = size_profile(measured(life=life, neighbours=3)).jitter
    # The median is 1.01 of it, and each lies 0.02 from the next.
    assert found == pytest.approx(0.02 / 1.01 / (2**0.5 * 0.6745), rel=1e-3)
    assert size_profile(measured(neighbours=3)).jitter == 0.0


def test_messages_that_a_server_sums() -> None:
    """A put to it and a get from it: two latencies, not four, and 12 ms of lanes in each."""
    profile = size_profile(measured(collective=collective("push-pull", None, 2)))
    assert profile.up.latency_s.value == pytest.approx(0.022, rel=1e-3)


def test_contention_beside_the_cpu_time_of_messages() -> None:
    assert size_profile(measured()).beta.value == pytest.approx(1.2)


def test_marks_of_a_pass() -> None:
    """layers 0 (no weights), 1, 2; |0: 1|1: 2|2 and loss: 3|, and back |2: 4|1: 5|"""
    marks = Marks(start=0.0, begun=[0.5, 1.0, 3.0], loss=6.0, back={2: 6.5, 1: 10.0}, end=15.0)
    assert marks.forward() == [1.0, 2.0, 3.0]
    assert marks.backward() == [0.0, 5.0, 4.0]


def test_no_part_of_a_pass_takes_less_than_nothing() -> None:
    """Clocks that were read in another order than hooks were called."""
    marks = Marks(start=0.0, begun=[0.5, 1.0], loss=2.0, back={0: 4.1}, end=4.0)
    assert min(marks.backward()) == 0.0


def test_messages_and_passes_between_stages() -> None:
    """A pass takes 4 ms among messages and 3.4 alone, each one forward and one backward."""
    known = measured()
    assert size_profile(known).stage_message_cpu_s is None, "of a model that cannot be cut"
    line = [(3.4e-3, 4e-3, 9e-4)] * 3
    found = size_profile(
        replace(known, lead={**known.lead, "line": line}, follow={**known.follow, "line": line})
    )
    each_s = (found.up.cpu_s + found.down.cpu_s) / 2
    each_s += PASSED_BYTES * (found.up.cpu_s_per_byte + found.down.cpu_s_per_byte) / 2
    assert found.stage_message_cpu_s == pytest.approx(9e-4 - each_s)
    staged = {**known.life, "parts": {**known.life["parts"], "staged": [0.0]}}
    more = size_profile(replace(known, life=staged, lead={**known.lead, "line": line}))
    assert more.pass_cpu_s == pytest.approx(3e-4)
