"""What a configuration will take: the very schedules that a run has, in virtual time.

a step    each worker's passes, its collectives over its link, its share of the CPU
an epoch  its steps, the last of which may be smaller, and the validation
a run     start, epochs, checkpoints, hand-overs, end; billed as a run is
"""

from __future__ import annotations

from dataclasses import replace

from dayfly.catalogue.metering import MeteredInvocation, bill
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.planning.checks import check_configuration
from dayfly.planning.closed_form import MOST_SIMULATED
from dayfly.planning.configuration import Configuration, stage_memory_mib, stage_size
from dayfly.planning.epochs import epoch_of
from dayfly.planning.gpus import DERIVED
from dayfly.planning.interruptions import per_s
from dayfly.planning.intervals import interval_of
from dayfly.planning.lives import interrupted, lives_of, pace_of
from dayfly.planning.memory import gpu_peak_mib, peak_mib
from dayfly.planning.plan import Prediction
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.servers import check_server_memory
from dayfly.planning.timing import together


def predict(
    profile: Profile,
    configuration: Configuration,
    platform: FunctionPlatform,
    store: StoreFacts | None = None,
    *,
    most_simulated: int = MOST_SIMULATED,
) -> Prediction:
    """Predict a run.

    platform: whose prices the bill has. store: whose prices its messages have; None: they cost
    nothing. most_simulated: workers up to which every message is gone through; with more, closed
    forms say what collectives take (`planning.closed_form`). Raises RequestError for what cannot
    be run or not be predicted, for memory sizes that the profile does not have, and if the
    catalogue has no prices.
    """
    check_configuration(profile, configuration)
    means = ChannelModel.of(profile)
    epoch = epoch_of(profile, configuration, means, most_simulated)
    c = configuration
    check_server_memory(profile, c.members, store)
    pace = pace_of(means, c.memory_mib, platform, store, c.workers, c.gpu_share)
    lives = lives_of(profile, c, pace, epoch)
    lives = interrupted(lives, c, platform)
    vcpus = c.vcpus if profile.imitate is not None else None
    used, moved = [], {}
    for rank in range(c.workers):
        kind = c.kind_of(rank)
        name = f"worker-{rank}"
        memory_mib = stage_memory_mib(c, kind)
        for attempt, life in enumerate(lives.of_kind[kind]):
            used.append(
                MeteredInvocation(
                    function=name,
                    attempt=attempt,
                    memory_mib=memory_mib,
                    init_s=life.init_s,
                    run_s=life.run_s,
                    outcome="returned",
                    vcpus=vcpus,
                    gpu_share=c.gpu_share,
                )
            )
        moved[name] = together((lives.moved[rank], lives.told[rank]))
    billed = bill(used, platform, store, moved)
    said = Prediction(
        step_s=epoch.step_s,
        epoch_s=epoch.epoch_s,
        startup_s=lives.ready_s,
        train_s=lives.run_s - lives.ready_s - lives.ending_s,
        total_s=lives.run_s,
        run_s=lives.run_s,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        by_kind=billed.by_kind,
        price_list=billed.price_list,
        memory_mib=tuple(
            peak_mib(profile, c, kind, lasts_s=lives.run_s) for kind in range(len(c.kinds))
        ),
        gpu_memory_mib=()
        if profile.gpu is None
        else tuple(gpu_peak_mib(profile, c, kind) for kind in range(len(c.kinds))),
        step_volume=epoch.step_volume,
        epoch_volume=epoch.epoch_volume,
        run_volume=lives.volume,
        breakdown=epoch.breakdown,
        invocations=len(used),
        interruptions=c.workers * per_s(platform) * lives.run_s,
        warnings=warnings_of(profile, c),
    )
    simulated = c.workers <= most_simulated
    return replace(said, interval=interval_of(profile, c, said, simulated=simulated))


def warnings_of(profile: Profile, c: Configuration) -> tuple[str, ...]:
    """What speaks against the figures of the functions of a configuration."""
    gpu = profile.gpu
    derived = [] if gpu is None or not gpu.derived else [f"times on the {gpu.type} are {DERIVED}"]
    sizes = [stage_size(profile, c, kind) for kind in range(len(c.kinds))]
    said = derived + [one for size in sizes if size.conditions for one in size.conditions.doubts]
    return tuple(dict.fromkeys(said))
