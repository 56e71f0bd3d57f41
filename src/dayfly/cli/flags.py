"""Flags that several commands share, and how their values become settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dayfly.cli.flag import Flag, option
from dayfly.cli.function_flags import FUNCTION_FLAGS
from dayfly.cli.training_flags import TRAINING_FLAGS
from dayfly.cli.values import lists_of, seconds_of
from dayfly.errors import RequestError

Command = TypeVar("Command", bound=Callable[..., None])


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
