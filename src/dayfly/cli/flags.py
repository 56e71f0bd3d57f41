"""Flags that several commands have: a run's functions, how they talk, and how they train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dayfly.errors import RequestError

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
]
RunDir = Annotated[
    Path | None, typer.Option(help="Directory of the run's files.", show_default="runs/<run id>")
]
RunStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Keep the run in this store, such as s3://bucket/runs: any machine can go on with it.",
        show_default="its directory",
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Go on with a run: its directory, or its URL in a store."),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A listener of an installed package, which hears what happens; several times.",
        show_default="none",
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Return once the run has begun; it goes on without this terminal."
    ),
]
Own = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        help="Directory of limits and prices of your own.",
        show_default="~/.config/dayfly/catalogue",
    ),
]

Workers = Annotated[int | None, typer.Option(help="Functions that work at once.", show_default="1")]
Platform = Annotated[
    str | None, typer.Option(help="Where functions run: local.", show_default="local")
]
PlatformOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A setting of the platform's own, instead of its table in dayfly.toml; several times.",
        show_default="the platform's",
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(help="URL of the store they talk through.", show_default="files in memory"),
]
Memory = Annotated[
    int | None, typer.Option(help="A function's memory, in MiB.", show_default="not limited")
]
Lifetime = Annotated[
    float | None, typer.Option(help="A function's life, in s.", show_default="not limited")
]
Cpu = Annotated[
    float | None,
    typer.Option(help="A function's CPU time a second, in cores.", show_default="not limited"),
]
Uplink = Annotated[
    float | None,
    typer.Option(help="A function's way to the store, in MB/s.", show_default="not limited"),
]
Downlink = Annotated[
    float | None, typer.Option(help="And back, in MB/s.", show_default="not limited")
]
Latency = Annotated[
    float | None,
    typer.Option(help="Added to each request to the store, in ms.", show_default="none"),
]
ColdStart = Annotated[
    float | None,
    typer.Option(help="Added to each start of a function, in s.", show_default="none"),
]
Payload = Annotated[
    float | None,
    typer.Option(help="Largest payload and result of a call, in KB.", show_default="not limited"),
]
Gpu = Annotated[
    float | None,
    typer.Option(
        "--gpu",
        metavar="SHARE",
        help="A function's share of a GPU, such as 1 or 0.25.",
        show_default="none: it computes on the CPU",
    ),
]
Imitate = Annotated[
    str | None,
    typer.Option(
        help="Platform, such as aws-lambda, whose life, CPU and bandwidth (by --memory), "
        "payload and prices count where no other is given."
    ),
]
AllowOtherCpu = Annotated[
    bool | None,
    typer.Option(
        "--allow-other-cpu",
        help="Go on where CPU type, torch build or threads are not those the run began with; the "
        "bits may be others then.",
        show_default="refused",
    ),
]
WaitTimeout = Annotated[
    float | None,
    typer.Option(
        help="How long a worker waits for a message of another, in s.", show_default="900"
    ),
]

# Of a job: how it is trained.

Sync = Annotated[
    str | None,
    typer.Option(help="Protocol: bsp (synchronous) or local-sgd.", show_default="bsp"),
]
K = Annotated[
    str | None,
    typer.Option("--k", metavar="N|epoch", help="Steps between two averages of local-sgd."),
]
Collective = Annotated[
    str | None,
    typer.Option(
        help="All-reduce algorithm: all-reduce, k-reduce, overlapped, pipelined, push-pull, "
        "ring, scatter-reduce.",
        show_default="what suits the channel: overlapped over a store, scatter-reduce over "
        "files at any speed, ring over tcp://, push-pull over ps://",
    ),
]
Aggregators = Annotated[
    int | None, typer.Option(metavar="K", help="Workers that sum, of k-reduce.")
]
Compress = Annotated[
    str | None,
    typer.Option(
        metavar="none|bf16|int8|powersgd[:RANK]",
        help="Let gradients travel smaller, and less exactly.",
        show_default="none",
    ),
]
Cut = Annotated[
    str | None,
    typer.Option(
        metavar="L,L,...",
        help="Cut the model into stages before these layers, counted from 0.",
        show_default="one stage",
    ),
]
Replicas = Annotated[int | None, typer.Option(help="Functions a stage.", show_default="1")]
MicroBatches = Annotated[
    int | None,
    typer.Option(
        help="In which a function computes its share of a batch.",
        show_default="the job's accumulate",
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        help="Order of micro-batches: fill-drain, or 1f1b, which takes less memory.",
        show_default="fill-drain",
    ),
]
StageMemory = Annotated[
    str | None,
    typer.Option(metavar="MIB,MIB,...", help="Memory of each stage's functions, in MiB."),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="PLAN.json",
        help="Carry out this plan; explicit flags override it.",
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data.", show_default="the job's")]
BatchSize = Annotated[
    int | None, typer.Option(help="Samples a step, all workers.", show_default="the job's")
]
OnNan = Annotated[
    str | None,
    typer.Option(
        metavar="stop|warn",
        help="What a loss that becomes NaN or infinite does: fail the run, or be said only.",
        show_default="stop",
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(help="Longest time between run checkpoints, in s.", show_default="60"),
]

# Several at once, to compare.

Several = Annotated[
    str | None, typer.Option(metavar="N,N,...", help="Functions at once.", show_default="1")
]
SeveralMemory = Annotated[
    str | None,
    typer.Option(
        metavar="MIB,MIB,...",
        help="A function's memory, in MiB.",
        show_default="all of the profile's",
    ),
]
SeveralCollectives = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="All-reduce algorithms, as of dayfly train.",
        show_default="what suits the channel",
    ),
]
SeveralMicroBatches = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...",
        help="In which a function computes its share of a batch.",
        show_default="the job's accumulate",
    ),
]

#: The settings of a run's functions, by the name of their flag.
_SETTINGS = {
    "workers": "workers",
    "platform": "platform",
    "channel": "channel",
    "memory": "memory_mib",
    "lifetime": "lifetime_s",
    "cpu": "cpu_cores",
    "uplink": "uplink_mb_per_s",
    "downlink": "downlink_mb_per_s",
    "latency": "latency_ms",
    "cold_start": "cold_start_s",
    "payload": "payload_kb",
    "gpu": "gpu_share",
    "imitate": "imitate",
    "wait_timeout": "wait_timeout_s",
    "log_budget": "log_budget_mib",
    "allow_other_cpu": "allow_other_cpu",
}
#: Those of training, that are as their flag says them.
_OF_TRAINING = {
    "sync": "sync",
    "collective": "collective",
    "aggregators": "aggregators",
    "compress": "compress",
    "target_accuracy": "target_accuracy",
    "checkpoint_every": "checkpoint_every_s",
    "replicas": "replicas",
    "micro_batches": "micro_batches",
    "on_nan": "on_nan",
    "schedule": "schedule",
}


def numbers(flag: str, text: str, such_as: str) -> tuple[int, ...]:
    """From `4,9`. such_as: an example of the flag's value.

    Raises RequestError, naming the flag, for what is no list of whole numbers.
    """
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise RequestError(
            f"{flag} {text!r} is no list of whole numbers: give them with commas between, as in "
            f"{such_as}"
        ) from None


def function_settings(context: typer.Context, *, resumed: bool) -> dict[str, Any]:
    """What a command's flags say of its functions, by the names of `FunctionSettings`.

    resumed: whether a run goes on, which keeps the catalogue that it had unless another is named.
    """
    from dayfly.cli.catalogue import own_catalogue

    given = {setting: context.params.get(flag) for flag, setting in _SETTINGS.items()}
    if "platform_option" in context.params:
        given["platform_options"] = _platform_options(context, resumed=resumed) or None
    own = context.params["own"]
    given["catalogue"] = own_catalogue(own) if own is not None or not resumed else None
    return {name: value for name, value in given.items() if value is not None}


def _platform_options(context: typer.Context, *, resumed: bool) -> dict[str, Any]:
    """Of dayfly.toml, unless a run goes on as it began, and of flags, which count instead."""
    from dayfly.cli.catalogue import platform_flags, platform_table

    job = context.params.get("job_file") or context.params.get("script") or "."
    name = context.params["platform"] or "local"
    table = {} if resumed else platform_table(name, Path(job).parent)
    return {**table, **platform_flags(context.params["platform_option"] or [])}


def training_settings(context: typer.Context) -> dict[str, Any]:
    """What a command's flags say of training, by the names of `Settings`; it may lack some.

    Raises RequestError for lists that are none.
    """
    flags = context.params
    given = {setting: flags.get(flag) for flag, setting in _OF_TRAINING.items()}
    k = flags.get("k")
    given["k"] = int(k) if k is not None and k.isdecimal() else k
    if (cut := flags.get("cut")) is not None:
        given["cut"] = numbers("--cut", cut, "4,9")
    if (sizes := flags.get("stage_memory")) is not None:
        given["stage_memory_mib"] = numbers("--stage-memory", sizes, "1024,512")
    return {name: value for name, value in given.items() if value is not None}
