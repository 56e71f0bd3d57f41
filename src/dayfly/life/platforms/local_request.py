"""What a function of the local platform is started with, as its process reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from dayfly.life.platforms.base import Invocation
from dayfly.life.platforms.confinement import Confinement
from dayfly.specs.invoking import Invoking


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a function finds around it.

    Args:
        path: its `sys.path`.
        environment: its variables, all.
        gpu: the GPU that it is to see, as CUDA_VISIBLE_DEVICES names it; None: it is given none.
        netns: the network namespace that it enters; None: it stays in its zygote's.
    """

    path: tuple[str, ...]
    environment: Mapping[str, str]
    gpu: str | None = None
    netns: str | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """Which functions a function invokes at its start, before its handler runs.

    Args:
        functions: names of those, in the order of the calls.
        how: how long a call takes, and how many are under way at once.
    """

    functions: tuple[str, ...] = ()
    how: Invoking = field(default_factory=Invoking)


def request_of(
    invocation: Invocation,
    payload: bytes,
    confinement: Confinement,
    surroundings: Surroundings,
    calls: Calls,
) -> bytes:
    """Returns the request, as JSON; `local_function` reads it.

    Args:
        invocation: the function.
        payload: its own, as JSON.
        confinement: its limits.
        surroundings: what it finds around it.
        calls: that it makes.
    """
    spec = invocation.spec
    head = {
        "function": invocation.function,
        "attempt": invocation.attempt,
        "handler": invocation.handler,
        "path": [os.path.abspath(entry) for entry in surroundings.path],
        "environment": dict(surroundings.environment),
        "gpu": surroundings.gpu,
        "netns": surroundings.netns,
        "spec": {
            "memory_mib": spec.memory_mib,
            "lifetime_s": spec.lifetime_s,
            "cold_start_s": spec.cold_start_s,
            "payload_bytes": spec.payload_bytes,
            "gpu_share": spec.gpu_share,
            "data_bytes": confinement.own_bytes if confinement.memory is None else None,
        },
        "cgroups": [str(cgroup.procs_path) for cgroup in confinement.cgroups],
        "on_cpu": confinement.on_cpu,
        "invokes": calls.functions,
        "invoke_call_s": calls.how.call_s,
        "invoke_at_once": calls.how.at_once,
    }
    return json.dumps(head).encode()[:-1] + b', "payload": ' + payload + b"}"
