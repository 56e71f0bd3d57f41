"""The commands of plans: `profile`, `predict`, `plan`, `simulate`; what they do is beside."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dayfly.cli.choice_flags import CHOICE
from dayfly.cli.convergence_flags import CONVERGENCE
from dayfly.cli.flag import Flag, option
from dayfly.cli.flags import AsJson, Own, RunDir, function_settings, takes
from dayfly.cli.quick import QuickCommand
from dayfly.cli.training_flags import TRAINING_FLAGS

plans = typer.Typer()


@plans.command(cls=QuickCommand)
@takes("imitate", **CHOICE)
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
    everywhere: Annotated[
        bool, option("All places of the catalogue.", True, "--everywhere")
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


@plans.command()
@takes(
    *("platform", "platform_option", "channel", "cpu", "uplink", "downlink", "latency"),
    *("imitate", "wait_timeout"),
    gpu=Flag(
        str,
        "GPU to compute on, as T4 or T4:0.25, of this machine, or of --platform with "
        "--from-catalogue.",
        "none, or what the platform has",
        metavar="TYPE[:SHARE]",
    ),
    store=Flag(
        str,
        "Store of the catalogue, with --from-catalogue.",
        names=("--price-store", "--store"),
    ),
    flops_per_vcpu=Flag(
        float,
        "What training gets out of a vCPU, with --from-catalogue.",
        "the catalogue's",
        metavar="GFLOP/S",
    ),
    threads=Flag(
        int,
        "The most vCPUs that a worker computes with, with --from-catalogue.",
        "all that it has",
    ),
    beta=Flag(
        float, "How much longer computing takes beside transfers, with --from-catalogue.", "1"
    ),
    cold_start=Flag(
        float,
        "From the request to the handler, in s, with --from-catalogue.",
        "the catalogue's",
    ),
    base_memory=Flag(
        float,
        "A worker's memory without a model, in MiB, with --from-catalogue.",
        "a process's on this machine",
    ),
    **CONVERGENCE,
)
def profile(
    context: typer.Context,
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.py", help="Python file with the variable `job`.")
    ],
    memory_sizes: Annotated[
        str | None,
        option(
            "Memory of functions, in MiB: each is measured.",
            "not limited",
            "--memory",
            metavar="MIB,MIB,...",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, option("Samples that are computed at once, at most.", "the job's")
    ] = None,
    own: Own = None,
    output: Annotated[Path, option("The profile's file.")] = Path("profile.json"),
    force: Annotated[bool, option("Overwrite the file.", True, "--force")] = False,
    quick: Annotated[
        bool, option("Measure less often: sooner done, and less sure.", True, "--quick")
    ] = False,
    repeat: Annotated[
        int | None, option("Measure so many times as often: later done, and surer.", "1")
    ] = None,
    from_catalogue: Annotated[
        bool,
        option(
            "Measure nothing: look up --platform and --price-store in the catalogue; count FLOPs.",
            True,
            "--from-catalogue",
        ),
    ] = False,
    as_json: AsJson = False,
    **flags: Any,
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
            repeat=1 if repeat is None else repeat,
            force=force,
            as_json=as_json,
            catalogued=context.params,
        )
    )


@plans.command(cls=QuickCommand)
@takes(
    *("channel", "sync", "k", "outer", "outer_lr", "outer_momentum", "fragments", "overlap"),
    *("aggregators", "compress"),
    *("virtual_workers", "cut", "replicas", "schedule", "target_loss", "target_accuracy"),
    *("stage_memory", "shares", "lifetime", "cold_start", "checkpoint_every"),
    workers=Flag(str, "Functions at once.", "1", metavar="N,N,..."),
    memory=Flag(str, "A function's memory, in MiB.", "all of the profile's", metavar="MIB,MIB,..."),
    each_memory=Flag(
        str,
        "Each worker's memory, where they differ, in MiB.",
        "all are alike",
        metavar="MIB,MIB,...",
    ),
    collective=Flag(
        str,
        "All-reduce algorithms, as of dayfly train.",
        "what suits the channel",
        metavar="NAME,NAME,...",
    ),
    micro_batches=Flag(
        str,
        "In which a function computes its share of a batch.",
        "the job's accumulate",
        metavar="N,N,...",
    ),
    epochs=Flag(int, "Passes over the data.", "the job's"),
    batch_size=Flag(int, "Samples a step, all workers.", "the job's"),
    curve=CHOICE["curve"],
    gpu=Flag(
        str,
        "The profile's GPU, and the share of it that a function has, as T4:0.25.",
        "the largest share of the profile",
        metavar="TYPE[:SHARE]",
    ),
    prices=Flag(str, "Price list: a platform's name.", "a run's own"),
    store=Flag(
        str,
        "Store whose prices count.",
        "the profile's channel, if it is one of the catalogue",
        ("--price-store", "--store"),
    ),
)
def predict(
    context: typer.Context,
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE.json", help="What dayfly profile wrote.")
    ],
    own: Own = None,
    output: Annotated[Path | None, option("Write the plan, for dayfly train --plan.")] = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Say what a profiled job takes: seconds, dollars, memory, requests. Lists make a table."""
    from dayfly.cli import predict as command
    from dayfly.cli.outcome import shown

    def action() -> None:
        command.predict(
            profile,
            *command.asked(context),
            {name: flags[name] for name in ("epochs", "batch_size")},
            curve=flags["curve"],
            gpu=flags["gpu"],
            prices=flags["prices"],
            store=flags["store"],
            output=output,
            as_json=as_json,
        )

    raise typer.Exit(shown(action, as_json=as_json))


