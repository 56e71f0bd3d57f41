"""The command line: the commands and their flags; what they do is beside."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

import dayfly

app = typer.Typer(
    name="dayfly",
    help="Trains PyTorch models on short-lived serverless functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
]
RunDir = Annotated[
    Path | None, typer.Option(help="Directory of the run's files.", show_default="runs/<run id>")
]
Own = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        help="Directory of limits and prices of your own.",
        show_default="~/.config/dayfly/catalogue",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        print(f"dayfly {dayfly.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    return None


@app.command()
def demo(run_dir: RunDir = None, as_json: AsJson = False) -> None:
    """Train a small CNN on handwritten digits, on four local functions."""
    from dayfly.cli.demo import demo_job
    from dayfly.cli.outcome import conclude
    from dayfly.runs import launch
    from dayfly.runs.displays import StandardError, display_for
    from dayfly.runs.settings import Settings

    display = display_for(StandardError())
    raise typer.Exit(
        conclude(
            lambda: launch.begin(
                demo_job(), Settings(workers=4), directory=run_dir, name="demo", display=display
            ),
            as_json=as_json,
        )
    )


@app.command()
def train(
    job_file: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.py", help="Python file with the variable `job`."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Functions that train at once.", show_default="1")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="Where functions run: local.", show_default="local")
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(help="URL of the store they talk through.", show_default="files in memory"),
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(help="Protocol: bsp (synchronous) or local-sgd.", show_default="bsp"),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="N|epoch", help="Steps between two averages of local-sgd."),
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(
            help="All-reduce algorithm: all-reduce, k-reduce, overlapped, pipelined, push-pull, "
            "ring, scatter-reduce.",
            show_default="what suits the channel: overlapped over a store, scatter-reduce over "
            "files at any speed, ring over tcp://, push-pull over ps://",
        ),
    ] = None,
    aggregators: Annotated[
        int | None, typer.Option(metavar="K", help="Workers that sum, of k-reduce.")
    ] = None,
    compress: Annotated[
        str | None,
        typer.Option(
            metavar="none|bf16|int8|powersgd[:RANK]",
            help="Let gradients travel smaller, and less exactly.",
            show_default="none",
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="A function's memory, in MiB.", show_default="not limited")
    ] = None,
    lifetime: Annotated[
        float | None, typer.Option(help="A function's life, in s.", show_default="not limited")
    ] = None,
    cpu: Annotated[
        float | None,
        typer.Option(help="A function's CPU time a second, in cores.", show_default="not limited"),
    ] = None,
    uplink: Annotated[
        float | None,
        typer.Option(help="A function's way to the store, in MB/s.", show_default="not limited"),
    ] = None,
    downlink: Annotated[
        float | None, typer.Option(help="And back, in MB/s.", show_default="not limited")
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(help="Added to each request to the store, in ms.", show_default="none"),
    ] = None,
    cold_start: Annotated[
        float | None,
        typer.Option(help="Added to each start of a function, in s.", show_default="none"),
    ] = None,
    payload: Annotated[
        float | None,
        typer.Option(help="Largest payload and result of a call, in KB.", show_default="6291"),
    ] = None,
    imitate: Annotated[
        str | None,
        typer.Option(
            help="Platform, such as aws-lambda, whose life, CPU and bandwidth (by --memory), "
            "payload and prices count where no other is given."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data.", show_default="the job's")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples a step, all workers.", show_default="the job's")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all that is random.", show_default="the job's")
    ] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="End once validation reaches it, such as 0.97.")
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Longest time between run checkpoints, in s.", show_default="60"),
    ] = None,
    wait_timeout: Annotated[
        float | None,
        typer.Option(
            help="How long a worker waits for a message of another, in s.", show_default="900"
        ),
    ] = None,
    log_budget: Annotated[
        int | None,
        typer.Option(
            help="Bound of the message log, in MiB.", show_default="1024 or a quarter of the space"
        ),
    ] = None,
    own: Own = None,
    run_dir: RunDir = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the job in JOB.py on short-lived functions, or go on with a run (--resume DIR)."""
    from dayfly.cli.catalogue import own_catalogue
    from dayfly.cli.outcome import conclude
    from dayfly.errors import RequestError
    from dayfly.runs import launch
    from dayfly.runs.api import checked_settings, overridden
    from dayfly.runs.displays import StandardError, display_for
    from dayfly.runs.run import Run
    from dayfly.runs.shipping import load_job_file

    settings: dict[str, Any] = {
        "workers": workers,
        "platform": platform,
        "channel": channel,
        "sync": sync,
        "k": int(k) if k is not None and k.isdecimal() else k,
        "collective": collective,
        "aggregators": aggregators,
        "compress": compress,
        "memory_mib": memory,
        "lifetime_s": lifetime,
        "cpu_cores": cpu,
        "uplink_mb_per_s": uplink,
        "downlink_mb_per_s": downlink,
        "latency_ms": latency,
        "cold_start_s": cold_start,
        "payload_kb": payload,
        "imitate": imitate,
        "target_accuracy": target_accuracy,
        "checkpoint_every_s": checkpoint_every,
        "wait_timeout_s": wait_timeout,
        "log_budget_mib": log_budget,
        # A run that goes on keeps the catalogue that it had, unless another is named.
        "catalogue": own_catalogue(own) if resume is None or own is not None else None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    of_the_job = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    display = display_for(StandardError())

    def action() -> Run:
        if resume is not None:
            fixed: dict[str, object] = {"JOB.py": job_file, "--run-dir": run_dir}
            fixed |= {f"--{name.replace('_', '-')}": value for name, value in of_the_job.items()}
            refused = [name for name, value in fixed.items() if value is not None]
            if refused:
                raise RequestError(
                    f"--resume goes on with what is in the run's directory: leave out {refused[0]}"
                )
            return launch.resume(resume, display=display, **given)
        if job_file is None:
            raise RequestError(
                "no job: name a Python file with the variable `job`, or --resume DIR"
            )
        checked = checked_settings(**given)
        job = overridden(load_job_file(job_file), **of_the_job)
        return launch.begin(
            job,
            checked,
            directory=run_dir,
            name=job_file.stem,
            code=job_file.resolve().parent,
            display=display,
        )

    raise typer.Exit(conclude(action, as_json=as_json))


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The run's directory.")],
    prices: Annotated[
        str | None,
        typer.Option(help="Price list: a platform's name.", show_default="the run's own"),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Store whose prices count.", show_default="none")
    ] = None,
    own: Own = None,
    output: Annotated[
        Path | None, typer.Option(help="The page's file.", show_default="DIR/report.html")
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Write the run in DIR as one page of HTML, and print its bill; under any price list."""
    from dayfly.cli import report as command
    from dayfly.cli.outcome import shown

    raise typer.Exit(
        shown(
            lambda: command.report(
                directory, output, prices=prices, store=store, given=own, browse=browse
            )
        )
    )


@app.command()
def catalogue(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A platform or a store; none: list them.")
    ] = None,
    own: Own = None,
) -> None:
    """Show what the catalogue has of a platform or a store: values, sources and dates."""
    from dayfly.cli.catalogue import print_entry
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: print_entry(name, own)))


@app.command(
    add_help_option=False,  # --help after NAME is the bench's own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")] = "--help",
    as_json: AsJson = False,
) -> None:
    """Measure dayfly beside its peers (`dayfly bench` says what there is)."""
    from dayfly.cli.bench import measure

    raise typer.Exit(measure(name, context.args, as_json=as_json))


def main() -> None:
    """The entry point of the command."""
    # Until a request has its own handlers: an exception in the middle of importing torch or numpy
    # is not always survived by them.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    app()
