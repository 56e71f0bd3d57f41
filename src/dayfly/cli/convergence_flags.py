"""Flags of `dayfly profile --convergence`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dayfly.cli.choice_flags import CHOICE
from dayfly.cli.flag import Flag
from dayfly.cli.values import seconds_of
from dayfly.errors import RequestError

if TYPE_CHECKING:
    from dayfly.runs.profiling.convergence_query import ConvergenceQuery

#: By parameter; those beside the first are nothing without it.
CONVERGENCE: Mapping[str, Flag] = {
    "convergence": Flag(
        str,
        "Measure by short runs how many samples methods take to bsp's loss: bsp (2, 4 and 8 times "
        "the batch), local-sgd:K, nesterov:K, hap:AGGREGATORS, with +int8 or another --compress, "
        "and @BATCH.",
        "not measured",
        metavar="METHOD,METHOD,...",
    ),
    "short_workers": Flag(
        int, "Functions of each short run.", "4, or one more than hap's AGGREGATORS", ("--workers",)
    ),
    "short_epochs": Flag(
        int, "Epochs of bsp, to whose loss the others are trained.", "the job's", ("--epochs",)
    ),
    "seeds": Flag(int, "Short runs of each method and batch size.", "3"),
    "tolerance": Flag(
        float,
        "As a share, how many more samples than bsp a batch or a method may take, so that it "
        "counts as converging as well.",
        "0.1",
    ),
    "short_time": Flag(
        str,
        "Time for all short runs together: 90, 90s, 30m or 2h.",
        "any",
        ("--max-time",),
        metavar="TIME",
    ),
}


#: Those of a plan that `dayfly train --plan auto` chooses.
OF_AUTO: Mapping[str, Flag] = {
    name: replace(flag, help=f"With --plan auto: {flag.help[0].lower()}{flag.help[1:]}")
    for name, flag in (
        ("efficiency", CHOICE["efficiency"]),
        *((name, CONVERGENCE[name]) for name in ("convergence", "seeds", "tolerance")),
    )
}


def convergence_asked(flags: Mapping[str, Any]) -> ConvergenceQuery | None:
    """Returns what the flags ask for; None: nothing is to be measured.

    Args:
        flags: of the command, by parameter.

    Raises:
        RequestError: a value that is none, or flags of short runs without `--convergence`.
    """
    given = {name: flags[name] for name in CONVERGENCE if flags.get(name) is not None}
    text = given.pop("convergence", None)
    if text is None:
        for name in given:
            (typed,) = CONVERGENCE[name].names or (f"--{name}",)
            raise RequestError(f"{typed} is for short runs: add --convergence bsp, or leave it out")
        return None
    # What trains takes long to import, and other profiles do without.
    from dayfly.runs.profiling.convergence_query import ConvergenceQuery

    time = given.get("short_time")
    return ConvergenceQuery.parse(
        text,
        workers=given.get("short_workers"),
        epochs=given.get("short_epochs"),
        seeds=given.get("seeds"),
        tolerance=given.get("tolerance"),
        max_time_s=None if time is None else seconds_of("--max-time", time),
    )
