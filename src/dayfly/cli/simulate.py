"""`dayfly simulate`: its flags; what it does is in `simulated`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dayfly.cli.flags import AsJson, Own, RunDir


def simulate(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN.json", help="A plan, as dayfly predict writes it.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 0,
    deaths_per_hour: Annotated[
        float, typer.Option(help="Deaths of each function, at random moments.")
    ] = 0.0,
    cold_start: Annotated[
        float, typer.Option(help="Added to each start of a function, in s.")
    ] = 0.0,
    cold_start_sigma: Annotated[
        float, typer.Option(help="How much that varies (log-normal).")
    ] = 0.0,
    jitter: Annotated[
        float, typer.Option(metavar="SIGMA", help="How much compute times vary (log-normal).")
    ] = 0.0,
    stragglers: Annotated[int, typer.Option(help="Workers that are slow throughout.")] = 0,
    straggler_factor: Annotated[
        float | None, typer.Option(help="How much slower they compute.", show_default="2")
    ] = None,
    store_rate: Annotated[
        float | None,
        typer.Option(
            metavar="MB/s",
            help="What the store carries for all functions together, each way.",
            show_default="the catalogue's",
        ),
    ] = None,
    decline: Annotated[
        str | None,
        typer.Option(
            metavar="N:F,N:F,...",
            help="Part F of its bandwidth that a function has left when N run, linear between.",
            show_default="all of it",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--price-store",
            "--store",
            help="Store of the catalogue whose cap and prices count.",
            show_default="the profile's channel, if it is one",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Functions at once.", show_default="the plan's")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Functions a stage.", show_default="the plan's")
    ] = None,
    lifetime: Annotated[
        float | None, typer.Option(help="A function's life, in s.", show_default="the plan's")
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Longest time between run checkpoints, in s.", show_default="the plan's"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data.", show_default="the plan's")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples a step, all workers.", show_default="the plan's")
    ] = None,
    own: Own = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan's whole run in virtual time: deaths, hand-overs, slow stores and workers."""
    from dayfly.cli import simulated as command

    raise typer.Exit(
        command.simulate(
            plan,
            {
                "seed": seed,
                "deaths_per_hour": deaths_per_hour,
                "cold_start_s": cold_start,
                "cold_start_sigma": cold_start_sigma,
                "straggler_sigma": jitter,
                "stragglers": stragglers,
                "straggler_factor": straggler_factor,
                "store_bytes_per_s": None if store_rate is None else store_rate * 1e6,
                "workers": workers,
                "replicas": replicas,
                "lifetime_s": lifetime,
                "checkpoint_every_s": checkpoint_every,
                "epochs": epochs,
                "batch_size": batch_size,
                "price_store": store,
                "run_dir": run_dir,
            },
            decline=decline,
            own=own,
            as_json=as_json,
        )
    )
