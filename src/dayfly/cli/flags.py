"""Flags that several commands have: a run's functions, how they talk, and how they train."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dayfly.cli.flag_groups import GROUP_OF
from dayfly.cli.values import lists_of, seconds_of
from dayfly.errors import RequestError

Command = TypeVar("Command", bound=Callable[..., None])


def option(help: str, shown: str | bool = True, *names: str, metavar: str | None = None) -> Any:
    """Returns an option of a command.

    Args:
        help: for `--help`.
        shown: its default in words; True: the default itself, unless that is None.
        names: as they are typed; none: by the name of the parameter.
        metavar: stands for its value in `--help`.
    """
    return typer.Option(*names, help=help, show_default=shown, metavar=metavar)


AsJson = Annotated[
    bool, option("Print one JSON object as the last line of standard output.", True, "--json")
]
RunDir = Annotated[Path | None, option("Directory of the run's files.", "runs/<run id>")]
RunStore = Annotated[
    str | None,
    option(
        "Keep the run in this store, such as s3://bucket/runs: any machine can go on with it.",
        "its directory",
        "--store",
        metavar="URL",
    ),
]
Resume = Annotated[
    str | None, option("Go on with a run: its directory, or its URL in a store.", metavar="RUN")
]
Listen = Annotated[
    list[str] | None,
    option(
        "A listener of an installed package, which hears what happens; several times.",
        "none",
        metavar="NAME",
    ),
]
Detach = Annotated[
    bool,
    option("Return once the run has begun; it goes on without this terminal.", True, "--detach"),
]
SuccessorCommand = Annotated[
    str | None,
    option(
        "Starts the next coordinator, elsewhere maybe; {run} stands for the run.",
        "this program, here",
        "--successor",
        metavar="COMMAND",
    ),
]
Own = Annotated[
    Path | None,
    option(
        "Directory of limits and prices of your own.",
        "~/.config/dayfly/catalogue",
        "--catalogue",
    ),
]
PlanFile = Annotated[
    Path | None,
    option(
        "Carry out this plan; auto: measure the job, unless that was done, and choose the best. "
        "Explicit flags override it.",
        True,
        "--plan",
        metavar="PLAN.json|auto",
    ),
]
Epochs = Annotated[int | None, option("Passes over the data.", "the job's")]
BatchSize = Annotated[int | None, option("Samples a step, all workers.", "the job's")]
MaxRestarts = Annotated[
    int | None,
    option(
        "How often all start again after one died; kills from outside and lifetimes that "
        "end do not count.",
        "3",
    ),
]


@dataclass(frozen=True, slots=True)
class Flag:
    """An option that a command passes on by name.

    Args:
        kind: type of its value.
        help: for `--help`.
        shown: its default in words; True: the default itself, unless that is None.
        names: as they are typed; empty: by its name in the table.
        metavar: stands for its value in `--help`.
        setting: the run's setting that it is, by name; None: the same name.
        default: its value where it is not given.
    """

    kind: Any
    help: str
    shown: str | bool = True
    names: tuple[str, ...] = ()
    metavar: str | None = None
    setting: str | None = None
    default: Any = None

    def parameter(self, name: str) -> inspect.Parameter:
        """Returns the parameter of a command that takes the flag, as typer reads it."""
        kind = self.kind if self.default is not None else self.kind | None
        flag = option(self.help, self.shown, *self.names, metavar=self.metavar)
        flag.rich_help_panel = GROUP_OF.get(name)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[kind, flag],
        )


#: Of a run's functions, by the names of parameters.
FUNCTION_FLAGS = {
    "workers": Flag(int, "Functions that work at once.", "1"),
    "platform": Flag(str, "Where functions run: local.", "local"),
    "platform_option": Flag(
        list[str],
        "A setting of the platform's own, instead of its table in dayfly.toml; several times.",
        "the platform's",
        metavar="NAME=VALUE",
        setting="platform_options",
    ),
    "channel": Flag(str, "URL of the channel they talk through.", "files in memory"),
    "memory": Flag(
        str,
        "A function's memory, in MiB; or each worker's, with commas.",
        "not limited",
        metavar="MIB[,MIB,...]",
        setting="memory_mib",
    ),
    "lifetime": Flag(float, "A function's life, in s.", "not limited", setting="lifetime_s"),
    "cpu": Flag(
        float, "A function's CPU time a second, in cores.", "not limited", setting="cpu_cores"
    ),
    "uplink": Flag(
        float,
        "Bandwidth of a function's connection to the store, in MB/s.",
        "not limited",
        setting="uplink_mb_per_s",
    ),
    "downlink": Flag(float, "The same from the store.", "not limited", setting="downlink_mb_per_s"),
    "latency": Flag(
        float, "Added to each request to the store, in ms.", "none", setting="latency_ms"
    ),
    "cold_start": Flag(
        float, "Added to each start of a function, in s.", "none", setting="cold_start_s"
    ),
    "payload": Flag(
        float,
        "Largest payload and result of a call, in KB.",
        "not limited",
        setting="payload_kb",
    ),
    "gpu": Flag(
        float,
        "A function's share of a GPU, such as 1 or 0.25.",
        "none: it computes on the CPU",
        metavar="SHARE",
        setting="gpu_share",
    ),
    "imitate": Flag(
        str,
        "Platform, such as aws-lambda, whose life, CPU and bandwidth (by --memory), "
        "payload and prices count where no other is given.",
    ),
    "allow_other_cpu": Flag(
        bool,
        "Go on with another CPU type, torch build or threads; the bits may be others then.",
        "refused",
        ("--allow-other-cpu",),
    ),
    "wait_timeout": Flag(
        float,
        "How long a worker waits for a message of another, in s.",
        "900",
        setting="wait_timeout_s",
    ),
    "log_budget": Flag(
        int,
        "Bound of the message log, in MiB.",
        "1024 or a quarter of the space",
        setting="log_budget_mib",
    ),
    "max_cost": Flag(
        float,
        "Stop before the run's functions cost more, over all its lives, in USD.",
        "not limited",
        metavar="USD",
        setting="max_cost_usd",
    ),
    "max_time": Flag(
        str,
        "Stop after so long, over all its lives: 90, 90s, 30m or 2h.",
        "not limited",
        metavar="TIME",
        setting="max_time_s",
    ),
    "coordinator_lifetime": Flag(
        float,
        "Hand the run over to another coordinator before this one is so old, in s.",
        "not limited",
        metavar="S",
        setting="coordinator_lifetime_s",
    ),
}
#: Of how a job is trained.
TRAINING_FLAGS = {
    "sync": Flag(str, "Protocol: bsp, hap (some workers lag a step) or local-sgd.", "bsp"),
    "shares": Flag(
        str,
        "Each worker's share of a batch, in relation to the others.",
        "by each one's CPU",
        metavar="N,N,...",
    ),
    "k": Flag(str, "Steps between two averages of local-sgd.", True, ("--k",), metavar="N|epoch"),
    "outer": Flag(
        str,
        "Optimizer that takes a step after local-sgd's k steps: nesterov is DiLoCo's.",
        "average: none, replicas become their mean",
        metavar="average|nesterov|momentum",
    ),
    "outer_lr": Flag(float, "Learning rate of the outer optimizer.", "0.7"),
    "outer_momentum": Flag(float, "Momentum of the outer optimizer.", "0.9"),
    "collective": Flag(
        str,
        "All-reduce algorithm: all-reduce, k-reduce, overlapped, pipelined, push-pull, "
        "ring, scatter-reduce.",
        "what suits the channel: overlapped over a store, scatter-reduce over "
        "files at any speed, ring over tcp://, push-pull over ps://",
    ),
    "aggregators": Flag(int, "Workers that sum, of k-reduce and hap.", metavar="K"),
    "compress": Flag(
        str,
        "Let gradients travel smaller, and less exactly.",
        "none",
        metavar="none|bf16|int8|int4|powersgd[:RANK]|topk:FRACTION[:exact]|significance:V",
    ),
    "virtual_workers": Flag(
        int, "Leaves of a batch: the same bits on any number of workers from 1 to V.", metavar="V"
    ),
    "precision": Flag(
        str,
        "Numbers in which forward passes and losses compute; fp16 scales its losses.",
        "fp32",
        metavar="fp32|bf16|fp16",
    ),
    "cut": Flag(
        str,
        "Cut the model into stages before these layers, counted from 0.",
        "one stage",
        metavar="L,L,...",
    ),
    "replicas": Flag(int, "Functions a stage.", "1"),
    "micro_batches": Flag(int, "Pieces of a worker's share of a batch.", "the job's accumulate"),
    "schedule": Flag(
        str, "Order of micro-batches: fill-drain, or 1f1b, which takes less memory.", "fill-drain"
    ),
    "stage_memory": Flag(
        str,
        "Memory of each stage's functions, in MiB.",
        metavar="MIB,MIB,...",
        setting="stage_memory_mib",
    ),
    "target_accuracy": Flag(float, "End once validation reaches it, such as 0.97."),
    "target_loss": Flag(float, "End once the validation loss is at most this."),
    "keep": Flag(
        str, "Keep the weights of the best epoch, too.", "the last step's alone", metavar="best"
    ),
    "monitor": Flag(
        str, "By which an epoch is the best, and for --patience.", "val_loss", metavar="NAME"
    ),
    "mode": Flag(str, "Of --monitor.", "min of losses, max of val_accuracy", metavar="min|max"),
    "patience": Flag(
        int, "End once so many validations brought nothing better.", "never", metavar="N"
    ),
    "log": Flag(
        list[str],
        "Log each epoch there; several times.",
        "none",
        metavar="csv|jsonl|tensorboard|mlflow|wandb[:PLACE]",
    ),
    "on_nan": Flag(
        str,
        "What a loss that becomes NaN or infinite does: fail the run, or be said only.",
        "stop",
        metavar="stop|warn",
    ),
    "checkpoint_every": Flag(
        float, "Longest time between run checkpoints, in s.", "60", setting="checkpoint_every_s"
    ),
}


def takes(*shared: str, **own: Flag) -> Callable[[Command], Command]:
    """Has a command take flags beside its own parameters, and get them by keyword.

    Args:
        shared: names in `FUNCTION_FLAGS` and `TRAINING_FLAGS`.
        own: flags of this command alone, or in place of shared ones.
    """
    table = {**FUNCTION_FLAGS, **TRAINING_FLAGS}
    flags = {**{name: table[name] for name in shared}, **own}

    def taking(command: Command) -> Command:
        whole = inspect.signature(command, eval_str=True)
        mine = [one for one in whole.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = [flag.parameter(name) for name, flag in flags.items()]
        command.__signature__ = whole.replace(parameters=[*mine, *more])  # type: ignore[attr-defined]
        return command

    return taking


def function_settings(context: typer.Context, *, resumed: bool) -> dict[str, Any]:
    """What a command's flags say of its functions, by the names of `FunctionSettings`.

    Options of the platform come from `[platform.NAME]` of dayfly.toml, too, unless a run goes on.

    Args:
        context: of the command; numbers have the units of its flags.
        resumed: whether a run goes on, which keeps the catalogue that it had unless another is
            named.

    Raises:
        RequestError: a wrong value, or a dayfly.toml that cannot be read.
    """
    from dayfly.cli.catalogue import own_catalogue

    given = given_settings(context, FUNCTION_FLAGS)
    if "max_time_s" in given:
        given["max_time_s"] = seconds_of("--max-time", given["max_time_s"])
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
    given = given_settings(context, TRAINING_FLAGS)
    if "log" in given:
        given["log"] = tuple(given["log"])
    if (k := given.get("k", "")).isdecimal():
        given["k"] = int(k)
    return given | lists_of(given)


def given_settings(context: typer.Context, flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Values of those flags that were given, by the names of settings."""
    return {
        flag.setting or name: value
        for name, flag in flags.items()
        if (value := context.params.get(name)) not in (None, [], ())
    }


def refuse_beside_resume(given: Mapping[str, object]) -> None:
    """Raises RequestError for what a run that goes on has already. given: None: it was not."""
    for name, value in given.items():
        if value is not None:
            raise RequestError(
                f"--resume goes on with what is in the run's directory: leave out {name}"
            )
