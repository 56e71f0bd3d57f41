"""From what functions measured to the figures of a profile. Pure.

    CPU seconds of a part / the share of the CPU that the function really gets = its wall seconds

Parts are timed by themselves, many times and apart; rounds of a real worker tell what computing and
applying take among all else, and parts are scaled by that. What a step takes beside its parts is
what rounds take, less computing and applying.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from statistics import NormalDist, median
from typing import Any

from dayfly.planning.fits import fit_affine, fit_fasdl, fit_transfer
from dayfly.planning.profile import Affine, Figure, Fit, Pass, SizeProfile, Transfer
from dayfly.runs.profiling.between_stages import PASSED_BYTES
from dayfly.runs.profiling.measurements import Json, Measured
from dayfly.runs.profiling.neighbours import Slot
from dayfly.runs.profiling.passes import MICRO_BATCHES, Round
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.streams import ServingThread
from dayfly.wire.virtual import Link, finish_s, simulate

#: size of a message, wall seconds, CPU seconds
Row = tuple[int, float, float]

#: A message that takes more of the CPU time that a function may use at once may have been held up.
_FREE_PART = 0.8
#: What a pass of a stage takes beside its layers, at most: it is the interpreter's. Of passes that
#: take seconds, what seems to be more is how far they differ.
_MOST_BESIDE_S = 2e-3
#: Times that tell a spread; how many standard deviations two of a normal distribution lie apart, in
#: the median.
_MANY, _APART = 8, math.sqrt(2) * NormalDist().inv_cdf(0.75)


def size_profile(measured: Measured) -> SizeProfile:
    """The profile of functions of this size."""
    passes = tuple(_pass(measured, samples) for samples in sorted(measured.samples))
    count = len(passes[0].forward)
    applied = zip(*measured.life["parts"]["apply"], strict=True)
    apply, nothing = (_figure(times, measured.apply_pace) for times in applied)
    up, down, sum_cpu_s = transfers(measured)
    crowd, crowd_cores = contention(measured)
    late_s = measured.life["first"][0] - median(one.wall_s for one in measured.rounds)
    start_s = measured.life["start_s"] + max(0.0, late_s)
    return SizeProfile(
        memory_mib=measured.memory_mib,
        cpu_cores=measured.cpu_cores,
        cpu_period_s=measured.period_s,
        forward=tuple(_line((p.samples, p.forward[n].value) for p in passes) for n in range(count)),
        backward=tuple(
            _line((p.samples, p.backward[n].value) for p in passes) for n in range(count)
        ),
        data=_line((p.samples, p.data.value) for p in passes),
        apply=Affine(
            nothing.value, max(0.0, apply.value - nothing.value) / max(1, measured.trained_bytes)
        ),
        step_s=_beside(measured),
        reduce_s_per_byte=median(measured.lead["reduce"]) / measured.share,
        up=up,
        down=down,
        sum_cpu_s=sum_cpu_s,
        pass_cpu_s=_pass_cpu_s(measured),
        stage_message_cpu_s=stage_message_cpu_s(measured, up, down),
        beta=_beta(measured),
        crowd=crowd,
        crowd_cores=crowd_cores,
        jitter=pass_jitter(measured),
        init_s=Figure.of(measured.inits_s),
        start_s=Figure.of([start_s]),
        end_s=Figure.of([max(0.0, measured.run_s - measured.last_s)]),
        base_mib=Figure.of(measured.bases_mib),
        passes=passes,
    )


def step_points(profile: SizeProfile, trained_bytes: int) -> list[tuple[float, float]]:
    """Seconds of a step of one worker, by samples: for FasDL's fit."""
    fixed = profile.apply(trained_bytes) + profile.step_s.value
    return [(p.samples, p.compute_s + p.data.value + fixed) for p in profile.passes]


def fit_of(sizes: Sequence[SizeProfile], trained_bytes: int) -> Fit | None:
    """FasDL's fit of the steps of one worker; sizes whose memory is not limited do not count."""
    points = [
        (samples, float(size.memory_mib), seconds)
        for size in sizes
        if size.memory_mib is not None
        for samples, seconds in step_points(size, trained_bytes)
    ]
    return fit_fasdl(points)


