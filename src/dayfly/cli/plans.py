"""The commands of plans: `profile`, `predict`, `simulate`; what they do is beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dayfly.cli.flags import (
    Aggregators,
    AsJson,
    BatchSize,
    Channel,
    CheckpointEvery,
    ColdStart,
    Compress,
    Cpu,
    Cut,
    Downlink,
    Epochs,
    Imitate,
    K,
    Latency,
    Lifetime,
    Own,
    Platform,
    PlatformOption,
    Replicas,
    Schedule,
    Several,
    SeveralCollectives,
    SeveralMemory,
    SeveralMicroBatches,
    StageMemory,
    Sync,
    Uplink,
    WaitTimeout,
    function_settings,
)
from dayfly.cli.simulate import simulate

plans = typer.Typer()


@plans.command()
def profile(
    context: typer.Context,
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.py", help="Python file with the variable `job`.")
    ],
    memory_sizes: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="MIB,MIB,...",
            help="Memory of functions, in MiB: each is measured.",
            show_default="not limited",
        ),
    ] = None,
    platform: Platform = None,
    platform_option: PlatformOption = None,
    channel: Channel = None,
    cpu: Cpu = None,
    uplink: Uplink = None,
    downlink: Downlink = None,
    latency: Latency = None,
    imitate: Imitate = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Samples that are computed at once, at most.", show_default="the job's"),
    ] = None,
    wait_timeout: WaitTimeout = None,
    own: Own = None,
    output: Annotated[Path, typer.Option(help="The profile's file.")] = Path("profile.json"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure less often: sooner done, and less sure.")
    ] = False,
    from_catalogue: Annotated[
        bool,
        typer.Option(
            "--from-catalogue",
            help="Measure nothing: look up --platform and --price-store in the catalogue; count "
            "FLOPs.",
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            "--price-store", "--store", help="Store of the catalogue, with --from-catalogue."
        ),
    ] = None,
    flops_per_vcpu: Annotated[
        float | None,
        typer.Option(
            metavar="GFLOP/S",
            help="What training gets out of a vCPU, with --from-catalogue.",
            show_default="the catalogue's",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="The most vCPUs that a worker computes with, with --from-catalogue.",
            show_default="all that it has",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="How much longer computing takes beside transfers, with --from-catalogue.",
            show_default="1",
        ),
    ] = None,
    cold_start: Annotated[
        float | None,
        typer.Option(
            help="From the request to the handler, in s, with --from-catalogue.",
            show_default="the catalogue's",
        ),
    ] = None,
    base_memory: Annotated[
        float | None,
        typer.Option(
            help="A worker's memory without a model, in MiB, with --from-catalogue.",
            show_default="a process's on this machine",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the job in JOB.py takes in functions, for plans and predictions."""
    if not context.params["from_catalogue"]:
        from dayfly.cli.warm import warm_up
        from dayfly.runs import preloads

        warm_up(preloads.PROFILE)
    from dayfly.cli.profile import measure

    raise typer.Exit(
        measure(
            job_file,
            output,
            memory_sizes,
            lambda: function_settings(context, resumed=False),
            batch_size=batch_size,
            quick=quick,
            force=force,
            as_json=as_json,
            catalogued=context.params,
        )
    )


@plans.command()
def predict(
    context: typer.Context,
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE.json", help="What dayfly profile wrote.")
    ],
    workers: Several = None,
    memory: SeveralMemory = None,
    channel: Channel = None,
    sync: Sync = None,
    k: K = None,
    collective: SeveralCollectives = None,
    aggregators: Aggregators = None,
    compress: Compress = None,
    cut: Cut = None,
    replicas: Replicas = None,
    micro_batches: SeveralMicroBatches = None,
    schedule: Schedule = None,
    stage_memory: StageMemory = None,
    lifetime: Lifetime = None,
    cold_start: ColdStart = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    checkpoint_every: CheckpointEvery = None,
    prices: Annotated[
        str | None,
        typer.Option(help="Price list: a platform's name.", show_default="a run's own"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--price-store",
            "--store",
            help="Store whose prices count.",
            show_default="the profile's channel, if it is one of the catalogue",
        ),
    ] = None,
    own: Own = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the plan, for dayfly train --plan.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a profiled job takes: seconds, dollars, memory, requests. Lists make a table."""
    from dayfly.cli import predict as command
    from dayfly.cli.outcome import shown

    def action() -> None:
        command.predict(
            profile,
            *command.asked(context),
            {"epochs": epochs, "batch_size": batch_size},
            prices=prices,
            store=store,
            output=output,
            as_json=as_json,
        )

    raise typer.Exit(shown(action, as_json=as_json))


plans.command()(simulate)
