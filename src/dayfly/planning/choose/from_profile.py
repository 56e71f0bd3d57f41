"""The planners' problems of cut models, and sizes of functions, from a profile and the catalogue.

Workers read samples beside computing, so reading is part of a step's time here: no data are loaded
beforehand, as FasDL's equation 5 has it.

FuncPipe's equation 3b has mu a + copies s + s_0 for a function's memory. A worker's parts, which
`planning.memory` has, are put into these terms: what goes by parameters into `copies`, what goes by
a micro-batch into `a`, and the rest into s_0. What does not go in is for `stage_memory`; of what is
left, `spare_mib` makes room, and who chooses asks `planning.memory` afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dayfly.catalogue.gpu import CONTEXT_MIB
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.planning.choose.ring_rounds import alpha_and_beta
from dayfly.planning.configuration import ITEM_BYTES, flat
from dayfly.planning.data_parallel import TAIL
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.gpus import gpu_room_mib
from dayfly.planning.memory import WORKER_MIB
from dayfly.planning.pass_memory import gaps_share
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.pipelines.orders import FILL_DRAIN


def vcpus(size: SizeProfile) -> float:
    """Of a function; one that nothing limits computes by one thread."""
    return 1.0 if size.cpu_cores is None else size.cpu_cores


def most_at_once(size: SizeProfile, workers: int, vcpus_at_once: float) -> int:
    """Functions of a size, of so many at most, that have so many vCPUs together at most."""
    return int(min(workers, (1 + 1e-9) * vcpus_at_once / vcpus(size)))


def allowed(
    profile: Profile, vcpus_at_once: float, functions: int = 1
) -> list[tuple[int, SizeProfile]]:
    """Sizes of `limited`, so many functions of which may be there. Raises RequestError for none."""
    sizes = limited(profile)
    found = [one for one in sizes if most_at_once(one[1], functions, vcpus_at_once) == functions]
    if not found:
        memory_mib, least = min(sizes, key=lambda one: vcpus(one[1]))
        some = "a function" if functions == 1 else f"{functions} functions"
        raise RequestError(
            f"{some} of {memory_mib} MiB {'has' if functions == 1 else 'have'} "
            f"{functions * vcpus(least):.3g} vCPUs, and the limit is {vcpus_at_once:g} at once: "
            "allow more, or profile smaller functions"
        )
    return found


def summed_bytes(profile: Profile) -> float:
    """What a step sums: gradients, moves of buffers, and the tail."""
    return ITEM_BYTES * flat(profile.layers, tail=TAIL, listed=profile.listed).length


def limited(profile: Profile) -> list[tuple[int, SizeProfile]]:
    """Returns the sizes whose memory is limited, by rising memory.

    Raises:
        RequestError: there is none.
    """
    found = [(one.memory_mib, one) for one in profile.sizes if one.memory_mib is not None]
    if not found:
        raise RequestError(
            f"the profile of {profile.job} has no functions of limited memory, which alone have a "
            "price by size: profile it with --memory"
        )
    return sorted(found, key=lambda one: one[0])


def kinds_of_sizes(profile: Profile) -> tuple[FunctionKind, ...]:
    """Returns what all functions of a run may have beside their memory, each kind once."""
    return tuple(dict.fromkeys(map(profile.kind_of, profile.sizes)))


def of_kind(profile: Profile, kind: FunctionKind) -> Profile:
    """Returns the profile with the sizes of a kind alone; as it is, if it has no other."""
    sizes = tuple(size for size in profile.sizes if profile.kind_of(size) == kind)
    return replace(profile, sizes=sizes) if len(kinds_of_sizes(profile)) > 1 else profile


_MIB = 2**20
#: Of parameters in the machine's memory, of a worker on a GPU.
_HOST_COPIES = 2.0


def stages_problems(
    profile: Profile,
    platform: FunctionPlatform,
    *,
    batch_size: int,
    micro_batches: Sequence[int],
    functions_at_once: int,
    vcpus_at_once: float = math.inf,
    kind: FunctionKind = BY_MEMORY,
    spare_mib: float = 0.0,
    schedules: Sequence[str] = (FILL_DRAIN,),
    mixed: bool = False,
) -> tuple[Problem, ...]:
    """FuncPipe's problem for each number of micro-batches over a store; Hydrozoa's for each memory
    size over direct links; each once for every schedule.

    Args:
        platform: whose prices.
        batch_size: of a step.
        micro_batches: of a step, all replicas' together; those that are more than its samples are
            left out.
        vcpus_at_once: of all functions.
        kind: one of `kinds_of_sizes`.
        spare_mib: that functions are to have more than the equation says.
        schedules: orders of a step's passes, of `wire.pipelines.orders`.
        mixed: whether stages over a store may have different numbers of replicas.

    Raises:
        RequestError: for a model that cannot be cut, and without prices or limited memory sizes.
    """
    profile = of_kind(profile, kind)
    if not profile.listed or len(profile.layers) < 2:
        raise RequestError(f"the model of {profile.job} is no list of layers: it cannot be cut")
    possible = [m for m in sorted(set(micro_batches)) if m <= batch_size]
    if not possible:
        raise RequestError(
            f"micro-batches {','.join(map(str, micro_batches))} of {batch_size} samples: give a "
            f"number up to {batch_size}"
        )
    if ChannelModel.of(profile).direct:
        problems = []
        for memory_mib, size in allowed(profile, vcpus_at_once):
            ways = tuple(
                _way(profile, platform, kind, memory_mib, size, batch_size, m, spare_mib)
                for m in possible
            )
            alpha, beta = alpha_and_beta(profile, size, ways[0].container.bytes_per_s)
            most = most_at_once(size, functions_at_once, vcpus_at_once)
            problems += [
                StagesOverLinks(
                    micro_batches=ways,
                    containers=tuple(range(1, most + 1)),
                    ring_s_per_byte=alpha,
                    ring_round_s=beta,
                    copies=_copies(profile),
                    decline=profile.decline,
                    host=profile.host,
                    schedule=schedule,
                )
                for schedule in schedules
            ]
        return tuple(problems)
    return tuple(
        StagesOverStore(
            layers=layers_of(profile, -(-batch_size // m)),
            options=tuple(
                _option(profile, platform, kind, memory_mib, size, -(-batch_size // m), spare_mib)
                for memory_mib, size in allowed(profile, vcpus_at_once)
            ),
            degrees=tuple(range(1, min(m, functions_at_once) + 1)),
            micro_batches=m,
            latency_s=max(
                max(size.up.latency_s.value, size.down.latency_s.value)
                for _, size in limited(profile)
            ),
            beta=max(1.0, *(size.beta.value for _, size in limited(profile))),
            pipelined=(True, False),
            copies=_copies(profile),
            functions_at_once=functions_at_once,
            vcpus_at_once=None if math.isinf(vcpus_at_once) else vcpus_at_once,
            store=profile.channel,
            store_bytes_per_s=profile.store_bytes_per_s or math.inf,
            decline=profile.decline,
            host=profile.host,
            schedule=schedule,
            mixed=mixed,
        )
        for schedule in schedules
        for m in possible
    )


def layers_of(profile: Profile, samples: int) -> tuple[LayerBytes, ...]:
    """Bytes of a micro-batch of so many samples."""
    # Gaps between blocks follow from measured passes, in no proportion to activations. The search
    # leaves them out then; its plans are checked afterwards.
    gaps = min((gaps_share(size.passes) or 0.0 for size in profile.sizes), default=0.0)
    return tuple(
        LayerBytes(
            parameter_bytes=float(layer.parameters + layer.buffers),
            activation_bytes=(1 + gaps) * samples * layer.activations,
            output_bytes=samples * layer.output,
            gradient_bytes=samples * layer.gradient,
        )
        for layer in profile.layers
    )


def _copies(profile: Profile) -> tuple[float, float]:
    """Of parameters: themselves, their gradients and the optimizer's state; messages of sums are
    few beside them."""
    copies = 2.0 + profile.state_per_trained_byte
    return copies, copies


def _option(
    profile: Profile,
    platform: FunctionPlatform,
    kind: FunctionKind,
    memory_mib: int,
    size: SizeProfile,
    samples: int,
    spare_mib: float,
) -> MemoryOption:
    reading_s = size.data(samples)
    forward = [one(samples) for one in size.forward]
    forward[0] += reading_s
    base_mib, room_bytes = size.base_mib.value + WORKER_MIB, None
    if (room_mib := gpu_room_mib(profile, size)) is not None:
        # Two memories in one equation: of the machine's, parameters take one copy, the flat buffer,
        # and at the start another, so its room for parameters is brought to the GPU's copies.
        in_host = (memory_mib - base_mib - spare_mib) * max(_copies(profile)) / _HOST_COPIES
        base_mib = CONTEXT_MIB
        room_bytes = _MIB * max(0.0, min(room_mib, base_mib + spare_mib + in_host))
    return MemoryOption(
        memory_mib=memory_mib,
        forward_s=tuple(forward),
        backward_s=tuple(one(samples) for one in size.backward),
        bytes_per_s=min(size.up.peak_bytes_per_s.value, size.down.peak_bytes_per_s.value),
        base_bytes=_MIB * (base_mib + spare_mib),
        room_bytes=room_bytes,
        usd_per_s=platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus),
        vcpus=vcpus(size),
    )


def _way(
    profile: Profile,
    platform: FunctionPlatform,
    kind: FunctionKind,
    memory_mib: int,
    size: SizeProfile,
    batch_size: int,
    micro_batches: int,
    spare_mib: float,
) -> MicroBatches:
    samples = -(-batch_size // micro_batches)
    return MicroBatches(
        micro_batches=micro_batches,
        layers=layers_of(profile, samples),
        container=_option(profile, platform, kind, memory_mib, size, samples, spare_mib),
    )
