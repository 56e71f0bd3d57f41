"""Profiles and policies made up for simulations."""

from __future__ import annotations

from typing import Any

from dayfly.life.deaths import PATIENCE
from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import Affine, Figure, LayerBytes, Profile, SizeProfile, Transfer
from dayfly.planning.simulation.course import course
from dayfly.planning.simulation.fleet import Policy
from dayfly.planning.simulation.outcome import Simulated
from dayfly.planning.simulation.scenario import Scenario
from dayfly.planning.simulation.simulate import simulate
from dayfly.planning.simulation.turns import Course

POLICY = Policy(
    spare_s=0.5,
    late_share=0.25,
    late_times=1.5,
    most_share=0.5,
    without_progress_s=900.0,
    deaths_of_one_cause=3,
    pause_s=PATIENCE.pause_s,
)


def size(memory_mib: int | None = 2048, **changes: Any) -> SizeProfile:
    """Four layers: 10 ms forward and 20 ms backward a sample each, over 50 MB/s and 20 ms."""
    way = Transfer(latency_s=Figure.given(0.02), peak_bytes_per_s=Figure.given(50e6))
    whole: dict[str, Any] = {
        "memory_mib": memory_mib,
        "cpu_cores": None,
        "forward": (Affine(0.0, 0.01),) * 4,
        "backward": (Affine(0.0, 0.02),) * 4,
        "data": Affine(0.0, 0.0),
        "apply": Affine(0.0, 1e-10),
        "step_s": Figure.given(0.001),
        "reduce_s_per_byte": 0.0,
        "up": way,
        "down": way,
        "beta": Figure.given(1.0),
        "init_s": Figure.given(0.5),
        "start_s": Figure.given(1.0),
        "end_s": Figure.given(0.2),
        "base_mib": Figure.given(200.0),
    }
    return SizeProfile(**whole | changes)


def profile(samples: int = 320, validation_samples: int = 32, **changes: Any) -> Profile:
    """Of four layers of 2 MB, whose output is 10 kB a sample."""
    layer: dict[str, Any] = {
        "parameters": 2_000_000,
        "trained": 2_000_000,
        "output": 1e4,
        "gradient": 1e4,
    }
    whole: dict[str, Any] = {
        "job": "made-up",
        "platform": "local",
        "imitate": None,
        "channel": "redis://localhost:6379/0",
        "listed": True,
        "samples": samples,
        "validation_samples": validation_samples,
        "sample_bytes": 100.0,
        "state_per_trained_byte": 1.0,
        "layers": tuple(LayerBytes(name=f"layer {n}", **layer) for n in range(4)),
        "sizes": (size(),),
    }
    return Profile(**whole | changes)


def configuration(workers: int = 4, **changes: Any) -> Configuration:
    whole: dict[str, Any] = {
        "workers": workers,
        "memory_mib": (2048,),
        "replicas": workers,
        "collective": "scatter-reduce",
        "batch_size": 8 * workers,
    }
    return Configuration(**whole | changes)


def made_course(
    of: Configuration,
    scenario: Scenario | None = None,
    known: Profile | None = None,
    *,
    replays: bool = True,
) -> Course:
    return course(known or profile(), of, scenario or Scenario(), replays=replays)


def simulated(
    of: Configuration,
    scenario: Scenario | None = None,
    known: Profile | None = None,
    *,
    replays: bool = True,
    watched: tuple[int, ...] = (),
    policy: Policy = POLICY,
) -> Simulated:
    asked = scenario or Scenario()
    return simulate(made_course(of, asked, known, replays=replays), asked, policy, watched)
