"""Seconds of `dayfly plan`, given a profile: the whole command, in processes of their own.

    profile       of a model for Lambda over S3 by the catalogue, 8 memory sizes, 50,000 samples
    plan          dayfly plan PROFILE.json
    everywhere    dayfly plan PROFILE.json --everywhere

One round has each command once, one after another, so that a busy minute is shared by all; a round
before the first is not counted: it compiles the search, and reads files into memory. CPU seconds
are those of the command's process and its children. Python keeps the bytecode of modules, as where
dayfly is installed: compiling them anew takes a tenth of a plan.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.parts.catalogued_models import profiled
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.spread import columns, framed, say, shown, spread
from dayfly.errors import RunFailed
from dayfly.planning.profile import profile_text

ROUNDS = 7
_MEMORY_MIB = (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240)
_BATCH_SIZE = 64
_NAMES = {"bert_large": "BERT-Large", "amoebanet_d36": "AmoebaNet-D36", "resnet18": "ResNet-18"}
_COMMANDS: Mapping[str, Sequence[str]] = {"plan": (), "everywhere": ("--everywhere",)}


def run(rounds: int) -> dict[str, Any]:
    """Measures; the result has a row a model and command.

    Args:
        rounds: that count.

    Raises:
        RunFailed: a command fails.
    """
    on_what = machine()
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = {name: Path(scratch, f"{name}.json") for name in _NAMES}
        for name, file in files.items():
            made = profiled(name, memory_mib=_MEMORY_MIB, batch_size=_BATCH_SIZE)
            file.write_text(profile_text(made))
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "a round that is not counted")
            for name, file in files.items():
                for command, flags in _COMMANDS.items():
                    took = _timed(["plan", str(file), *flags, "--json"])
                    if number:
                        figures.setdefault((name, command), []).append(took)
    rows = []
    for (name, command), took in figures.items():
        row: dict[str, Any] = {"model": _NAMES[name], "command": command}
        for what, seconds in zip(("wall_s", "cpu_s"), zip(*took, strict=True), strict=True):
            row |= spread(what, seconds)
        rows.append(row)
    return {"machine": on_what, "rounds": rounds, "rows": rows}


def table(result: Mapping[str, Any]) -> Table:
    """Returns the result for a person."""
    rows = columns(["model", "command"], ["seconds", "spread", "CPU s", "spread"])
    for row in result["rows"]:
        rows.add_row(
            row["model"], row["command"], *shown(row, "wall_s", 2), *shown(row, "cpu_s", 2)
        )
    heading = (
        f"dayfly plan PROFILE.json, median of {result['rounds']} rounds\n"
        f"{machine_line(result['machine'])}"
    )
    return framed(heading, rows)


def _timed(arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds and CPU seconds of a command."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dayfly", *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RunFailed(f"dayfly {' '.join(arguments)} failed: {done.stderr.strip()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, used
