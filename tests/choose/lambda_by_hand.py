"""A job on AWS Lambda over S3, as a profile from the catalogue has it, for tests."""

from __future__ import annotations

from typing import Any

from dayfly.planning.profile import Affine, Profile, SizeProfile
from tests.planning import by_hand

LATENCY_S, BYTES_PER_S = 0.04, 70e6
SIZES = (1024, 2048, 4096)


def functions(memory_mib: int, layers: int, **more: Any) -> SizeProfile:
    """Functions that compute a sample's pass through a layer in 32 ms over GiB forward, and in
    twice that backward, and have a vCPU for each."""
    each = 0.032 * 1024 / memory_mib
    way = by_hand.transfer(BYTES_PER_S, LATENCY_S)
    given: dict[str, Any] = {
        "forward": (Affine(0.0, each),) * layers,
        "backward": (Affine(0.0, 2 * each),) * layers,
        "up": way,
        "down": way,
        "rates": None,
        "cpu_cores": memory_mib / 1024,
        "init_s": by_hand.given(1.0),
        "start_s": by_hand.given(LATENCY_S),
        "end_s": by_hand.given(0.0),
    }
    return by_hand.size(layers, memory_mib, **{**given, **more})


def job(layers: int = 4, megabytes: float = 40.0, **more: Any) -> Profile:
    """640 samples in batches of 64, for an epoch; layers of so many MB of parameters each, that
    pass 100 KB a sample on and keep 400."""
    made = [
        by_hand.layer(f"layer-{at}", round(megabytes * 1e6 / 4), passed=100e3)
        for at in range(layers)
    ]
    given: dict[str, Any] = {
        "job": "by-hand",
        "imitate": "aws-lambda",
        "channel": "s3",
        "how": "catalogue",
        "samples": 640,
        "validation_samples": 64,
        "batch_size": 64,
    }
    sizes = [functions(memory_mib, layers) for memory_mib in SIZES]
    return by_hand.profile(made, *sizes, **{**given, **more})
