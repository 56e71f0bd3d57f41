"""From a step of whole models to a run: its seconds, and what any plan of so many takes at least.

least step    its share of the samples through all layers, in one piece; or reading, the forward
              pass and the gradients once over the faster way, as each worker sends its own
              and receives what the others made of it; then the optimizer's step
least run     with start, validation and end; all its workers for that long, at their price
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.batches import Batches, validations
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import ceiling, most
from dayfly.planning.configuration import CHECKPOINT_EVERY_S
from dayfly.planning.data_parallel import validating_s
from dayfly.planning.function_times import passed
from dayfly.planning.interruptions import interrupted_s
from dayfly.planning.profile import SizeProfile

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel import DataParallelProblem


def run_of(
    p: DataParallelProblem, size: SizeProfile, workers: int, step_s: float, summed_s: float
) -> tuple[float, int]:
    """Returns the seconds of a run, and the lives of each of its functions; elementwise.

    Args:
        p: the problem.
        size: of the functions.
        workers: how many.
        step_s: seconds of a step.
        summed_s: seconds in which a validation is summed.

    Raises:
        RequestError: interruptions of spot machines leave no time to train.
    """
    steps = Batches(p.profile.samples, p.batch_size).steps * p.epochs
    validation_s = validating_s(size, p.profile.validation_samples, p.batch_size, workers)
    validated = validations(p.epochs, p.validate_every)
    training_s = steps * step_s + validated * (validation_s + summed_s)
    lives = _lives(p.platform, size, training_s)
    start_s = size.init_s.value + size.start_s.value
    run_s = interrupted_s(
        training_s + lives * (start_s + size.end_s.value),
        workers,
        p.platform,
        start_s=start_s,
        checkpoint_every_s=CHECKPOINT_EVERY_S,
    )
    return run_s, lives


def _lives(platform: FunctionPlatform, size: SizeProfile, training_s: float) -> int:
    """Of a function, one after another."""
    if platform.lifetime_max_s is None:
        return 1
    room_s = platform.lifetime_max_s - size.start_s.value - size.end_s.value
    lives: int = most(1, ceiling(training_s / max(room_s, 1.0)))
    return lives


def least_run(
    p: DataParallelProblem,
    memory_mib: int,
    size: SizeProfile,
    workers: int,
    summed_bytes: float,
) -> tuple[float, float]:
    """Returns seconds and dollars that a run takes at least, whatever sums it up and how.

    Args:
        p: the problem.
        memory_mib: of each function.
        size: its figures.
        workers: how many there are.
        summed_bytes: of the gradients and what is summed with them.
    """
    profile = p.profile
    mine = -(-min(p.batch_size, profile.samples) // workers)
    reading_s, forward_s = size.data(mine), passed(size.forward, mine)
    computed_s = reading_s + forward_s + passed(size.backward, mine)
    if workers > 1:
        rate = max(size.up.peak_bytes_per_s.value, size.down.peak_bytes_per_s.value)
        computed_s = max(computed_s, reading_s + forward_s + summed_bytes / rate)
    apply_s = size.apply(sum(layer.trained for layer in profile.layers)) + size.step_s.value
    run_s, lives = run_of(p, size, workers, computed_s + apply_s, 0.0)
    kind = profile.kind_of(size)
    usd_per_s = p.platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus)
    request_usd = p.platform.prices.usd_per_request if p.platform.prices else 0.0
    usd = workers * (run_s * usd_per_s + lives * request_usd)
    return run_s, usd + (p.store.servers_usd(run_s) if p.store is not None else 0.0)


def at_place(
    seconds: float,
    usd: float,
    workers: int,
    platform: FunctionPlatform,
    store: StoreFacts | None,
    *,
    start_s: float,
) -> tuple[float, float]:
    """Returns seconds and dollars of a run with its place's interruptions, and the store's servers.

    Args:
        seconds: of the run without them.
        usd: of the run without them.
        workers: how many are interrupted.
        platform: where they are.
        store: what they talk through; None: it costs nothing by time.
        start_s: of a function, once more.

    Raises:
        RequestError: interruptions leave no time to train.
    """
    run_s = interrupted_s(
        seconds, workers, platform, start_s=start_s, checkpoint_every_s=CHECKPOINT_EVERY_S
    )
    usd *= run_s / seconds
    return run_s, usd + (store.servers_usd(run_s) if store is not None else 0.0)
