"""Plans of runs: what settings mean to the planner, what it predicts, and a plan's settings again.

Settings + job  ->  Configuration  ->  Prediction
     ^                                     |
     '------------- Plan <-----------------'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dayfly import dataclass_json
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration, stage_memory_mib
from dayfly.planning.plan import Plan, Prediction
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import channel_of
from dayfly.runs.function_resources import imitated_by, resources_under
from dayfly.runs.settings import Settings
from dayfly.runs.unequal import shares_of
from dayfly.runs.whole_files import replacing
from dayfly.specs.protocols import PROTOCOLS
from dayfly.specs.streaming import Streaming
from dayfly.training.precisions import FP32
from dayfly.wire.channels.kinds import LOOPBACK
from dayfly.wire.collectives import default_collective
from dayfly.wire.shaping import Rates

if TYPE_CHECKING:
    from dayfly.job import Job


#: What a profile calls the channel of runs that name none.
FILES = "file:///"
#: Settings that a plan does not keep: they are of the place where it was made.
_OF_THE_MACHINE = ("catalogue", "platform_options")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What of a job a prediction depends on, beside its profile.

    Attributes:
        batch_size: of all workers.
        batch_per_worker: samples of a step of each worker or replica, if the batch follows their
            number.
        accumulate: pieces of a worker's share, unless settings say otherwise.
        clips: whether gradients are clipped.
    """

    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    accumulate: int = 1
    clips: bool = False
    batch_per_worker: int | None = None

    @property
    def batch_words(self) -> str:
        """How large batches are, in words."""
        each = self.batch_per_worker
        return f"{self.batch_size} samples" if each is None else f"{each} samples a worker"

    def of_workers(self, members: int) -> Self:
        """The same with the batch of so many workers or replicas, if it follows their number."""
        each = self.batch_per_worker
        return self if each is None else replace(self, batch_size=each * members)

    @classmethod
    def of(cls, job: Job) -> Self:
        """Of a job. Raises RequestError for one whose batch size changes by epoch."""
        if len(set(job.batch_sizes)) > 1:
            raise RequestError(
                "the job's batch size changes by epoch, and profiles and plans have one: give a "
                "batch_size (--batch-size), or train it without a plan"
            )
        return cls(
            batch_size=job.batch_size,
            epochs=job.epochs,
            validate_every=job.validate_every,
            accumulate=job.accumulate,
            clips=job.clip_norm is not None,
            batch_per_worker=job.batch_per_worker,
        )

    @classmethod
    def profiled(cls, profile: Profile, **changes: Any) -> Self:
        """Of a profiled job.

        Args:
            changes: what is asked for in place of that; None: not asked for.

        Raises:
            RequestError: if nobody said a batch size.
        """
        names = [one.name for one in fields(cls)]
        said = {name: getattr(profile, name) for name in names}
        given = {name: value for name, value in changes.items() if value is not None}
        said |= given | ({"batch_per_worker": None} if "batch_size" in given else {})
        if said["batch_size"] is None:
            raise RequestError(
                f"the profile of {profile.job} does not say its batch size: give --batch-size"
            )
        for name in ("batch_size", "epochs"):
            if said[name] < 1:
                raise RequestError(
                    f"--{name.replace('_', '-')} {said[name]}: give a whole number from 1"
                )
        return cls(**said)

    @classmethod
    def by(cls, plan: Plan) -> Self:
        """Of what a plan says of its job."""
        return cls(**plan.job)


def configuration(settings: Settings, wanted: JobSpec) -> Configuration:
    """What the planner is asked about: the settings, with what they leave open decided.

    Raises RequestError for what the imitated platform does not have.
    """
    if settings.precision != FP32:
        raise RequestError(
            f"precision {settings.precision} cannot be predicted, as profiles measure fp32"
        )
    sizes_mib, imitated = settings.sizes_mib, imitated_by(settings)
    each = {
        one: resources_under(settings, imitated, of_mib=one).spec
        for one in dict.fromkeys(sizes_mib)
    }
    kinds = [each[one] for one in sizes_mib]
    return Configuration(
        workers=settings.workers,
        memory_mib=tuple(spec.memory_mib for spec in kinds),
        vcpus=settings.cpu_cores,
        gpu_share=settings.gpu_share,
        cut=settings.cut,
        replicas=settings.replicas or settings.members,
        micro_batches=settings.micro_batches_of_worker(wanted.accumulate),
        schedule=settings.schedule,
        sync=settings.sync,
        k=settings.round_steps,
        outer=settings.outer,
        streaming=Streaming.of(settings.fragments, settings.overlap),
        collective=settings.algorithm,
        aggregators=settings.aggregators,
        compress=settings.compress,
        shares=shares_of(settings),
        virtual_workers=settings.virtual_workers,
        batch_size=wanted.of_workers(settings.members).batch_size,
        epochs=wanted.epochs,
        validate_every=wanted.validate_every,
        lifetime_s=kinds[0].lifetime_s,
        cold_start_s=kinds[0].cold_start_s,
        checkpoint_every_s=settings.checkpoint_every_s,
        clips=wanted.clips,
    )


