"""`dayfly plan`: its flags; what it does is in `choosing`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from dayfly.cli.flags import AsJson, Flag, Own, option, takes

_FOR_A_JOB = "of a job; one for all, or one a platform"


@takes(
    "imitate",
    platform=Flag(
        str,
        "Platforms of the catalogue; local: the job is measured on this machine.",
        "the profiles'",
        metavar="NAME,NAME,...",
    ),
    store=Flag(
        str,
        "Stores of the catalogue; tcp://: containers that reach each other.",
        "the profile's, or that of the platform's provider",
        ("--price-store", "--store"),
        metavar="NAME,NAME,...",
    ),
    deadline=Flag(str, "Choose the cheapest within it: 90, 90s, 30m or 2h.", metavar="TIME"),
    budget=Flag(float, "Choose the fastest within it.", metavar="USD"),
    weights=Flag(str, "Choose the least A1 dollars + A2 seconds.", metavar="A1,A2"),
    workers=Flag(int, "Functions at once, at most.", "64"),
    vcpus=Flag(
        float,
        "vCPUs that all functions have together, at most, as Fargate's quota.",
        "for a profile of this machine its cores",
    ),
    memory=Flag(
        str,
        "Memory sizes to choose among.",
        "all of the profile's, or usual ones of the platform",
        metavar="MIB,MIB,...",
    ),
    epochs=Flag(int, "Passes over the data.", "the job's"),
    batch_size=Flag(int, "Samples a step, all workers.", "the job's"),
    most_batch_size=Flag(
        int,
        "Choose the batch, too, up to so many samples, as FasDL does.",
        "the batch is the job's",
    ),
    micro_batches=Flag(
        str,
        "Micro-batches of a step, all replicas' together, to choose among.",
        "such as have 4 samples",
        metavar="N,N,...",
    ),
    collective=Flag(
        str,
        "All-reduce algorithms of models that are not cut, to choose among.",
        "all",
        metavar="NAME,NAME,...",
    ),
    time_limit=Flag(float, "Of search and re-ranking, at most, about.", "10", metavar="S"),
    flops_per_vcpu=Flag(
        str,
        f"What training gets out of a vCPU, {_FOR_A_JOB}.",
        "the catalogue's",
        metavar="GFLOP/S,...",
    ),
    cold_start=Flag(
        str,
        f"From the request to the handler, {_FOR_A_JOB}.",
        "the catalogue's, or 0",
        metavar="S,...",
    ),
    uplink=Flag(
        str,
        f"A function's way to the store, {_FOR_A_JOB}.",
        "the catalogue's",
        metavar="MB/S,...",
    ),
    downlink=Flag(str, "And back.", "the catalogue's", metavar="MB/S,..."),
    latency=Flag(
        str,
        "Of a request, of a job; one for all, or one a store.",
        "the catalogue's",
        metavar="MS,...",
    ),
    base_memory=Flag(
        float,
        "A worker's memory without a model, in MiB, of a job.",
        "a process's on this machine",
    ),
)
def plan(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.py|PROFILE.json...",
            help="A Python file with the variable `job`, or what dayfly profile wrote of it; "
            "profiles of several platforms or stores are compared.",
        ),
    ],
    quick: Annotated[
        bool, option("Measure less often, with --platform local.", True, "--quick")
    ] = False,
    own: Own = None,
    output: Annotated[Path | None, option("Write the plan, for dayfly train --plan.")] = None,
    plot: Annotated[
        Path | None,
        option(
            "Write a page, or a picture; into a directory both.",
            metavar="FILE.html|FILE.png|DIR",
        ),
    ] = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Choose how to run a job: seconds against dollars, a recommendation, and why."""
    of_a_job = any(file.suffix == ".py" for file in files)
    with nullcontext() if of_a_job else _uncollected():
        from dayfly.cli import choosing
        from dayfly.cli.outcome import shown

        code = shown(
            lambda: choosing.plan(files, context.params, output, plot, as_json=as_json),
            as_json=as_json,
        )
    raise typer.Exit(code)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nobody looks for garbage in cycles meanwhile: a tenth of a choice's time, and it leaves none.

    Imports of the choice are within.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
