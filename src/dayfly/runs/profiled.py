"""Whether a profile is of a job: its layers, and what each weighs."""

from __future__ import annotations

from torch import nn

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.profile import Profile
from dayfly.runs.profiling.layers import Layers, weights


def check_profiled(job: Job, model: nn.Module, profile: Profile) -> None:
    """Raise RequestError if the job's model is not the one that was profiled.

    That is one of as many layers, with as many bytes of parameters each.
    """
    found = Layers.of(job, model)
    if len(found.modules) != len(profile.layers):
        raise _another(
            profile, f"it has {_count(len(profile.layers))}, the job's {_count(len(found.modules))}"
        )
    for name, weight, layer in zip(
        found.names, weights(found.modules), profile.layers, strict=True
    ):
        if weight.parameters != layer.parameters:
            raise _another(
                profile,
                f"its layer {layer.name!r} has {layer.parameters} bytes of parameters, and the "
                f"job's {name!r} {weight.parameters}",
            )


def _another(profile: Profile, how: str) -> RequestError:
    return RequestError(
        f"the plan's profile of {profile.job!r} is of another model than the job's: {how}; profile "
        "this job, and plan it anew"
    )


def _count(layers: int) -> str:
    return f"{layers} layer{'s' * (layers != 1)}"
