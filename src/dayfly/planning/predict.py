"""What a configuration will take: the very schedules that a run has, in virtual time.

a step    each worker's passes, its collectives over its link, its share of the CPU
an epoch  its steps, the last of which may be smaller, and the validation
a run     start, epochs, checkpoints, hand-overs, end; billed as a run is
"""

from __future__ import annotations

from dayfly.catalogue.metering import Used, bill
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.planning.channels import Means
from dayfly.planning.configuration import Configuration
from dayfly.planning.epochs import epoch_of
from dayfly.planning.lives import lives_of, pace_of
from dayfly.planning.many import MOST_SIMULATED
from dayfly.planning.memory import peak_mib
from dayfly.planning.prediction import Prediction
from dayfly.planning.profile import Profile
from dayfly.planning.stages import check_configuration, stage_memory_mib
from dayfly.planning.traffic import together


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
    forms say what collectives take (`planning.many`). Raises RequestError for what cannot be run or
    not be predicted, for memory sizes that the profile does not have, and if the catalogue has no
    prices.
    """
    check_configuration(profile, configuration)
    means = Means.of(profile)
    epoch = epoch_of(profile, configuration, means, most_simulated)
    c = configuration
    pace = pace_of(means, c.memory_mib, platform, store, c.workers)
    lives = lives_of(profile, c, pace, epoch)
    used, moved = [], {}
    for rank in range(c.workers):
        stage = rank // c.replicas if c.cut else 0
        name = f"worker-{rank}"
        memory_mib = stage_memory_mib(c, stage)
        for attempt, life in enumerate(lives.of_stage[stage]):
            used.append(
                Used(
                    function=name,
                    attempt=attempt,
                    memory_mib=memory_mib,
                    init_s=life.init_s,
                    run_s=life.run_s,
                    outcome="returned",
                )
            )
        moved[name] = together((lives.moved[rank], lives.told[rank]))
    billed = bill(used, platform, store, moved)
    return Prediction(
        step_s=epoch.step_s,
        epoch_s=epoch.epoch_s,
        run_s=lives.run_s,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        by_kind=billed.by_kind,
        price_list=billed.price_list,
        memory_mib=tuple(
            peak_mib(profile, c, stage, lasts_s=lives.run_s) for stage in range(c.stages)
        ),
        step_volume=epoch.step_volume,
        epoch_volume=epoch.epoch_volume,
        run_volume=lives.volume,
        breakdown=epoch.breakdown,
        invocations=len(used),
    )