def _line(points: Any) -> Affine:
    return fit_affine(points)


def _pass(measured: Measured, samples: int) -> Pass:
    """Layers' times, scaled so that they add up to what passes take without hooks."""
    parts, pace = measured.life["parts"], measured.pace
    plain, split = parts[f"plain {samples}"], parts[f"split {samples}"]
    reading = [fetch * _fetched(measured) + batch for fetch, batch in parts[f"read {samples}"]]
    sides = []
    for side in range(2):
        layers = list(zip(*(one[side] for one in split), strict=True))
        whole = median(one[side] for one in plain)
        summed = sum(median(times) for times in layers)
        scale = whole / summed if summed else 1.0
        sides.append(tuple(_figure(times, pace / scale) for times in layers))
    return Pass(
        samples=samples,
        forward=sides[0],
        backward=sides[1],
        data=_figure(reading, pace),
        held_mib=measured.life["held_mib"][str(samples)],
    )


def _pass_cpu_s(measured: Measured) -> float:
    """What passes of a stage take beside its layers, and among messages more than alone; 0 if the
    model cannot be cut."""
    parts = measured.life["parts"]
    staged = parts.get("staged")
    if not staged:
        return 0.0
    plain: float = median(
        forward + backward for forward, backward, _ in parts[f"plain {measured.samples[-1]}"]
    )
    beside_s = (float(median(staged)) / MICRO_BATCHES - plain) / 2
    among_s = median([among - alone for alone, among, _ in _line_steps(measured)] or [0.0])
    # Those were passes forward and backward.
    return min(max(0.0, beside_s) + max(0.0, among_s / 2), _MOST_BESIDE_S)


def stage_message_cpu_s(measured: Measured, up: Transfer, down: Transfer) -> float | None:
    """CPU seconds of a message between stages beside `up.cpu_s` or `down.cpu_s` and its bytes';
    None if the model cannot be cut."""
    each = [message_s for _, _, message_s in _line_steps(measured)]
    if not each:
        return None
    ways = (up, down)
    known_s = sum(way.cpu_s + way.cpu_s_per_byte * PASSED_BYTES for way in ways) / len(ways)
    return max(0.0, median(each) - known_s)


def _line_steps(measured: Measured) -> list[tuple[float, float, float]]:
    """Of both ends' steps of a pipeline, as `exchange` measures them."""
    return [tuple(one) for end in (measured.lead, measured.follow) for one in end.get("line", ())]


def _fetched(measured: Measured) -> float:
    """How much of fetching is the training thread's loss: it is done beside, if there is a core."""
    return 1.0 if measured.cpu_cores is not None and measured.cpu_cores < 2 else 0.0


def _beside(measured: Measured) -> Figure:
    """What rounds take beside passes, data and the optimizer's step."""
    if not measured.limited:
        return Figure.of(
            [
                max(0.0, one.wall_s - _parts_s(measured, one) / measured.share)
                for one in measured.rounds
            ]
        )
    # Threads beside, such as those of buckets, use up the same share. If samples are fetched in
    # each step, that is among what they do, and counted as data.
    threads = median(one.process_s - one.thread_s for one in measured.rounds)
    if measured.life["block_steps"] == 1:
        reading = measured.life["parts"][f"read {measured.samples[0]}"]
        threads -= median(fetch for fetch, _ in reading)
    more_s = max(0.0, threads)
    beside_s = [max(0.0, one.thread_s - _parts_s(measured, one)) for one in measured.rounds]
    return Figure.of([(one + more_s) / measured.share for one in beside_s])


def _parts_s(measured: Measured, one: Round) -> float:
    """CPU seconds of passes, reading and applying in a round."""
    return max(0.0, one.compute_s - measured.around_s) + one.apply_s


