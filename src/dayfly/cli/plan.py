"""`dayfly plan`: its flags; what it does is in `choosing`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from dayfly.cli.flags import AsJson, BatchSize, Epochs, Imitate, Own

_FOR_A_JOB = "of a job; one for all, or one a platform"


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
    platform: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Platforms of the catalogue; local: the job is measured on this machine.",
            show_default="the profiles'",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--price-store",
            "--store",
            metavar="NAME,NAME,...",
            help="Stores of the catalogue; tcp://: containers that reach each other.",
            show_default="the profile's, or that of the platform's provider",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Choose the cheapest within it: 90, 90s, 30m or 2h."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="USD", help="Choose the fastest within it.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="A1,A2", help="Choose the least A1 dollars + A2 seconds."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Functions at once, at most.", show_default="64")
    ] = None,
    vcpus: Annotated[
        float | None,
        typer.Option(
            help="vCPUs that all functions have together, at most, as Fargate's quota.",
            show_default="for a profile of this machine its cores",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="MIB,MIB,...",
            help="Memory sizes to choose among.",
            show_default="all of the profile's, or usual ones of the platform",
        ),
    ] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    most_batch_size: Annotated[
        int | None,
        typer.Option(
            help="Choose the batch, too, up to so many samples, as FasDL does.",
            show_default="the batch is the job's",
        ),
    ] = None,
    micro_batches: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Micro-batches of a step, all replicas' together, to choose among.",
            show_default="such as have 4 samples",
        ),
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="All-reduce algorithms of models that are not cut, to choose among.",
            show_default="all",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Of search and re-ranking, at most, about.", show_default="10"
        ),
    ] = None,
    flops_per_vcpu: Annotated[
        str | None,
        typer.Option(
            metavar="GFLOP/S,...",
            help=f"What training gets out of a vCPU, {_FOR_A_JOB}.",
            show_default="the catalogue's",
        ),
    ] = None,
    cold_start: Annotated[
        str | None,
        typer.Option(
            metavar="S,...",
            help=f"From the request to the handler, {_FOR_A_JOB}.",
            show_default="the catalogue's, or 0",
        ),
    ] = None,
    uplink: Annotated[
        str | None,
        typer.Option(
            metavar="MB/S,...",
            help=f"A function's way to the store, {_FOR_A_JOB}.",
            show_default="the catalogue's",
        ),
    ] = None,
    downlink: Annotated[
        str | None,
        typer.Option(metavar="MB/S,...", help="And back.", show_default="the catalogue's"),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="MS,...",
            help="Of a request, of a job; one for all, or one a store.",
            show_default="the catalogue's",
        ),
    ] = None,
    base_memory: Annotated[
        float | None,
        typer.Option(
            help="A worker's memory without a model, in MiB, of a job.",
            show_default="a process's on this machine",
        ),
    ] = None,
    imitate: Imitate = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure less often, with --platform local.")
    ] = False,
    own: Own = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the plan, for dayfly train --plan.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html|FILE.png|DIR",
            help="Write a page, or a picture; into a directory both.",
        ),
    ] = None,
    as_json: AsJson = False,
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
