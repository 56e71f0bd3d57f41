"""How sure a prediction is: 90% intervals of a step, of the total time and of dollars. Pure.

    source      relative standard deviation                          of what
    passes      of the median of the passes that were measured       computing
    pace        of the machine while it was profiled                 computing and overhead
    batch       of samples beyond those that were measured           computing
    messages    of the medians of latency and throughput             transfers
    overhead    of the median of what steps take beside passes       overhead
    start       of start and end                                     start-up and end
    model       of the prediction itself, seen over many runs        steps

Sources are taken to be independent, so variances add up. Each counts by what it is of: to first
order a step becomes longer by a part's change times that part of the step's breakdown. Waiting for
others is of what they do, so it is shared out among computing and transfers.

    variance = sum over sources of (share * sd)^2,   interval = value * exp(-+ 1.645 sqrt(variance))

Requests are counted, not measured: their dollars have no error. A profile that was not measured
says nothing of its errors, and has no intervals; but times on a GPU that are derived from what is
published have the interval that `planning.gpus` gives them, for all that takes time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from dayfly.planning.conditions import MOST_SPREAD, Conditions
from dayfly.planning.configuration import Configuration, micro_samples, stage_size
from dayfly.planning.gpus import SPREAD
from dayfly.planning.plan import Interval, Prediction
from dayfly.planning.profile import Figure, Profile, SizeProfile

#: Of ten runs of a configuration, nine are to lie within.
LEVEL = 0.9
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)

#: Standard deviation of what virtual time leaves out, such that with the other sources more than
#: nine of ten steps of the 28 configurations by which it was set lie within their intervals
#: (`dayfly bench planning --steady`, benchmarks/README.md): 26 of 28.
MODEL = 0.025
#: Of closed forms beside virtual time, where a step is too large to go through its messages.
MODEL_CLOSED_FORM = 0.03
#: Without conditions: of a profile of which nobody watched the machine.
_UNWATCHED = 0.05
#: Where the machine was watched, still: the next minute is another one.
_LEAST_PACE = 0.01
#: Each time the samples of a pass are doubled or halved beyond those measured.
_BEYOND = 0.05
#: Of a figure that was measured once.
_ONCE = 0.15
#: Distance of the quartiles of a normal distribution, in standard deviations; and by how much the
#: median of many is less sure than their mean.
_QUARTILES, _MEDIAN = 2 * NormalDist().inv_cdf(0.75), math.sqrt(math.pi / 2)

#: What would tell more of a source.
REMEDIES = {
    "passes": "measure more passes (dayfly profile --repeat 3)",
    "pace": "profile while nothing else runs on the machine (dayfly profile --force)",
    "batch": "profile with as many samples as a worker has (dayfly profile --batch-size)",
    "messages": "measure more messages (dayfly profile --repeat 3)",
    "overhead": "measure more steps (dayfly profile --repeat 3)",
    "start": "train longer: start-up is measured once, and counts less in a long run (--epochs)",
}

#: Sources of uncertainty as people read them.
SOURCES = {
    "passes": "the spread of the measured passes",
    "pace": "the machine's pace, which changed while it was profiled",
    "batch": "a batch size that was not measured",
    "messages": "the spread of the measured messages",
    "overhead": "the spread of what steps take beside their passes",
    "start": "start-up time, which was measured once",
    "model": "what the prediction itself leaves out",
    "published": "that times follow from published figures and nothing was measured",
}


def how_sure(said: Prediction) -> str:
    """Returns the intervals of a prediction in a sentence, and what would make them narrower.

    Args:
        said: the prediction.
    """
    found = said.interval
    if found is None:
        return "unknown, as nothing was measured: run dayfly profile JOB.py, and use its profile"
    (step_low, step_high), (low, high) = found.step_s, found.total_s
    cheapest, dearest = found.cost_usd
    main = next(iter(found.sources), None)
    due = f" Largest source: {SOURCES[main]} ({found.sources[main]:.0%})." if main else ""
    narrower = f" To narrow it: {found.to_measure}." if found.to_measure else ""
    return (
        f"9 of 10 runs should take a step of {1000 * step_low:.4g} to {1000 * step_high:.4g} ms, a "
        f"total time of {low:.4g} to {high:.4g} s, and ${cheapest:.4g} to ${dearest:.4g}."
        f"{due}{narrower}"
    )


def interval_of(
    profile: Profile, c: Configuration, said: Prediction, *, simulated: bool
) -> Interval | None:
    """Returns how sure a prediction is; None if the profile was not measured.

    Args:
        profile: by which it was made.
        c: what was predicted.
        said: without its interval.
        simulated: whether every message was gone through, in place of closed forms.
    """
    if said.step_s <= 0 or said.total_s <= 0:
        return None
    if profile.gpu is not None and profile.gpu.derived:
        return _published(profile.gpu.type, said)
    if profile.how != "measured":
        return None
    training = (said.train_s or 0.0) / said.total_s  # the rest is start-up and end
    sources = _sources(profile, c, said, simulated)
    whole = {name: training * sd for name, sd in sources.items()}
    whole["start"] = (1.0 - training) * _start(profile, c)
    total = math.hypot(*whole.values())
    return Interval(
        level=LEVEL,
        step_s=around(said.step_s, math.hypot(*sources.values())),
        total_s=around(said.total_s, total),
        cost_usd=_shifted(said.cost_usd, _timed_usd(said), total),
        sources=_of_variance(whole),
        to_measure=_to_measure(whole),
    )


def _published(gpu: str, said: Prediction) -> Interval:
    """Of times that follow from what is published of a type of GPU, and of rows beside it."""
    sd = math.log(SPREAD) / _Z
    return Interval(
        level=LEVEL,
        step_s=around(said.step_s, sd),
        total_s=around(said.total_s, sd),
        cost_usd=_shifted(said.cost_usd, _timed_usd(said), sd),
        sources={"published": 1.0},
        to_measure=f"profile the job on a machine with a {gpu} (dayfly profile --gpu {gpu})",
    )


def around(value: float, sd: float) -> tuple[float, float]:
    """Returns the interval of a value with a relative standard deviation."""
    return value * math.exp(-_Z * sd), value * math.exp(_Z * sd)


def _shifted(whole: float, part: float, sd: float) -> tuple[float, float]:
    """Returns the interval of a whole of which one part has a relative deviation."""
    low, high = around(part, sd)
    return whole - part + low, whole - part + high


#: Kinds of dollars that follow from time.
_BY_TIME = ("compute", "initialisation", "store_servers")


def _timed_usd(said: Prediction) -> float:
    """Dollars that follow from time."""
    return sum(usd for kind, usd in said.by_kind.items() if kind in _BY_TIME)


def _sources(
    profile: Profile, c: Configuration, said: Prediction, simulated: bool
) -> dict[str, float]:
    """Relative standard deviations of a step, by what they are due to."""
    parts = {name: said.breakdown.get(name, 0.0) / said.step_s for name in said.breakdown}
    doing = parts.get("compute", 0.0) + parts.get("transfer", 0.0)
    waiting = 1 + parts.get("sync", 0.0) / doing if doing else 1.0
    computing = waiting * parts.get("compute", 0.0)
    transfers = waiting * parts.get("transfer", 0.0)
    overhead = parts.get("overhead", 0.0)
    kinds = range(len(c.kinds))
    sizes = [stage_size(profile, c, kind) for kind in kinds]
    each = [(sizes[kind], micro_samples(profile, c, kind)) for kind in kinds]
    return {
        "passes": computing * max(_passes(*one) for one in each),
        "pace": (computing + overhead) * max(_pace(profile, size.conditions) for size in sizes),
        "batch": computing * max(_batch(*one) for one in each),
        "messages": transfers * max(_messages(size, said, c) for size in sizes),
        "overhead": overhead * max(_of_median(size.step_s) for size in sizes),
        "model": MODEL if simulated else math.hypot(MODEL, MODEL_CLOSED_FORM),
    }


def _of_median(figure: Figure) -> float:
    """Relative standard deviation of a median."""
    if not figure.value or figure.count == 0:  # it was not measured, but said
        return 0.0
    if figure.count == 1:
        return _ONCE
    spread = (figure.high - figure.low) / _QUARTILES / abs(figure.value)
    return _MEDIAN * spread / math.sqrt(figure.count)


def _passes(size: SizeProfile, samples: int) -> float:
    """Of computing, by the passes next to so many samples; layers are measured together, so their
    errors add up."""
    if not size.passes:
        return 0.0
    near = min(size.passes, key=lambda one: abs(math.log(one.samples / max(1, samples))))
    figures = (*near.forward, *near.backward)
    whole_s = sum(one.value for one in figures)
    return sum(one.value * _of_median(one) for one in figures) / whole_s if whole_s else 0.0


def _pace(profile: Profile, found: Conditions | None) -> float:
    """Of computing, by how even the machine was, and by what others took of it."""
    if found is None:
        return _UNWATCHED
    cores = profile.shared_cores
    others = (found.other_cores or 0.0) / cores if math.isfinite(cores) else 0.0
    # Passes that differ so much are of a machine that was sometimes slower, as it may be again.
    uneven = found.spread / _QUARTILES if found.spread > MOST_SPREAD else 0.0
    # A range of three values is 1.7 standard deviations wide.
    pace = max(_LEAST_PACE, (found.pace_change - 1) / 1.7)
    return math.hypot(pace, found.stolen or 0.0, others, uneven)


def _batch(size: SizeProfile, samples: int) -> float:
    """Of computing with fewer or more samples at once than were measured."""
    known = [one.samples for one in size.passes]
    if not known:
        return 0.0
    within = min(max(samples, min(known)), max(known))
    return _BEYOND * abs(math.log2(max(1, samples) / within))


def _messages(size: SizeProfile, said: Prediction, c: Configuration) -> float:
    """Of transfers, by what latency and throughput are of a worker's messages."""
    volume, found = said.step_volume, []
    for way, count, nbytes in (
        (size.up, volume.puts, volume.bytes_up),
        (size.down, volume.gets, volume.bytes_down),
    ):
        late_s = count / c.workers * way.latency_s.value
        busy_s = nbytes / c.workers / way.peak_bytes_per_s.value
        if whole_s := late_s + busy_s:
            late = late_s / whole_s * _of_median(way.latency_s)
            found.append(math.hypot(late, busy_s / whole_s * _of_median(way.peak_bytes_per_s)))
    return max(found, default=0.0)


def _start(profile: Profile, c: Configuration) -> float:
    """Of start-up and end together."""
    found = []
    for kind in range(len(c.kinds)):
        size = stage_size(profile, c, kind)
        figures = (size.init_s, size.start_s, size.end_s)
        whole_s = sum(one.value for one in figures)
        errors = (one.value * _of_median(one) for one in figures)
        found.append(math.hypot(*errors) / whole_s if whole_s else 0.0)
    return max(found)


def _of_variance(sources: Mapping[str, float]) -> dict[str, float]:
    """Shares of the variance, which add up to 1, the greatest first."""
    whole = sum(sd**2 for sd in sources.values()) or 1.0
    ordered = sorted(sources.items(), key=lambda item: -item[1])
    return {name: sd**2 / whole for name, sd in ordered if sd}


def _to_measure(sources: Mapping[str, float]) -> str | None:
    """What to measure better: of the source that most is due to, of those that measuring tells."""
    known = {name: sources[name] for name in REMEDIES if sources.get(name)}
    return REMEDIES[max(known, key=lambda name: known[name])] if known else None
