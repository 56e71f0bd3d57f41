"""The problems of `pipelines`, from a profile and the catalogue.

FuncPipe's equation 3b has mu a + copies s + s_0 for a function's memory. A worker's parts, which
`planning.memory` has, are put into these terms: what goes by parameters into `copies`, what goes by
a micro-batch into `a`, and the rest into s_0. They do not quite go in; so `spare_mib` makes room,
and who chooses asks `planning.memory` afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.planning.channels import Means
from dayfly.planning.choose.from_profile import allowed, limited, most_at_once, vcpus
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.planning.memory import WORKER_MIB
from dayfly.planning.profile import Profile, SizeProfile

_MIB = 2**20
#: Activations take so much more than their bytes (`planning.memory`).
_GAPS = 1.08


def stages_problems(
    profile: Profile,
    platform: FunctionPlatform,
    *,
    batch_size: int,
    micro_batches: Sequence[int],
    functions_at_once: int,
    vcpus_at_once: float = math.inf,
    spare_mib: float = 0.0,
) -> tuple[Problem, ...]:
    """FuncPipe's problem for each number of micro-batches over a store; Hydrozoa's for each memory
    size over direct links.

    platform: whose prices. batch_size: of a step. micro_batches: of a step, all replicas' together;
    those that are more than its samples are left out. vcpus_at_once: of all functions. spare_mib:
    that functions are to have more than the equation says. Raises RequestError for a model that
    cannot be cut, and without prices or limited memory sizes.
    """
    if not profile.listed or len(profile.layers) < 2:
        raise RequestError(f"the model of {profile.job} is no list of layers: it cannot be cut")
    possible = [m for m in sorted(set(micro_batches)) if m <= batch_size]
    if not possible:
        raise RequestError(
            f"micro-batches {','.join(map(str, micro_batches))} of {batch_size} samples: give a "
            f"number up to {batch_size}"
        )
    if Means.of(profile).direct:
        return tuple(
            StagesOverLinks(
                micro_batches=tuple(
                    _way(profile, platform, memory_mib, size, batch_size, m, spare_mib)
                    for m in possible
                ),
                containers=tuple(
                    range(1, most_at_once(size, functions_at_once, vcpus_at_once) + 1)
                ),
                copies=_copies(profile),
            )
            for memory_mib, size in allowed(profile, vcpus_at_once)
        )
    return tuple(
        StagesOverStore(
            layers=layers_of(profile, -(-batch_size // m)),
            options=tuple(
                _option(profile, platform, memory_mib, size, -(-batch_size // m), spare_mib)
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
        )
        for m in possible
    )


def layers_of(profile: Profile, samples: int) -> tuple[LayerBytes, ...]:
    """Bytes of a micro-batch of so many samples."""
    return tuple(
        LayerBytes(
            parameter_bytes=float(layer.parameters + layer.buffers),
            activation_bytes=_GAPS * samples * layer.activations,
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
    memory_mib: int,
    size: SizeProfile,
    samples: int,
    spare_mib: float,
) -> MemoryOption:
    reading_s = size.data(samples)
    forward = [one(samples) for one in size.forward]
    forward[0] += reading_s
    return MemoryOption(
        memory_mib=memory_mib,
        forward_s=tuple(forward),
        backward_s=tuple(one(samples) for one in size.backward),
        bytes_per_s=min(size.up.peak_bytes_per_s.value, size.down.peak_bytes_per_s.value),
        base_bytes=_MIB * (size.base_mib.value + WORKER_MIB + spare_mib),
        usd_per_s=platform.usd_per_s(memory_mib),
        vcpus=vcpus(size),
    )


def _way(
    profile: Profile,
    platform: FunctionPlatform,
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
        container=_option(profile, platform, memory_mib, size, samples, spare_mib),
    )
