"""A run by a plan: what of the plan really runs, and what is predicted of that.

plan.json, as given    settings, job, profile, prediction
    |  flags beside --plan, the job's own data
    v
plan.json of the run   the same, of what really runs; its prediction is made anew if that differs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dayfly.errors import RequestError
from dayfly.planning.plan import Plan, Prediction
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import channel_of
from dayfly.runs.functions import price_list
from dayfly.runs.plans import (
    FILES,
    JobSpec,
    configuration,
    configuration_of,
    plan_of,
    settings_of,
)
from dayfly.runs.settings import Settings
from dayfly.wire.channels import channel_kind

if TYPE_CHECKING:
    from dayfly.job import Job


#: What functions get and how they talk: what a profile holds for, and nothing else.
_CONDITIONS = (
    "platform",
    "imitate",
    "cpu_cores",
    "uplink_mb_per_s",
    "downlink_mb_per_s",
    "latency_ms",
    "gpu_share",
)
#: Settings that no prediction depends on.
_BESIDE = {
    "allow_other_cpu",
    "catalogue",
    "keep",
    "log",
    "log_budget_mib",
    "max_cost_usd",
    "max_time_s",
    "mode",
    "monitor",
    "on_nan",
    "outer_lr",
    "outer_momentum",
    "patience",
    "target_accuracy",
    "target_loss",
    "wait_timeout_s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What `run.json` says of the plan beside it.

    Attributes:
        overridden: what runs in place of what was planned, in words.
        changed: what `--resume` changed afterwards.
        unpredicted: why there is no prediction of what runs; None if there is one.
    """

    overridden: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unpredicted: str | None = None

    def words(self) -> str | None:
        """What a person wants to know of it when the run begins; None if nothing."""
        other = ", ".join((*self.overridden, *self.changed))
        if self.unpredicted is not None:
            return f"what runs is not predicted: {self.unpredicted}"
        return f"not as planned, and so predicted anew: {other}" if other else None


def carried_out(
    plan: Plan, settings: Settings, job: Job, samples: int | None = None
) -> tuple[Plan, Planned]:
    """The plan of what really runs.

    Args:
        settings, job: of the run.
        samples: those that it trains on; None: the profile's.
    """
    wanted = JobSpec.of(job)
    profile = plan.profile
    if samples is not None and samples != profile.samples:
        profile = replace(profile, samples=samples)
    before = settings_of(plan)
    if "://" not in profile.channel and _same_channel(profile, settings):
        before = replace(before, channel=settings.channel)  # where the store is, a plan cannot say
    said = differences(_compared(before, JobSpec.by(plan)), _compared(settings, wanted))
    if profile is not plan.profile:
        said.append(f"samples {samples} in place of {plan.profile.samples}")
    prediction, why = plan.prediction, None
    same = (
        not said
        and _same_channel(profile, settings)
        and configuration(settings, wanted) == configuration_of(plan)
    )
    if not (same and _billed_as(settings, prediction)):
        prediction, why = _predicted(replace(plan, profile=profile), before, settings, wanted)
    return plan_of(profile, settings, wanted, prediction), Planned(
        overridden=tuple(said), unpredicted=why
    )


def gone_on(plan: Plan, planned: Planned, settings: Settings, job: Job) -> tuple[Plan, Planned]:
    """The same of a run that goes on, maybe with other settings.

    Args:
        plan, planned: so far.
    """
    ours, now = carried_out(plan, settings, job)
    if not now.overridden:
        return plan, planned
    return ours, replace(
        planned, changed=(*planned.changed, *now.overridden), unpredicted=now.unpredicted
    )


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is another now, in words."""
    return [
        f"{name} {_shown(value)} in place of {_shown(before[name])}"
        for name, value in after.items()
        if value != before[name]
    ]


def _compared(settings: Settings, wanted: JobSpec) -> dict[str, Any]:
    """All that a prediction depends on, beside the profile."""
    own = {one.name: getattr(settings, one.name) for one in fields(settings)}
    own["channel"] = settings.channel or FILES
    wanted = wanted.of_workers(settings.members)
    of_the_job = {
        "batch_size": wanted.batch_size,
        "epochs": wanted.epochs,
        "validate_every": wanted.validate_every,
        "clips": wanted.clips,
        "micro_batches": settings.micro_batches_of_worker(wanted.accumulate),
        "collective": settings.algorithm,
    }
    return {name: value for name, value in (own | of_the_job).items() if name not in _BESIDE}


def _same_channel(profile: Profile, settings: Settings) -> bool:
    """Whether a run talks over what was profiled; a store of the catalogue may be at any URL."""
    channel = settings.channel or FILES
    if "://" in profile.channel:
        return channel == profile.channel
    return channel_kind(channel) is channel_of(profile.channel)


def _billed_as(settings: Settings, prediction: Prediction | None) -> bool:
    """Whether its dollars are of the run's bill, which has no store's prices."""
    if prediction is None or prediction.price_list != price_list(settings):
        return False
    return not any(usd for kind, usd in prediction.by_kind.items() if kind.startswith("store_"))


def _predicted(
    plan: Plan, before: Settings, settings: Settings, wanted: JobSpec
) -> tuple[Prediction | None, str | None]:
    """By the plan's profile, or why not. before: what the profile holds for."""
    if not _same_channel(plan.profile, settings):
        return None, (
            f"the plan's profile is over {plan.profile.channel}, and this run talks over "
            f"{settings.channel or 'files in memory'}: give --channel, or profile the job so"
        )
    for name in _CONDITIONS:
        if (now := getattr(settings, name)) != (then := getattr(before, name)):
            return None, (
                f"the plan's profile holds for {name} {_shown(then)}, and this run has "
                f"{_shown(now)}: profile the job so"
            )
    try:
        # What predicts is of no use to the start of any other run.
        from dayfly.runs.predict import predict_run

        return predict_run(plan.profile, settings, wanted).prediction, None
    except RequestError as refusal:
        return None, str(refusal)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
