"""`plan.json`: a profile, a configuration, and what it is predicted to take.

    {"version": 1, "settings": {...}, "job": {...}, "profile": {...}, "prediction": {...} | null}

`settings` are those of `dayfly train` (`runs.settings.Settings`, by their names). `job` says
batch_size and epochs in place of the job's, and where they are not the usual ones validate_every,
and clips: whether gradients are clipped. So a plan is all that `dayfly train JOB.py --plan` and
`dayfly simulate` need, and can be written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from dayfly import dataclass_json, json_files
from dayfly.dataclass_json import Count, Range
from dayfly.errors import RequestError
from dayfly.planning.profile import Profile, dump_profile, load_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What all workers put into the store and get out of it."""

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How sure a prediction is: low and high ends, between which so many of all runs are to lie.

    Attributes:
        level: the share of runs, 0.9.
        step_s: of the median step.
        total_s: of the total time.
        cost_usd: of the bill.
        sources: what the uncertainty of the total time is due to, as shares of its variance.
        to_measure: what would make it smaller, a sentence; None: nothing that is measured.
    """

    level: float
    step_s: tuple[float, float]
    total_s: tuple[float, float]
    cost_usd: tuple[float, float]
    sources: Mapping[str, float]
    to_measure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one configuration takes.

    Attributes:
        step_s: the median step, on rank 0's clock, as a run measures it.
        epoch_s: all steps and the validation.
        startup_s: start-up time: from the first invocation to the first step. None: an earlier
            version predicted it.
        train_s: training time: from the first step to the end of the last one or of the last
            validation, hand-overs included. None as above.
        total_s: total time: from the first invocation to the end of the last function.
        run_s: deprecated name of total_s.
        billed_s: billed seconds of all functions.
        gb_s: GB-seconds of all functions.
        cost_usd: dollars under `price_list`, as a bill has them.
        by_kind: the dollars by what they are for.
        price_list: the platform whose prices count.
        memory_mib: peak of each stage's functions, in MiB.
        gpu_memory_mib: peak in GPU memory, likewise; none: they have no GPU.
        step_volume: bytes and requests of a step.
        epoch_volume: of an epoch.
        run_volume: of the run.
        breakdown: seconds of a step by what is waited for on the critical rank: compute, transfer,
            sync, overhead. They add up to `step_s`.
        invocations: of the run, hand-overs included.
        interruptions: of spot machines, to be expected; their delays are in the times.
        interval: how sure it is; None: nothing says it, as the profile was not measured.
        warnings: what speaks against the profile's figures of these functions, a sentence each.
    """

    step_s: float
    epoch_s: float
    run_s: float
    billed_s: float
    gb_s: float
    cost_usd: float
    by_kind: Mapping[str, float]
    price_list: str
    memory_mib: tuple[float, ...]
    step_volume: Volume
    epoch_volume: Volume
    run_volume: Volume
    breakdown: Mapping[str, float]
    invocations: int
    gpu_memory_mib: tuple[float, ...] = ()
    interruptions: float = 0.0
    startup_s: float | None = None
    train_s: float | None = None
    total_s: float = 0.0
    interval: Interval | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.total_s:  # an earlier version wrote it
            object.__setattr__(self, "total_s", self.run_s)


VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What a plan says in place of its job. None: it says nothing."""

    batch_size: Count
    epochs: Count
    validate_every: Annotated[int, Range(0)] | None = None
    clips: bool | None = None
    batch_per_worker: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The keys of a plan's file that are not checked by others."""

    settings: Mapping[str, Any]
    job: PlannedJob
    profile: Any
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A profile, a configuration, and what it is predicted to take; the content of `plan.json`.

    Args:
        settings: those of `dayfly.train` that are not the usual ones, as JSON has them.
        job: batch size and epochs, in place of the job's, as JSON has them.
        profile: of the job.
        prediction: None until it is made.
    """

    settings: Mapping[str, Any]
    job: Mapping[str, Any]
    profile: Profile
    prediction: Prediction | None = None

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": VERSION,
            "settings": dataclass_json.dump(self.settings),
            "job": dataclass_json.dump(self.job),
            "profile": dump_profile(self.profile),
            "prediction": dataclass_json.dump(self.prediction),
        }

    def text(self) -> str:
        """What a plan's file holds."""
        return json.dumps(self.dump(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def load(cls, tree: Any, origin: str = "plan") -> Self:
        """Returns the plan of what `dump` gave, or a person wrote.

        Names of settings are checked where they are used.

        Args:
            tree: from JSON.
            origin: names it in errors.

        Raises:
            RequestError: a key is missing or not known, or its value of a wrong type or sign.
        """
        rest = json_files.versioned(
            tree, "version", VERSION, origin, remedy="make it anew with dayfly predict"
        )
        whole = dataclass_json.read(_File, rest, origin)
        return cls(
            settings=whole.settings,
            job={name: value for name, value in rest["job"].items() if value is not None},
            profile=load_profile(whole.profile, origin, "profile"),
            prediction=whole.prediction,
        )

    @classmethod
    def parse(cls, text: str | bytes, origin: str = "plan") -> Self:
        """Returns the plan of a file's text.

        Args:
            text: of the file.
            origin: names it in errors.

        Raises:
            RequestError: as of `load`, or it is no JSON.
        """
        tree = json_files.parse(text, origin)
        if "layers" in tree:
            raise RequestError(
                f"{origin} is a profile, and no plan: dayfly plan makes one of it, with --output"
            )
        return cls.load(tree, origin)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Returns the plan of a file.

        Raises:
            RequestError: as of `parse`, or the file cannot be read.
        """
        return cls.parse(json_files.read_bytes(file), str(file))