def _beta(measured: Measured) -> Figure:
    """A pass beside messages, over one alone.

    Of a function with a part of a core by its CPU time, as what messages take of that is theirs.
    """
    side = 1 if measured.limited else 0
    pairs = measured.lead["beside"]
    return Figure.of([pair[2 + side] / pair[side] for pair in pairs if pair[side] > 0] or [1.0])


def contention(measured: Measured) -> tuple[Figure, float]:
    """Passes beside neighbours over passes alone, by their CPU time, at least 1; and the cores that
    the neighbours had. Of none: 1 and 0."""
    quiet, busy = (measured.life["passing"][slot.value] for slot in (Slot.QUIET, Slot.BUSY))
    if not (measured.neighbours and quiet and busy):
        return Figure.given(1.0), 0.0
    alone_s = median(quiet)
    found = Figure.of([max(1.0, one / alone_s) for one in busy])
    each = 1.0 if measured.cpu_cores is None else min(1.0, measured.cpu_cores)
    return found, measured.neighbours * each


def pass_jitter(measured: Measured) -> float:
    """Standard deviation of what a pass takes, over its median: that of passes beside neighbours,
    as those of several workers are; if there are few of them, that of real steps.

    By the differences of one and the next (J. von Neumann, The mean square successive difference,
    1941), as a machine that becomes slower does so for all workers; and by their median, as a few
    that were disturbed say nothing of the others.
    """
    busy = measured.life["passing"][Slot.BUSY.value]
    steps = [one.compute_s for one in measured.rounds]
    times = busy if measured.neighbours and len(busy) >= _MANY else steps
    if len(times) < _MANY:
        return 0.0
    middle, apart = median(times), median(abs(after - one) for one, after in pairwise(times))
    return apart / _APART / middle if middle else 0.0


def pass_spread(measured: Measured) -> float:
    """Distance of the quartiles of passes over their median, of the most samples; 0: there are too
    few to tell."""
    plain = measured.life["parts"][f"plain {measured.samples[0]}"]
    if len(plain) < _MANY:
        return 0.0
    passes = Figure.of([forward + backward for forward, backward, _ in plain])
    return (passes.high - passes.low) / passes.value if passes.value else 0.0


def store_of(served: Sequence[tuple[int, float]]) -> ServingThread | None:
    """What messages take of their store's thread, by sizes and CPU seconds of some; None: of none.

    It is asked itself, so how a function is limited does not matter.
    """
    if not served:
        return None
    by_size: dict[int, list[float]] = defaultdict(list)
    for size, cpu_s in served:
        by_size[size].append(cpu_s)
    line = fit_affine((size, median(found)) for size, found in by_size.items())
    return ServingThread(cpu_s=line.fixed, cpu_s_per_byte=line.each)


def transfers(measured: Measured) -> tuple[Transfer, Transfer, float]:
    """Up and down, with what the engine's lanes add to each message, in CPU time and in latency;
    and CPU seconds of a sum beside its messages."""
    up, down = (
        _transfer(end["rows"], measured.at_once_s) for end in (measured.lead, measured.follow)
    )
    short = [end["sums"]["short"] for end in (measured.lead, measured.follow)]
    puts, gets = _both(short, "puts"), _both(short, "gets")
    cpu_s = sum(median(one["cpu_s"]) for one in short)
    if "long" in measured.lead["sums"]:
        message_cpu_s, sum_cpu_s = message_and_sum_s(measured, up, down)
        more_up_s, more_down_s = message_cpu_s - up.cpu_s, message_cpu_s - down.cpu_s
    else:
        sum_cpu_s = 0.0
        more_s = max(0.0, cpu_s - puts * up.cpu_s - gets * down.cpu_s) / max(1, puts + gets)
        more_up_s = more_down_s = more_s
    ranks = [
        measured.collective.schedule(rank, 2, measured.few, frozenset(), chunk=measured.few)
        for rank in range(2)
    ]
    link = Link(
        up_bytes_per_s=up.peak_bytes_per_s.value,
        down_bytes_per_s=down.peak_bytes_per_s.value,
        latency_s=(up.message_s(1) + down.message_s(1)) / 2,
        in_flight=measured.in_flight,
    )
    links = [link] * len(ranks)
    if measured.collective.server:  # it has no line of its own to wait for
        ranks.append(serve(2, measured.few, chunk=measured.few))
        endless = replace(link, up_bytes_per_s=math.inf, down_bytes_per_s=math.inf, latency_s=0.0)
        links.append(endless)
    taken_s = median(short[0]["wall_s"]) - sum_cpu_s
    slower = max(1.0, taken_s / max(1e-9, finish_s(simulate(ranks, links))))
    return _laned(up, slower, more_up_s), _laned(down, slower, more_down_s), sum_cpu_s


