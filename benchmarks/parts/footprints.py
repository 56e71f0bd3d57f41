"""What workers need of memory, predicted and measured: a run each, under a limit that is ample.

    uv run python -m benchmarks.parts.footprints [PART OF A NAME ...]

Each job is profiled once; the peak of each stage's functions is predicted from that alone.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import dayfly
from benchmarks.parts.redis_server import RedisServer
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import columns, framed, say
from dayfly import models
from dayfly.life.sessions import Session
from dayfly.planning.memory import peak_mib
from dayfly.planning.profile import Profile
from dayfly.runs.events import coordinator_events
from dayfly.runs.plans import JobSpec, configuration
from dayfly.runs.profiling.measuring import profile
from dayfly.runs.settings import Settings
from dayfly.specs.events import Ended

Json = dict[str, Any]
#: Of a function: more than any of these needs.
AMPLE_MIB = 3000
#: What is promised of a prediction: at most so much above what was measured, and below.
ABOVE, BELOW = 0.10, 0.03
#: In settings: a server of the script's own.
REDIS = "redis"
_STEPS, _VALIDATION = 6, 16
_WAIT_S = 60.0


def momentum(parameters: Any) -> torch.optim.Optimizer:
    """SGD with a state of the parameters' size."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Of twice the parameters' size."""
    return torch.optim.Adam(parameters, lr=1e-4)


def deep(width: int, depth: int) -> nn.Sequential:
    """Linear layers of 4 width^2 bytes; from 256 features to ten scores."""
    inner = (layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU()))
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), *inner, nn.Linear(width, 10))


def cases(scratch: Path) -> Iterator[tuple[str, dayfly.Job, Sequence[Mapping[str, Any]]]]:
    """Jobs by name, and how each is run."""

    def job(data: Path, batch_size: int, model: Any, optimizer: Any) -> dayfly.Job:
        return dayfly.Job(
            model=model,
            data=data,
            loss=nn.functional.cross_entropy,
            optimizer=optimizer,
            batch_size=batch_size,
        )

    features = _arrays(scratch / "features", 64, (256,), 10)
    yield (
        "mlp",
        job(features, 64, lambda: deep(2048, 8), momentum),
        (
            {},
            {"workers": 2},
            {"workers": 2, "collective": "all-reduce", "compress": "bf16"},
            {"workers": 3, "channel": REDIS},
            {"workers": 3, "channel": REDIS, "collective": "all-reduce"},
            {"workers": 2, "sync": "local-sgd", "k": 2},
            {"cut": [7, 13], "micro_batches": 4},
        ),
    )
    yield (
        "mlp, Adam",
        job(features, 64, lambda: deep(1024, 10), adam),
        ({}, {"workers": 4}, {"workers": 2, "sync": "local-sgd", "k": 3}),
    )
    digits = _arrays(scratch / "digits", 512, (1, 8, 8), 10)
    yield (
        "digits CNN",
        job(digits, 512, models.digits_cnn, momentum),
        ({}, {"workers": 4, "micro_batches": 2}),
    )
    tokens = _arrays(scratch / "tokens", 16, (96,), 97, tokens=True)
    yield (
        "GPT",
        job(tokens, 16, lambda: models.gpt(width=512, layers=6, heads=8), adam),
        (
            {},
            {"workers": 2, "micro_batches": 2},
            {"cut": [3, 5], "micro_batches": 4},
            {"cut": [4], "micro_batches": 8, "schedule": "1f1b"},
        ),
    )
    images = _arrays(scratch / "images", 64, (3, 32, 32), 10)
    yield (
        "ResNet",
        job(images, 64, models.resnet18_32, momentum),
        (
            {},
            {"workers": 2},
            {"micro_batches": 4},
            {"cut": [5], "micro_batches": 4},
            {"cut": [5], "micro_batches": 8, "schedule": "1f1b"},
        ),
    )


def measure(names: Sequence[str]) -> list[Json]:
    """A row for each stage of each run. names: parts of those of jobs; none: all."""
    rows: list[Json] = []
    with Session.open() as session, RedisServer() as server:
        scratch = scratch_of(session)
        for name, job, ways in cases(scratch):
            if names and not any(part in name for part in names):
                continue
            known = profile(job, Settings(memory_mib=AMPLE_MIB), quick=True)
            for way in ways:
                settings, there = dict(way), known
                if way.get("channel") == REDIS:
                    settings["channel"] = server.url
                    there = replace(known, channel=server.url)
                for row in compared(name, job, there, settings, scratch / "run"):
                    rows.append(row)
                    say(
                        f"{name} {row['settings']} stage {row['stage']}: "
                        f"{row['predicted_mib']:.0f} predicted, {row['measured_mib']:.0f} "
                        f"measured: {100 * row['error']:+.1f}%"
                    )
    return rows


def compared(
    name: str, job: dayfly.Job, known: Profile, settings: Mapping[str, Any], run_dir: Path
) -> list[Json]:
    """A row for each stage of a run; the run is removed. error: of the prediction, a share."""
    asked = Settings(memory_mib=AMPLE_MIB, **settings)
    chosen = configuration(asked, JobSpec.of(job))
    try:
        run = dayfly.train(
            job,
            run_dir=run_dir,
            memory_mib=AMPLE_MIB,
            progress=False,
            wait_timeout_s=_WAIT_S,
            **settings,
        )
        ended = [
            one for one in coordinator_events(run.directory / "events") if isinstance(one, Ended)
        ]
        lasted_s = run.result.wall_s
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    rows = []
    for stage in range(chosen.stages):
        ranks = range(stage * asked.members, (stage + 1) * asked.members)
        measured = max(one.peak_mib or 0.0 for one in ended if one.rank in ranks)
        predicted = peak_mib(known, chosen, stage, lasts_s=lasted_s)
        rows.append(
            {
                "job": name,
                "settings": _in_words(settings),
                "stage": stage,
                "measured_mib": measured,
                "predicted_mib": predicted,
                "error": predicted / measured - 1,
            }
        )
    return rows


def table(rows: Sequence[Json]) -> Table:
    """For a person."""
    made = columns(["job", "run with"], ["stage", "measured MiB", "predicted MiB", "error"])
    for row in rows:
        made.add_row(
            row["job"],
            row["settings"],
            str(row["stage"]),
            f"{row['measured_mib']:.0f}",
            f"{row['predicted_mib']:.0f}",
            f"{100 * row['error']:+.1f}%",
        )
    kept = sum(-BELOW <= row["error"] <= ABOVE for row in rows)
    return framed(
        "peak memory of workers",
        made,
        f"{kept} of {len(rows)} within {ABOVE:.0%} above and {BELOW:.0%} below",
    )


def _in_words(settings: Mapping[str, Any]) -> str:
    """A channel by its scheme alone."""
    named = ((key, str(value).partition("://")[0]) for key, value in settings.items())
    return " ".join(f"{key}={value}" for key, value in named) or "-"


def _arrays(
    directory: Path, batch: int, shape: tuple[int, ...], kinds: int, *, tokens: bool = False
) -> Path:
    """Samples of some steps, drawn by a seed. tokens: whole numbers, each with one to tell."""
    drawn, made = np.random.default_rng(0), {}
    for part, samples in (("train", _STEPS * batch), ("val", _VALIDATION)):
        many = (samples, *shape)
        made[f"x_{part}"] = (
            drawn.integers(0, kinds, many) if tokens else drawn.normal(size=many).astype("float32")
        )
        made[f"y_{part}"] = drawn.integers(0, kinds, many if tokens else samples)
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in made.items():
        np.save(directory / f"{name}.npy", array)
    return directory


if __name__ == "__main__":
    Console().print(table(measure(sys.argv[1:])))
