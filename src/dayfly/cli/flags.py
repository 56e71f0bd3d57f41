"""Flags that several commands have: what a run's functions are, and how they talk."""

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
Resume = Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")]
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
WaitTimeout = Annotated[
    float | None,
    typer.Option(
        help="How long a worker waits for a message of another, in s.", show_default="900"
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
    own = context.params["own"]
    given["catalogue"] = own_catalogue(own) if own is not None or not resumed else None
    return {name: value for name, value in given.items() if value is not None}
