"""What is searched for cuts of a target's model: problems, of merged layers if there are many."""

from __future__ import annotations

from collections.abc import Collection

from dayfly.planning.choose.from_profile import limited, stages_problems
from dayfly.planning.choose.pipelines.merging import MergedLayers
from dayfly.planning.choose.pipelines.problem import Problem
from dayfly.planning.function_kinds import FunctionKind
from dayfly.runs.choosing.query import MICRO_SAMPLES, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec
from dayfly.wire.pipelines.orders import ORDERS


def usual_micro_batches(wanted: JobSpec) -> int:
    """Returns micro-batches of a step, of some `MICRO_SAMPLES` samples each. A power of two has the
    most divisors, which are what replicas there may be."""
    return int(2 ** max(0, (wanted.batch_size // MICRO_SAMPLES).bit_length() - 1))


def search_work(target: Target, asked: PlanQuery) -> int:
    """Returns the size of the search for cuts: layers x memory sizes x degrees; 0: none."""
    wanted = JobSpec.profiled(target.profile, batch_size=asked.batch_size, epochs=asked.epochs)
    if target.sums or not target.profile.listed or wanted.batch_per_worker is not None:
        return 0
    micro_batches = asked.micro_batches or (usual_micro_batches(wanted),)
    degrees = sum(m % d == 0 for m in micro_batches for d in range(1, m + 1))
    sizes = len(limited(target.of_sizes(asked.memory_mib).profile))
    return min(len(target.profile.layers), asked.merging().most) * sizes * degrees


def cut_problems(
    target: Target,
    asked: PlanQuery,
    wanted: JobSpec,
    kind: FunctionKind,
    spare_mib: float = 0.0,
    merged: MergedLayers | None = None,
) -> tuple[MergedLayers, tuple[Problem, ...]]:
    """Returns the merged layers, and the problems of them.

    The problems have the same layers, and memory by FuncPipe's equation 3b alone.

    Args:
        target: where.
        asked: what the choice is among.
        wanted: of the job.
        kind: of functions.
        spare_mib: that functions are to have more than the equation of memory says.
        merged: how layers are merged; None: as was asked for, by times of these problems.

    Raises:
        RequestError: as `stages_problems`.
    """
    micro_batches = asked.micro_batches or (usual_micro_batches(wanted),)
    problems = stages_problems(
        target.profile,
        target.platform,
        batch_size=wanted.batch_size,
        micro_batches=[m for m in micro_batches if m <= wanted.batch_size],
        functions_at_once=asked.workers,
        vcpus_at_once=asked.vcpus_of(target.profile),
        kind=kind,
        spare_mib=spare_mib,
        schedules=tuple(ORDERS),
        mixed=True,
    )
    merged = merged or MergedLayers.of(problems[0], asked.merging())
    return merged, tuple(map(merged.merge, problems))


def merging_words(target: Target, asked: PlanQuery) -> str:
    """Returns how layers are merged before cuts are searched, a sentence; empty: they are not."""
    merging, count = asked.merging(), len(target.profile.layers)
    if not search_work(target, asked) or count <= merging.most:
        return ""
    return (
        f"{count} layers are merged by {merging.by} to {merging.most} at most, and cuts within a "
        f"merged layer are not searched: --merge-layers {count} searches all"
    )


def limits_of(
    target: Target, asked: PlanQuery, functions: int, memory_mib: Collection[int | None]
) -> tuple[str, ...]:
    """Returns the resources that limit a plan, in words: more of one might allow a better plan.

    Args:
        target: where it is.
        asked: what the choice is among.
        functions: of the plan.
        memory_mib: sizes of its functions.
    """
    largest = max(size for size, _ in limited(target.profile))
    found = []
    if functions == asked.workers:
        found.append(f"{functions} functions at once")
    if largest in memory_mib:
        found.append(f"functions of {largest} MiB")
    return tuple(found)
