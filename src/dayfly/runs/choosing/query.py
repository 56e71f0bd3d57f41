"""What `dayfly plan` is asked: the goal, the limits of the search, and why a plan was chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from dayfly.errors import RequestError
from dayfly.planning.choose.front import DELTA, Front, Point, dollars, explained, number, seconds
from dayfly.planning.choose.pipelines.merging import MOST_LAYERS, Merging
from dayfly.planning.choose.pipelines.merging import TIME as BY_TIME
from dayfly.planning.curves import EpochsToTarget
from dayfly.planning.efficiency import given_efficiency
from dayfly.planning.profile import Profile
from dayfly.runs.settings import Settings
from dayfly.specs.methods import AXES, BSP, Method, crossed
from dayfly.wire.collectives import check_name

P = TypeVar("P")

#: What `--objective` may be: the fastest plan, or the cheapest.
TIME, COST = _OBJECTIVES = "time", "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The rule by which one plan of a front is chosen.

    A deadline chooses the cheapest plan within it, a budget the fastest, both of them the cheapest
    that keeps both. Without any rule it is FuncPipe's recommendation.

    Raises:
        RequestError: a value is not above 0, or weights or an objective stand beside another rule.

    Attributes:
        deadline_s: longest run.
        budget_usd: dearest run.
        weights: alpha1 of dollars and alpha2 of seconds: the least weighted sum.
        objective: time, for the fastest of all, or cost, for the cheapest.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None
    weights: tuple[float, float] | None = None
    objective: str | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--deadline", self.deadline_s), ("--budget", self.budget_usd)):
            if value is not None and not 0 < value < math.inf:
                raise RequestError(f"{flag} {value:g}: give more than 0")
        limited = self.deadline_s is not None or self.budget_usd is not None
        if self.weights is not None and limited:
            raise RequestError(
                "--weights chooses by itself: leave it out, or --deadline and --budget"
            )
        if self.objective is None:
            return
        if self.objective not in _OBJECTIVES:
            raise RequestError(f"--objective {self.objective}: give {' or '.join(_OBJECTIVES)}")
        if limited or self.weights is not None:
            raise RequestError(
                "--objective chooses by itself: leave it out, or --deadline, --budget and --weights"
            )

    def choose(self, front: Front[P]) -> Point[P]:
        """The plan. Raises RequestError, with the nearest one, if none keeps the limits."""
        if self.weights is not None:
            return front.weighted(*self.weights)
        if self.objective is not None:
            return front.fastest if self.objective == TIME else front.cheapest
        if self.deadline_s is None:
            if self.budget_usd is None:
                return front.recommended()
            return front.fastest_within(self.budget_usd)
        found = front.cheapest_within(self.deadline_s)
        if self.budget_usd is None or found.usd <= self.budget_usd:
            return found
        fastest = front.fastest_within(self.budget_usd)
        raise RequestError(
            f"no plan keeps both the deadline of {seconds(self.deadline_s)} and the budget of "
            f"{dollars(self.budget_usd)}: within the deadline the cheapest is {found}; within the "
            f"budget the fastest is {fastest}; give {dollars(found.usd, enough=True)}, or allow "
            f"{seconds(fastest.seconds, enough=True)}"
        )

    def nearest(self, front: Front[P]) -> Point[P]:
        """The plan; if none keeps the limits, the one that comes nearest to them."""
        try:
            return self.choose(front)
        except RequestError:
            if self.deadline_s is None:
                return front.cheapest
            in_time = [one for one in front.points if one.seconds <= self.deadline_s]
            return in_time[-1] if in_time else front.fastest

    def words(self, front: Front[P], point: Point[P]) -> str:
        """Why this one: by which rule, what binds, and what a little more would buy."""
        said = explained(front, point, deadline_s=self.deadline_s, budget_usd=self.budget_usd)
        return f"{self.rule(front, point)} {said}"

    def rule(self, front: Front[P], point: Point[P]) -> str:
        """By which rule it was chosen, a sentence."""
        if self.weights is not None:
            a, b = map(number, self.weights)
            return f"The least of {a} x dollars + {b} x seconds."
        if self.objective is not None:
            return "The fastest of all." if self.objective == TIME else "The cheapest of all."
        if self.deadline_s is not None:
            also = (
                "" if self.budget_usd is None else f" and the budget of {dollars(self.budget_usd)}"
            )
            return f"The cheapest within the deadline of {seconds(self.deadline_s)}{also}."
        if self.budget_usd is not None:
            return f"The fastest within the budget of {dollars(self.budget_usd)}."
        cheapest = front.cheapest
        if point is cheapest:
            return (
                "Recommended: the cheapest of all. By FuncPipe's rule a faster plan is worth its "
                f"price if it gains {DELTA:g}% of speed or more for each 1% more dollars, and none "
                "does."
            )
        faster, dearer = cheapest.seconds / point.seconds, point.usd / cheapest.usd
        return (
            f"Recommended: the fastest that is worth its price, {number(faster)} times as fast as "
            f"the cheapest for {number(dearer)} times its dollars: each 1% more dollars brings "
            f"{number((faster - 1) / (dearer - 1))}% more speed; FuncPipe's rule asks for "
            f"{DELTA:g}% at least."
        )


#: Functions at once, unless said otherwise: as many as virtual time goes through one by one.
MOST_WORKERS = 64
#: Seconds that search and re-ranking take at most, about, unless said otherwise. Searches end by
#: themselves when they are exact, which is mostly within a second.
TIME_LIMIT_S = 10.0
#: Samples of a micro-batch of cut models, about, unless said otherwise: FuncPipe's (section 5.1).
MICRO_SAMPLES = 4


def frees_batch(method: Method) -> bool:
    """Returns whether the batch may be chosen, too: FasDL's problem is of bsp and of hap.

    Args:
        method: that is planned.
    """
    return method == BSP or method.protocol.staleness > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """What a choice is among, beside the targets.

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
        batch_sizes: to choose among; empty: `batch_size`, or the job's.
        methods: training methods to choose among, as `dayfly.specs.methods` names them; of hap the
            planner chooses the number of aggregators, where the name has none. Plans of hap are
            FasDL's as they are, with batches up to `batch_size`, or up to `most_batch_size`.
        fragments: of outer gradients, each number with each method that can be streamed; None: one
            exchange at a round's end. Empty: as the methods' names have it.
        overlap: inner steps beside which a fragment travels, likewise.
        compress: as `--compress`, each with each method that can have it; empty: likewise.
        apart: numbers of aggregators of hap that are choices of their own, with their own epochs:
            an open number is none of them, unless all are aggregators, which is bsp.
        efficiencies: what methods and batch sizes take, by hand, such as `local-sgd:8=1.3`: times
            the samples of bsp at the job's batch size.
        epochs: in place of the job's: of bsp at the job's batch size. Others have as many as they
            take to the same loss (`dayfly.planning.efficiency`).
        most_batch_size: the batch may be chosen, too, up to so many samples, as FasDL does.
        merge_layers: layers at most that cuts are searched between; of a model of more, neighbours
            become one (`dayfly.planning.choose.pipelines.merging`); None: `MOST_LAYERS`.
        merge_by: of which the merged layers have equal shares: time, parameters or activations.
        target_loss: of validations, at which the run ends, as `Settings` has it.
        target_accuracy: of validations, likewise.
        reaching: how `epochs` follows from the target; None: they were said, or are the job's.
        time_limit_s: most CPU seconds of search and re-ranking, about.
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
    batch_sizes: tuple[int, ...] = ()
    methods: tuple[str, ...] = (str(BSP),)
    fragments: tuple[int | None, ...] = ()
    overlap: tuple[int, ...] = ()
    compress: tuple[str, ...] = ()
    apart: tuple[int, ...] = ()
    efficiencies: tuple[str, ...] = ()
    epochs: int | None = None
    most_batch_size: int | None = None
    merge_layers: int | None = None
    merge_by: str = BY_TIME
    target_loss: float | None = None
    target_accuracy: float | None = None
    reaching: EpochsToTarget | None = None
    time_limit_s: float = TIME_LIMIT_S
    least_predicted: int = 12

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 10_000:
            raise RequestError(f"--workers {self.workers}: give 1 to 10000")
        if self.vcpus is not None and not 0 < self.vcpus < math.inf:
            raise RequestError(f"--vcpus {self.vcpus:g}: give a number above 0")
        if not 0 < self.time_limit_s < math.inf:
            raise RequestError(f"--time-limit {self.time_limit_s:g}: give seconds above 0")
        if min(self.micro_batches, default=1) < 1:
            raise RequestError("--micro-batches: give numbers from 1")
        if self.most_batch_size is not None and self.most_batch_size < 1:
            raise RequestError(f"--most-batch-size {self.most_batch_size}: give a number from 1")
        self.merging()
        for name in self.collectives:
            check_name(name)
        if not self.methods:
            raise RequestError("--sync: give a method at least, such as bsp")
        ways = self.ways  # names of methods are read
        if self.most_batch_size is not None and not any(map(frees_batch, ways)):
            raise RequestError(
                f"--most-batch-size {self.most_batch_size}: the batch is chosen of bsp and hap: "
                "add one of them to --sync, or give --batch-size N,N"
            )
        for text in self.efficiencies:
            method = given_efficiency(text, 1)[0]
            if method != BSP and not any(one.allows(method) for one in ways):
                raise RequestError(
                    f"--efficiency {text}: no plan is of {method}: add it to --sync, or leave it "
                    "out"
                )
        if self.batch_size is not None and self.batch_sizes:
            raise RequestError("batch_size is one, and batch_sizes are several: give one of them")
        for size in (1 if self.batch_size is None else self.batch_size, *self.batch_sizes):
            if size < 1:
                raise RequestError(f"--batch-size {size}: give a whole number from 1")
        Settings(**self.ends)
        if self.reaching is not None and (self.most_batch_size is not None or self.batch_sizes):
            raise RequestError(
                "--curve is of one batch size, and how many epochs another one takes it does not "
                "say: leave out --most-batch-size, and give --batch-size one"
            )

    @property
    def largest_batch(self) -> int | None:
        """The largest batch size of those that are named; None: the job's own."""
        return self.batch_size or max(self.batch_sizes, default=None)

    @property
    def ways(self) -> tuple[Method, ...]:
        """The methods to choose among, each once."""
        named = [Method.parse(name, planned=True) for name in self.methods]
        return crossed(named, {name: getattr(self, name) for name in AXES})

    def of(self, method: Method, **more: Any) -> Self:
        """Returns a choice among one method, which is planned now.

        Args:
            method: one of `ways`.
            more: other fields.
        """
        alone: dict[str, Any] = {"methods": (str(method),), **dict.fromkeys(AXES, ())}
        return replace(self, **alone, **more)

    @property
    def method(self) -> Method:
        """The one that is planned now, of a choice among one."""
        return self.ways[0]

    @property
    def ends(self) -> dict[str, Any]:
        """The settings of a run that end it at a target."""
        given = {"target_loss": self.target_loss, "target_accuracy": self.target_accuracy}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def target_words(self) -> list[str]:
        """What a person should know of the target, a sentence each; none without a target."""
        if not self.ends:
            return []
        if self.reaching is None:
            return [
                "how many epochs the target takes nobody said: seconds and dollars are of all "
                "epochs, and a run ends sooner if it reaches it (give --curve RUN)"
            ]
        return [
            f"{self.reaching}: that many are planned, and a run ends at the first "
            "validation that reaches it"
        ]

    def merging(self) -> Merging:
        """Returns how layers are merged.

        Raises:
            RequestError: they cannot be merged so.
        """
        most = MOST_LAYERS if self.merge_layers is None else self.merge_layers
        return Merging(most, self.merge_by)

    def vcpus_of(self, profile: Profile) -> float:
        """That all functions have together at most."""
        return profile.shared_cores if self.vcpus is None else self.vcpus
