"""What a choice is among, and how long it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dayfly.errors import RequestError
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.goal import Goal

#: Functions at once, unless said otherwise: as many as virtual time goes through one by one.
MOST_WORKERS = 64
#: Seconds that search and re-ranking take at most, about, unless said otherwise. Searches end by
#: themselves when they are exact, which is mostly within a second.
TIME_LIMIT_S = 10.0
#: Samples of a micro-batch of cut models, about, unless said otherwise: FuncPipe's (section 5.1).
MICRO_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a choice is among, beside the places.

    Args:
        goal: which of the front's plans is chosen.
        workers: most functions at once.
        vcpus: vCPUs that all functions have together at most; None: the machine's cores, if the
            profile is of this one, or any.
        memory_mib: sizes to choose among; empty: all of the profiles.
        micro_batches: numbers of micro-batches of a step, all replicas' together, to choose among;
            empty: such as have `MICRO_SAMPLES` samples, and for models that are not cut as many as
            memory needs.
        collectives: of models that are not cut; empty: all.
        batch_size: in place of the job's.
        epochs: in place of the job's.
        most_batch_size: the batch may be chosen, too, up to so many samples, as FasDL does.
        time_limit_s: most seconds of search and re-ranking, about.
        least_predicted: plans that are re-ranked, more if it takes no time to speak of.

    Raises:
        RequestError: numbers that cannot be.
    """

    goal: Goal = field(default_factory=Goal)
    workers: int = MOST_WORKERS
    vcpus: float | None = None
    memory_mib: tuple[int, ...] = ()
    micro_batches: tuple[int, ...] = ()
    collectives: tuple[str, ...] = ()
    batch_size: int | None = None
    epochs: int | None = None
    most_batch_size: int | None = None
    time_limit_s: float = TIME_LIMIT_S
    least_predicted: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 10_000:
            raise RequestError(f"--workers {self.workers}: give 1 to 10000")
        if self.vcpus is not None and not 0 < self.vcpus < math.inf:
            raise RequestError(f"--vcpus {self.vcpus:g}: give a number above 0")
        if not 0 < self.time_limit_s < math.inf:
            raise RequestError(f"--time-limit {self.time_limit_s:g}: give seconds above 0")
        if min(self.micro_batches, default=1) < 1:
            raise RequestError("--micro-batches: give numbers from 1")

    def vcpus_of(self, profile: Profile) -> float:
        """That all functions have together at most."""
        return profile.shared_cores if self.vcpus is None else self.vcpus
