"""What is to happen in a soak: a pure function of the seed and the number of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

import numpy as np

from dayfly.life.faults import Fault
from dayfly.specs.protocols import PROTOCOLS
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.soak import job

Setting = str | int | float | None

#: Virtual workers of runs whose size changes; each has two samples of a batch at least.
LEAVES = 8
#: Settings to try each protocol with. One that does not promise the same bits has none.
VARIANTS: Mapping[str, tuple[Mapping[str, Setting], ...]] = MappingProxyType(
    {
        "bsp": ({}, {"virtual_workers": LEAVES}),
        "local-sgd": ({"k": 2}, {"k": "epoch"}),
        "hap": ({"aggregators": 1},),
    }
)
#: Mean time between kills from outside.
_GAP_S = 0.6
#: Where the coordinator dies, each in some step. Only "step" is passed in every step: there it dies
#: for certain; checkpoints are made and trimmed in steps that are a matter of time.
_AT_COORDINATOR = ("step", "again", "commit", "committed", "trim")
#: Channels of a plan, which is told where they are when it is carried out.
FILES, REDIS = "files", "redis"
#: Mean time between requests for another plan, and between outages of Redis; how long these last.
_ASK_GAP_S, _AWAY_GAP_S, _AWAY_S = 2.5, 6.0, (0.3, 2.0)
#: Memory that is asked for.
_MEMORY_MIB = (600, 700)


@dataclass(frozen=True, slots=True)
class Size:
    """Of a run: how long it lasts at least, when nothing kills; how many kills from outside are
    planned, after which it is let be; how many deaths of workers at fault points; how many
    requests for another plan, and outages of Redis."""

    least_s: tuple[float, float]
    kills: int
    injected: int
    asks: int
    outages: int


FULL, SHORT = Size((12, 24), 80, 12, 20, 6), Size((8, 10), 12, 6, 4, 2)
#: A lifetime: long enough for a start and a step where the machine holds a function up.
_LIFETIME_S = (3, 6)


@dataclass(frozen=True, slots=True)
class Kill:
    """So long after the one before it, kill -9 of `victim`: worker-0, ..., zygote or coordinator.

    Or `stop`: TERM to the coordinator, which is no death.
    """

    gap_s: float
    victim: str


@dataclass(frozen=True, slots=True)
class Ask:
    """So long after the one before it, a request for another plan with these settings."""

    gap_s: float
    changes: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Outage:
    """So long after the one before it, Redis answers nobody for `away_s`."""

    gap_s: float
    away_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run of a soak. `number` it is; least_s: how long it lasts at least."""

    number: int
    workers: int
    settings: Mapping[str, Setting]
    least_s: float
    faults: tuple[Fault, ...]
    kills: tuple[Kill, ...]
    asks: tuple[Ask, ...]
    outages: tuple[Outage, ...]

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"run {self.number}: {self.workers} workers, {settings}"


def variants() -> list[dict[str, Setting]]:
    """Settings of all protocols that there are."""
    return [
        {"sync": protocol, **settings}
        for protocol in PROTOCOLS
        for settings in VARIANTS.get(protocol, ())
    ]


def plans(seed: int, size: Size = FULL) -> Iterator[Plan]:
    """The runs of a soak, without end."""
    return (plan(seed, number, size) for number in count())


def plan(seed: int, number: int, size: Size = FULL) -> Plan:
    """The run of that number. Protocols and numbers of workers take turns, in all pairs."""
    random = np.random.default_rng([seed, number])
    protocols = variants()
    turn = number // len(protocols) + number % len(protocols)
    workers = 2 + turn % 3
    least_s = round(float(random.uniform(*size.least_s)), 1)
    shortest_s, longest_s = _LIFETIME_S
    settings: dict[str, Setting] = {
        **protocols[number % len(protocols)],
        "lifetime_s": round(float(random.uniform(shortest_s, min(longest_s, least_s / 2))), 2),
        "checkpoint_every_s": float(random.choice([0.5, 2.0, 60.0])),
        "memory_mib": 600 if random.random() < 0.25 else None,
        "log_budget_mib": 1,
        "channel": REDIS if turn % 2 else FILES,
    }
    return Plan(
        number=number,
        workers=workers,
        settings=settings,
        least_s=least_s,
        faults=_faults(random, workers, size.injected),
        kills=_kills(random, workers, size.kills),
        asks=_asks(random, size.asks, settings["channel"], sizes="virtual_workers" in settings),
        outages=_outages(random, size.outages),
    )


def _faults(random: np.random.Generator, workers: int, number: int) -> tuple[Fault, ...]:
    """Different places of different steps; every fourth death takes the zygote with it."""
    steps = random.choice(job.STEPS, number, replace=False)
    faults = []
    for turn, step in enumerate(steps.tolist()):
        places = small.IN_EVERY_STEP + small.IN_LOCAL_STEPS + small.AT_CHECKPOINTS
        if (step + 1) % job.STEPS_AN_EPOCH == 0:
            places += small.AT_EPOCH_ENDS
        what = "zygote" if turn % 4 == 3 else "self"
        worker = int(random.integers(workers))
        faults.append(Fault(worker, step, str(random.choice(places)), what))
    steps = random.choice(job.STEPS, len(_AT_COORDINATOR), replace=False)
    faults += map(Fault, [COORDINATOR] * len(steps), steps.tolist(), _AT_COORDINATOR)
    return tuple(faults)


def _asks(
    random: np.random.Generator, number: int, channel: Setting, *, sizes: bool
) -> tuple[Ask, ...]:
    """By turns a move to the other channel and other memory; before each another size, if it may
    change. So a run that comes to four of them has all."""
    asks: list[Ask] = []
    for turn, gap_s in enumerate(random.exponential(_ASK_GAP_S, number).round(3).tolist()):
        other = turn // 2 if sizes else turn
        changes: dict[str, Setting]
        if sizes and turn % 2 == 0:
            changes = {"workers": int(random.integers(1, LEAVES + 1))}
        elif other % 2 == 0:
            channel = FILES if channel == REDIS else REDIS
            changes = {"channel": channel}
        else:
            changes = {"memory_mib": int(random.choice(_MEMORY_MIB))}
        asks.append(Ask(gap_s, changes))
    return tuple(asks)


def _outages(random: np.random.Generator, number: int) -> tuple[Outage, ...]:
    gaps_s = random.exponential(_AWAY_GAP_S, number).round(3).tolist()
    return tuple(map(Outage, gaps_s, random.uniform(*_AWAY_S, number).round(3).tolist()))


def _kills(random: np.random.Generator, workers: int, number: int) -> tuple[Kill, ...]:
    victims = [*(f"worker-{rank}" for rank in range(workers)), "zygote", "coordinator", "stop"]
    weights = np.array([16 / workers] * workers + [1.5, 0.7, 0.3])
    drawn = random.choice(victims, number, p=weights / weights.sum()).tolist()
    gaps_s = random.exponential(_GAP_S, number).round(3).tolist()
    return tuple(Kill(gap_s, victim) for gap_s, victim in zip(gaps_s, drawn, strict=True))