#: Keywords of `dayfly.simulate`; the rate, decline and the time of a call have other units there.
_SCENARIO = {
    "seed": Flag(int, "Seed of all that is random.", default=0),
    "deaths_per_hour": Flag(float, "Deaths of each function, at random moments.", default=0.0),
    "cold_start": Flag(
        float, "Added to each start of a function, in s.", setting="cold_start_s", default=0.0
    ),
    "cold_start_sigma": Flag(float, "How much that varies (log-normal).", default=0.0),
    "jitter": Flag(
        float,
        "How much compute times vary (log-normal).",
        metavar="SIGMA",
        setting="straggler_sigma",
        default=0.0,
    ),
    "stragglers": Flag(int, "Workers that are slow throughout.", default=0),
    "straggler_factor": Flag(float, "How much slower they compute.", "2"),
    "store": Flag(
        str,
        "Store of the catalogue whose cap and prices count.",
        "the profile's channel, if it is one",
        ("--price-store", "--store"),
        setting="price_store",
    ),
    "workers": Flag(int, "Functions at once.", "the plan's"),
    "replicas": replace(TRAINING_FLAGS["replicas"], shown="the plan's"),
    "lifetime": Flag(float, "A function's life, in s.", "the plan's", setting="lifetime_s"),
    "checkpoint_every": Flag(
        float,
        "Longest time between run checkpoints, in s.",
        "the plan's",
        setting="checkpoint_every_s",
    ),
    "epochs": Flag(int, "Passes over the data.", "the plan's"),
    "batch_size": Flag(int, "Samples a step, all workers.", "the plan's"),
    "store_rate": Flag(
        float,
        "What the store carries for all functions together, each way.",
        "the catalogue's",
        metavar="MB/s",
        setting="store_bytes_per_s",
    ),
    "decline": Flag(
        str,
        "Part F of its bandwidth that a function has left when N run, linear between.",
        "all of it",
        metavar="N:F,N:F,...",
    ),
    "invoke_call": Flag(
        float,
        "Time of one invocation call; functions that start together wait for those before them.",
        metavar="MS",
        setting="invoke_call_s",
        default=0.0,
    ),
    "invoke_at_once": Flag(int, "Invocation calls that are under way at once.", default=1),
    "invoke_fan_out": Flag(
        int, "Functions that each function invokes, as a tree.", "the coordinator invokes all"
    ),
}


@plans.command(cls=QuickCommand)
@takes(**_SCENARIO)
def simulate(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN.json", help="A plan, as dayfly predict writes it.")
    ],
    own: Own = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Simulate a plan's whole run in virtual time: deaths, hand-overs, slow stores and workers."""
    from dayfly.cli import simulate as command

    keywords = {flag.setting or name: flags[name] for name, flag in _SCENARIO.items()}
    raise typer.Exit(command.simulate(plan, keywords, run_dir, own, as_json=as_json))
