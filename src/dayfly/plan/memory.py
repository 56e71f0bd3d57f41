"""The most memory that a stage's functions take: what is held at the end of the forward passes."""

from __future__ import annotations

from dayfly.plan.configuration import Configuration
from dayfly.plan.profile import Profile
from dayfly.plan.stages import stage_layers, stage_memory_mib

_MIB = 2**20


def peak_mib(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Of a worker of this stage: base, parameters, gradients, optimizer's state, activations.

    Of the micro-batches that are between their passes: all of them by fill-drain, as many as there
    are stages from this one on by 1F1B.
    """
    size = profile.size(stage_memory_mib(configuration, stage))
    layers = stage_layers(profile, configuration, stage)
    trained = sum(layer.trained for layer in layers)
    parameters = sum(layer.parameters + layer.buffers for layer in layers)
    c = configuration
    samples = -(-c.batch_size // c.replicas if c.cut else c.batch_size // -c.workers)
    held = -(-abs(samples) // c.micro_batches)
    if c.cut:
        behind = c.stages - stage
        held *= min(c.micro_batches, behind) if c.schedule == "1f1b" else c.micro_batches
    kept = held * sum(layer.activations for layer in layers)
    return (
        size.base_mib.value
        + (parameters + trained * (1 + profile.state_per_trained_byte) + kept) / _MIB
    )
