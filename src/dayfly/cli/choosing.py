"""`dayfly plan`: reads its flags, chooses, and has the choice shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.cli.catalogue import ASSUMED, own_catalogue
from dayfly.cli.values import numbers, seconds_of
from dayfly.errors import RequestError
from dayfly.planning.choose.pipelines.merging import Merging
from dayfly.planning.profile import Profile, read_profile
from dayfly.runs.choosing.choice import Choice, PaperChoice, choice_of
from dayfly.runs.choosing.choice_json import tree
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import Target, TargetQuery, targets_of_job, targets_of_profiles
from dayfly.runs.plans import write_plan

LOCAL = "local"
#: Of `--fragments`: all is exchanged at a round's end.
NO_FRAGMENTS = "none"
_MEASURING = ("imitate", "quick")


def plan(
    files: Sequence[Path],
    flags: Mapping[str, Any],
    output: Path | None,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Choose, and show it.

    Args:
        flags: of the command, by their names with underscores.

    Raises:
        RequestError: for what is wrong, and with the nearest plan if there is none as asked for.
    """
    asked = asked_of(flags)
    if plot is not None:
        # Here, as it brings all that draws reports.
        from dayfly.runs.report.choice import check_plot, write_plot

        check_plot(plot)
    choice = choice_of(_targets(files, flags, asked), asked, _told)
    if output is not None:
        write_plan(choice.chosen.plan.plan, output)
    written = [] if plot is None else write_plot(choice, plot, _papers(choice))
    if as_json:
        whole = tree(choice, None if output is None else str(output))
        print(json.dumps({**whole, "plots": list(map(str, written))}, allow_nan=False))
        return
    from dayfly.cli.choice_lines import print_choice  # with what draws in the terminal

    print_choice(choice, everywhere=flags["everywhere"])
    for name, file in (("plan", output), *(("plot", one) for one in written)):
        if file is not None:
            print(f"{name:<12}{file}")


def _told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _papers(choice: Choice) -> list[PaperChoice]:
    """What the papers' methods choose; none without the benches, or without what they import."""
    from dayfly.cli.bench import checkout_module  # for pictures alone

    try:
        methods = checkout_module("parts.choosing.on_jobs")
    except RequestError:
        return []
    return list(methods.beside(choice))


def asked_of(flags: Mapping[str, Any]) -> PlanQuery:
    """What the flags ask for. Raises RequestError for values that are none."""
    goal = goal_of(flags)
    given: dict[str, Any] = {
        "workers": flags["workers"],
        "vcpus": flags["vcpus"],
        "epochs": flags["epochs"],
        "most_batch_size": flags["most_batch_size"],
        "time_limit_s": flags["time_limit"],
        "target_loss": flags["target_loss"],
        "target_accuracy": flags["target_accuracy"],
    }
    if flags["batch_size"] is not None:
        sizes = numbers("--batch-size", flags["batch_size"], "256,512")
        given |= {"batch_size": sizes[0]} if len(sizes) == 1 else {"batch_sizes": sizes}
    for flag, name in (
        *(("sync", "methods"), ("efficiency", "efficiencies"), ("compress", "compress")),
        *(("fragments", "fragments"), ("overlap", "overlap")),
    ):
        if flags[flag] is not None:
            given[name] = _listed(flag, flags[flag])
    if flags["memory"] is not None:
        given["memory_mib"] = numbers("--memory", flags["memory"], "1024,3072")
    if flags["micro_batches"] is not None:
        given["micro_batches"] = numbers("--micro-batches", flags["micro_batches"], "4,16")
    if flags["merge_layers"] is not None:
        merging = Merging.parse(flags["merge_layers"])
        given |= {"merge_layers": merging.most, "merge_by": merging.by}
    if flags["collective"] is not None:
        given["collectives"] = tuple(flags["collective"].split(","))
    asked = PlanQuery(
        goal=goal, **{name: value for name, value in given.items() if value is not None}
    )
    if flags["curve"] is None:
        return asked
    from dayfly.runs.choosing.reaching import reaching  # it reads runs, which others do not need

    return reaching(asked, flags["curve"])


def _listed(flag: str, text: str) -> tuple[Any, ...]:
    """Returns the values of a flag that lists some to compare, as `--fragments none,2,4`.

    Raises RequestError for text that is no such list.
    """
    if flag == "overlap":
        return numbers("--overlap", text, "5,10")
    words = names_of(text)
    if flag == "fragments":
        each = (None if one == NO_FRAGMENTS else numbers(f"--{flag}", one, "2,4") for one in words)
        return tuple(None if one is None else one[0] for one in each)
    return words