def configuration_of(plan: Plan, origin: str = "plan") -> Configuration:
    """What a plan is of. Raises RequestError for settings that are not known or cannot be."""
    return configuration(settings_of(plan, origin), JobSpec.by(plan))


def settings_of(plan: Plan, origin: str = "plan", **changes: Any) -> Settings:
    """The settings of a plan.

    Args:
        changes: in their place, as flags beside --plan.
        origin: the plan's file, in errors.

    Raises:
        RequestError: for settings that are not known, of another type, or that cannot be.
    """
    planned = dataclass_json.read(Settings, plan.settings, origin, within="settings")
    return planned.changed(**changes) if changes else planned


def plan_of(
    profile: Profile, settings: Settings, wanted: JobSpec, prediction: Prediction | None = None
) -> Plan:
    """A plan of these: it says all that follows from the job, too."""
    wanted = wanted.of_workers(settings.members)
    tree = settings_tree(settings)
    if wanted.accumulate != 1:
        tree.setdefault("micro_batches", wanted.accumulate)
    own = {one.name: (getattr(wanted, one.name), one.default) for one in fields(wanted)}
    job = {name: value for name, (value, usual) in own.items() if value != usual}
    job |= {"epochs": wanted.epochs}
    job.pop("accumulate", None)
    return Plan(settings=tree, job=job, profile=profile, prediction=prediction)


def settings_tree(settings: Settings) -> dict[str, Any]:
    """For a plan: the settings that are not the usual ones."""
    own = {one.name: (getattr(settings, one.name), one.default) for one in fields(settings)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, usual) in own.items()
        if value != usual and name not in _OF_THE_MACHINE
    }


def profile_settings(profile: Profile, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are asked for, in functions as they were when the profile was measured.

    Raises RequestError for another platform or channel than the profile's, and for stages whose
    functions differ in more than memory and what an imitated platform gives with it.
    """
    own: dict[str, Any] = {"platform": profile.platform, "imitate": profile.imitate}
    if "://" not in profile.channel:  # a store of the catalogue, which a run names by its URL
        kind = channel_of(profile.channel)
        can = kind.abilities
        sync = PROTOCOLS.get(asked.get("sync") or "bsp")
        if sync is None or not sync.staleness:  # workers that lag have one collective alone
            usual = default_collective(sums=can.sums, direct=can.direct, immediate=False)
            own["collective"] = usual
        if can.sums:
            # Here its servers are processes of this machine.
            count = int(profile.channel.partition(":")[2] or 1)
            hosts = ",".join([LOOPBACK] * count) if count > 1 else ""
            own["channel"] = f"{kind.schemes[0]}://{hosts}"
    elif profile.channel != FILES:
        own["channel"] = profile.channel
    for name in ("platform", "imitate", "channel"):
        if name in asked and asked[name] != (has := getattr(profile, name)):
            raise RequestError(
                f"--{name} {asked[name]}: the profile of {profile.job} is of {has or 'none'}: "
                "leave it out, or profile the job so"
            )
    shares = [one.gpu_share for one in profile.sizes if one.gpu_share is not None]
    if shares:
        own["gpu_share"] = max(shares)
    elif asked.get("gpu_share") is not None:
        raise RequestError(
            f"the profile of {profile.job} is of functions without a GPU: profile it on one with "
            "--gpu, or make one with --from-catalogue of a platform with GPUs"
        )
    several = asked.get("stage_memory_mib") or asked.get("each_memory_mib")
    sizes = several or (asked.get("memory_mib"),)
    ways = [_limits(profile.size(size), profile.imitate) for size in dict.fromkeys(sizes)]
    if any(way != ways[0] for way in ways):
        raise RequestError(
            f"functions of {', '.join(map(str, sizes))} MiB: in the profile these differ in more "
            "than memory, and dayfly train gives all the same --cpu, --uplink, --downlink and "
            "--latency"
        )
    return {**own, **ways[0], **asked}


def _limits(size: SizeProfile, imitate: str | None) -> dict[str, float]:
    """Of a function, by the names of settings; without those that come with the memory."""
    rates = size.rates or Rates()
    up, down = rates.up_bytes_per_s, rates.down_bytes_per_s
    given = {
        "cpu_cores": None if imitate is not None else size.cpu_cores,
        "uplink_mb_per_s": None if imitate is not None or up is None else up / 1e6,
        "downlink_mb_per_s": None if imitate is not None or down is None else down / 1e6,
        "latency_ms": rates.latency_s * 1000 or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def limits_of(plan: Plan) -> list[int | None]:
    """MiB of the functions of each stage, or of each kind of workers."""
    c = configuration_of(plan)
    return [stage_memory_mib(c, kind) for kind in range(len(c.kinds))]


def write_plan(plan: Plan, file: Path) -> None:
    """Whole or not at all. Raises RequestError if it cannot be written."""
    try:
        with replacing(file) as beside:
            beside.write_text(plan.text(), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{str(file)!r} cannot be written: {error.strerror}") from error