def message_and_sum_s(measured: Measured, up: Transfer, down: Transfer) -> tuple[float, float]:
    """Returns CPU seconds of a message with its lane, and of a member's sum beside its messages.

        sums' CPU time - what their bytes take = messages * one of them + sums * one by itself

    Through two points, the short sum and the long ones, of both ends together. Neither is below 0.
    """
    reduce_s = median(measured.lead["reduce"])
    points = []
    for kind in ("short", "long"):
        both = [end["sums"][kind] for end in (measured.lead, measured.follow)]
        of_bytes_s = (
            _both(both, "put_bytes") * up.cpu_s_per_byte
            + _both(both, "got_bytes") * down.cpu_s_per_byte
            + _both(both, "added_bytes") * reduce_s
        )
        cpu_s = sum(median(one["cpu_s"]) for one in both)
        messages = _both(both, "puts") + _both(both, "gets")
        points.append((_both(both, "sums"), messages, cpu_s - of_bytes_s))
    (short_sums, few, short_s), (long_sums, many, long_s) = points  # solved for both unknowns
    ratio = long_sums / short_sums
    message_s = max(0.0, (long_s - ratio * short_s) / (many - ratio * few))
    return message_s, max(0.0, short_s - few * message_s) / short_sums


def _both(sums: Sequence[Json], what: str) -> int:
    return sum(one[what] for one in sums)


def _laned(way: Transfer, slower: float, more_cpu_s: float) -> Transfer:
    return Transfer(
        latency_s=way.latency_s.times(slower),
        peak_bytes_per_s=way.peak_bytes_per_s,
        saturation_per_byte=way.saturation_per_byte,
        cpu_s=way.cpu_s + more_cpu_s,
        cpu_s_per_byte=way.cpu_s_per_byte,
    )


def _transfer(rows: Sequence[Row], at_once_s: float | None) -> Transfer:
    """One way, by the medians of each size; its spread is that of fits of one row a size."""
    by_size: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for size, wall_s, cpu_s in rows:
        by_size[size].append((wall_s, cpu_s))
    middle = {
        size: tuple(median(side) for side in zip(*found, strict=True))
        for size, found in by_size.items()
    }
    free = [
        size
        for number, size in enumerate(sorted(middle))
        if number < 2 or at_once_s is None or middle[size][1] < _FREE_PART * at_once_s
    ]
    latency_s, peak, saturation = fit_transfer([(size, middle[size][0]) for size in free])
    turns = zip_longest(*(by_size[size] for size in free))
    each = [
        fit_transfer([(size, one[0]) for size, one in zip(free, turn, strict=True) if one])
        for turn in turns
        if sum(one is not None for one in turn) > 1
    ]
    cpu = fit_affine((size, middle[size][1]) for size in free)
    return Transfer(
        latency_s=_around(latency_s, [one[0] for one in each]),
        peak_bytes_per_s=_around(peak, [one[1] for one in each]),
        saturation_per_byte=saturation,
        cpu_s=cpu.fixed,
        cpu_s_per_byte=cpu.each,
    )


def _around(value: float, each: Sequence[float]) -> Figure:
    """A figure that was fitted to all, with the spread of those that were fitted to parts."""
    spread = Figure.of([*each, value])
    return Figure(value, min(value, spread.low), max(value, spread.high), len(each))


def _figure(cpu_s: Sequence[float], share: float) -> Figure:
    return Figure.of(cpu_s).times(1 / share)
