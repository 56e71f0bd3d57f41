"""Profiles written by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dayfly.planning.profile import Affine, Figure, LayerBytes, Profile, SizeProfile, Transfer
from dayfly.wire.shaping import Rates

given = Figure.given


def transfer(bytes_per_s: float = 10e6, latency_s: float = 0.0, **more: Any) -> Transfer:
    """A way of an even throughput."""
    return Transfer(latency_s=given(latency_s), peak_bytes_per_s=given(bytes_per_s), **more)


def layer(name: str, elements: int = 0, *, moving: int = 0, passed: float = 4.0) -> LayerBytes:
    """A layer with one parameter, and buffers."""
    return LayerBytes(
        name=name,
        parameters=4 * elements,
        trained=4 * elements,
        buffers=4 * moving,
        activations=2 * passed,
        output=passed,
        gradient=passed,
        tensors=(elements,) if elements else (),
        moving=moving,
    )


def size(layers: int, memory_mib: int | None = 1024, **more: Any) -> SizeProfile:
    """Functions that compute a layer's pass of a sample forward in 1 ms, and backward in 2 ms, and
    do nothing else; over a way of 10 MB/s without latency."""
    values: dict[str, Any] = {
        "memory_mib": memory_mib,
        "cpu_cores": None,
        "forward": (Affine(0.0, 0.001),) * layers,
        "backward": (Affine(0.0, 0.002),) * layers,
        "data": Affine(0.0, 0.0),
        "apply": Affine(0.0, 0.0),
        "step_s": given(0.0),
        "reduce_s_per_byte": 0.0,
        "up": transfer(),
        "down": transfer(),
        "beta": given(1.0),
        "init_s": given(0.25),
        "start_s": given(0.5),
        "end_s": given(0.125),
        "base_mib": given(200.0),
        "rates": Rates(up_bytes_per_s=10e6, down_bytes_per_s=10e6),
    }
    return SizeProfile(**{**values, **more})


def profile(layers: Sequence[LayerBytes], *sizes: SizeProfile, **more: Any) -> Profile:
    """Of 1000 samples, over files behind a limited way."""
    values: dict[str, Any] = {
        "job": "by-hand",
        "platform": "local",
        "imitate": None,
        "channel": "file:///dev/shm",
        "listed": True,
        "samples": 1000,
        "validation_samples": 100,
        "sample_bytes": 100.0,
        "state_per_trained_byte": 1.0,
        "layers": tuple(layers),
        "sizes": sizes or (size(len(layers)),),
    }
    return Profile(**{**values, **more})


def slower(made: SizeProfile, **changes: Any) -> SizeProfile:
    """Another size."""
    return replace(made, **changes)
