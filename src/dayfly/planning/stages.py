"""What each stage of a configuration has: its layers, and its functions."""

from __future__ import annotations

from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.crowd import beside
from dayfly.planning.near import near
from dayfly.planning.profile import LayerBytes, Profile, SizeProfile


def stage_range(profile: Profile, configuration: Configuration, stage: int) -> range:
    """Numbers of the stage's layers."""
    ends = (0, *configuration.cut, len(profile.layers))
    return range(ends[stage], ends[stage + 1])


def stage_layers(
    profile: Profile, configuration: Configuration, stage: int
) -> tuple[LayerBytes, ...]:
    """The stage's layers."""
    mine = stage_range(profile, configuration, stage)
    return profile.layers[mine.start : mine.stop]


def stage_memory_mib(configuration: Configuration, stage: int) -> int | None:
    """Memory of the stage's functions."""
    sizes = configuration.memory_mib
    return sizes[stage] if len(sizes) > 1 else sizes[0]


def stage_size(profile: Profile, configuration: Configuration, stage: int) -> SizeProfile:
    """The profile of the stage's functions, near what they compute at once, and as all workers
    compute beside each other; of a model that is not cut, of all functions. Raises RequestError if
    there is none."""
    c = configuration
    size = near(profile.size(stage_memory_mib(c, stage)), micro_samples(profile, c))
    if size.crowd_cores <= 0 or c.workers == 1:
        return size
    each = c.workers // c.stages
    speeds = [profile.size(stage_memory_mib(c, one)).speed for one in range(c.stages)]
    return beside(size, each * sum(speeds) - size.speed)


def micro_samples(profile: Profile, configuration: Configuration) -> int:
    """Samples that a worker computes at once, at most."""
    c = configuration
    mine = -(-min(c.batch_size, profile.samples) // (c.replicas if c.cut else c.workers))
    return -(-mine // c.micro_batches)


def start_s(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Seconds from the handler to the first step: what one worker of the whole model takes, less
    reading the state of the other stages."""
    size = stage_size(profile, configuration, stage)
    others = _state_bytes(profile, profile.layers) - _state_bytes(
        profile, stage_layers(profile, configuration, stage)
    )
    return max(0.0, size.start_s.value - size.down.occupied_s(others))


def end_s(profile: Profile, configuration: Configuration, stage: int) -> float:
    """Seconds from the last step to the end: what one worker of the whole model takes, less writing
    what the others write of the checkpoint."""
    c, size = configuration, stage_size(profile, configuration, stage)
    mine = _state_bytes(profile, stage_layers(profile, c, stage))
    mine /= c.replicas if c.cut else c.workers
    others = _state_bytes(profile, profile.layers) - mine
    return max(0.0, size.end_s.value - size.up.occupied_s(others))


def _state_bytes(profile: Profile, layers: tuple[LayerBytes, ...]) -> float:
    """Of a checkpoint: parameters, buffers and the optimizer's state."""
    return sum(
        layer.parameters + layer.buffers + layer.trained * profile.state_per_trained_byte
        for layer in layers
    )


def check_configuration(profile: Profile, configuration: Configuration) -> None:
    """Raise RequestError for what cannot be run, or not be predicted."""
    c, layers = configuration, len(profile.layers)
    if c.workers < 1 or c.batch_size < 1 or c.micro_batches < 1 or c.epochs < 1:
        raise RequestError(
            f"workers {c.workers}, batch_size {c.batch_size}, micro_batches {c.micro_batches}, "
            f"epochs {c.epochs}: give numbers from 1"
        )
    if c.cut and not profile.listed:
        raise RequestError(
            f"the model of {profile.job} is no list of layers, so it cannot be cut: leave cut out"
        )
    if list(c.cut) != sorted(set(c.cut)) or any(not 0 < at < layers for at in c.cut):
        raise RequestError(
            f"cut {list(c.cut)}: give rising numbers of layers from 1 to {layers - 1}"
        )
    if c.cut and c.stages * c.replicas != c.workers:
        raise RequestError(
            f"{c.workers} workers are not {c.stages} stages in {c.replicas} replicas: "
            f"give {c.stages * c.replicas}"
        )
    if len(c.memory_mib) not in (1, c.stages):
        raise RequestError(
            f"{len(c.memory_mib)} memory sizes for {c.stages} stages: give one, or one a stage"
        )
    members = c.replicas if c.cut else c.workers
    if c.batch_size < members:
        raise RequestError(
            f"a batch of {c.batch_size} cannot be shared by {members} workers: raise batch_size"
        )
    if c.cut and not c.protocol.cuts:
        raise RequestError(
            f"sync {c.sync!r} of a cut model is not run, so its steps cannot be predicted: give "
            "bsp, or leave out the cut"
        )
    if c.compress.startswith("powersgd") or (c.compress != "none" and c.cut):
        raise RequestError(
            f"compress {c.compress!r} {'of a cut model ' if c.cut else ''}cannot be predicted: "
            "give none, or bf16 or int8 of a model that is not cut"
        )