def goal_of(flags: Mapping[str, Any]) -> Goal:
    """Which plan is to be chosen. Raises RequestError for values that are none."""
    weights = None
    if (given := flags.get("weights")) is not None:
        found = _floats("--weights", given, "0.5,0.5")
        if len(found) != 2:
            raise RequestError(f"--weights {given}: give two numbers, as 0.5,0.5")
        weights = (found[0], found[1])
    deadline = flags["deadline"]
    return Goal(
        deadline_s=None if deadline is None else seconds_of("--deadline", deadline),
        budget_usd=flags["budget"],
        weights=weights,
        objective=flags["objective"],
    )


def _targets(
    files: Sequence[Path], flags: Mapping[str, Any], asked: PlanQuery
) -> tuple[Target, ...]:
    own = own_catalogue(flags["own"])
    known = Catalogue(Path(own).expanduser() if own is not None else None)
    platforms, stores = names_of(flags["platform"]), names_of(flags["store"])
    assumed = {
        name: [value * unit for value in _floats(f"--{flag}", flags[flag], "1,2")]
        for flag, (name, unit) in ASSUMED.items()
        if flags.get(flag) is not None
    }
    if flags["base_memory"] is not None:
        assumed["base_mib"] = [flags["base_memory"]]
    jobs = [file for file in files if file.suffix == ".py"]
    local = platforms == (LOCAL,)
    for flag in _MEASURING:
        if flags[flag] and not (jobs and local):
            raise RequestError(f"--{flag} is for a job that is measured: add --platform {LOCAL}")
    gpu = None if flags["gpu"] is None else GpuRequest.parse(flags["gpu"])
    everywhere = flags["everywhere"]
    for flag in ("platform", "store", "gpu") if everywhere else ():
        if flags[flag] is not None:
            name = "price-store" if flag == "store" else flag
            raise RequestError(
                f"--everywhere looks at all platforms, stores and GPUs: leave out --{name}, or "
                "--everywhere"
            )
    made = bool(jobs) or gpu is not None or bool(platforms) or everywhere
    if assumed and (not made or local):
        flag = next(flag for flag in (*ASSUMED, "base_memory") if flags.get(flag)).replace("_", "-")
        raise RequestError(
            f"--{flag} is for a job on a platform of the catalogue: a profile has its seconds "
            "already"
        )
    if gpu is not None and local:
        raise RequestError(
            f"--gpu with --platform {LOCAL}: measure the job first (dayfly profile --gpu), and "
            "plan by its profile"
        )
    query = TargetQuery(
        platforms=platforms,
        stores=stores,
        memory_mib=asked.memory_mib,
        most_workers=asked.workers,
        assumed=assumed,
        gpu=gpu,
        everywhere=everywhere,
        known=known,
    )
    if not jobs:
        return targets_of_profiles(list(map(read_profile, files)), query)
    if len(files) > 1:
        raise RequestError(f"{len(files)} files: give one job, or profiles of it")
    # What runs jobs takes long to import, and profiles do without.
    from dayfly.runs.api import of_one_batch, overridden
    from dayfly.runs.shipping import load_job_file

    job = load_job_file(jobs[0])
    one = of_one_batch(job, asked.largest_batch)
    if local:
        largest = overridden(job, batch_size=asked.largest_batch)
        measured = _measured(largest, jobs[0], flags, asked)
        # Passes were measured up to the largest batch; the job's own batch size is what others
        # are compared with.
        profile = replace(
            measured, batch_size=one.batch_size, batch_per_worker=one.batch_per_worker
        )
        return (Target.of(profile, known),)
    return targets_of_job(one, jobs[0].stem, query)


def _measured(job: Any, file: Path, flags: Mapping[str, Any], asked: PlanQuery) -> Profile:
    """On this machine, under the limits of a platform that it imitates."""
    from dayfly.runs.api import checked_settings
    from dayfly.runs.display import Lines, StandardError
    from dayfly.runs.profiling import measuring

    if not asked.memory_mib:
        raise RequestError(
            f"--platform {LOCAL} needs --memory: give the sizes to measure in MiB, as 512,1024"
        )
    if flags["store"] is not None:
        raise RequestError(
            f"--price-store is for platforms of the catalogue: {LOCAL} talks over files"
        )
    settings = {"imitate": flags["imitate"]} if flags["imitate"] is not None else {}
    for size in asked.memory_mib:
        checked_settings(**settings, memory_mib=size)
    note = Lines(StandardError()).note
    return measuring.profile(
        job,
        checked_settings(**settings),
        asked.memory_mib,
        name=file.stem,
        code=file.resolve().parent,
        quick=flags["quick"],
        told=note,
        note=note,
    )


def names_of(text: str | None) -> tuple[str, ...]:
    """Returns words with commas between; none: nothing was given."""
    return () if text is None else tuple(one.strip() for one in text.split(","))


def _floats(flag: str, text: str, such_as: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{flag.replace('_', '-')} {text!r}: give numbers with commas between, as {such_as}"
        ) from None
