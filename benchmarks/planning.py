"""`dayfly bench planning`: what configurations are predicted to take, and what they really take.

    profile   each job over each channel and platform, once, by probes of its own
    predict   each configuration, before any is run
    round 0   every configuration, from the first to the last
    round 1   from the last to the first
    ...
    predict   each run once more, at the pace that the machine had

While each profile and each run goes on, a fixed piece of work is timed (`parts.planning.pace`).

A measurement is a whole run of `dayfly.train`. The configurations were chosen before anything was
profiled (`parts.planning.configurations`), and no coefficient is fitted on one of them. Beside each
error stands how well the measurement repeats itself: no prediction can be expected to be closer.

With `--imitate` they are pairs of what a plan chooses among (`parts.planning.imitated`): two
servers against one, 1f1b against fill-drain, unequal vCPUs.

With `--steady` the same jobs have layers that take the same CPU time in every pass
(`parts.planning.steady`), so that errors are of the prediction and not of the machine's pace.

With `--again DIR` a second profile of each, of an hour before or made after the runs, predicts the
same (`parts.planning.again`): how far two profiles are apart, beside the errors.

`--choose` runs nothing: it has the papers' own methods choose plans beside the exact planners
(`parts.choosing`); with `--run` for two jobs of this machine, and runs what they chose.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.parts.arguments import new_parser
from benchmarks.parts.choosing import carried_out_shown
from benchmarks.parts.choosing import shown as choices_shown
from benchmarks.parts.machine import Stolen, machine, one_thread
from benchmarks.parts.planning import shown
from benchmarks.parts.planning.again import agreement, apart_s
from benchmarks.parts.planning.at_pace import at_pace
from benchmarks.parts.planning.channels import Urls, channels
from benchmarks.parts.planning.compare import row, summary
from benchmarks.parts.planning.configurations import CHOSEN, Chosen
from benchmarks.parts.planning.forecast import Profiled, forecast, kept, of_configurations
from benchmarks.parts.planning.imitated import EVERY, IMITATED
from benchmarks.parts.planning.jobs import WORKS, Work
from benchmarks.parts.planning.measure import Taken, train
from benchmarks.parts.planning.pace import Even, Paced, paces
from benchmarks.parts.planning.steady import steady
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import say
from dayfly.life.sessions import Session

Json = dict[str, Any]
_ROUNDS, _QUICK_ROUNDS = 5, 1
#: One configuration of each job, to see that everything works.
_QUICK = ("cnn-2-all-reduce", "mlp-4-server-push-pull", "gpt-2-stages-fill-drain")
#: Processes that ran at once, on average of the last minute, above which figures mean nothing.
_BUSY = 0.5
#: Of the machine's time, what its host may give to others before figures mean little.
_ROBBED = 0.02

#: Problems of `--choose`.
_PROBLEMS = ("k-reduce", "stores", "stages", "shards")
#: Jobs of `--choose --run`.
_JOBS = ("cnn", "gpt")


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    if "run" in result:
        return carried_out_shown.table(result)
    return (choices_shown if "choose" in result else shown).table(result)


def run(args: Sequence[str]) -> Json:
    """Measure; returns the result, see `benchmarks/README.md`.

    Raises RequestError for a profile in `--profiles` that is none, or without its pace, and
    RunFailed if a run fails, or a function of it dies.
    """
    asked = _arguments(args)
    if asked.choose:
        # Its solvers are not needed for anything else.
        from benchmarks.parts.choosing import bench, carried_out

        if asked.run:
            return carried_out.run(
                asked.only, rounds=asked.rounds, keep=asked.profiles, quick=asked.quick
            )
        return bench.run(asked.only, seed=asked.seed, quick=asked.quick)
    chosen = [EVERY[name] for name in asked.only]
    there, again_there = (
        {one.profile: kept(one.profile, directory) for one in chosen}
        for directory in (asked.profiles, asked.again)
    )
    began, on_what, stolen = time.monotonic(), machine(), Stolen()
    busy = _busy(on_what["load"])
    if busy:
        say(busy)
    with (
        Session.open() as session,
        channels(one.channel for one in chosen) as urls,
        one_thread(),
        _works(chosen, asked.profiles, steadily=asked.steady) as works,
    ):
        scratch = scratch_of(session)
        measured = partial(_profiled, chosen, works, urls, scratch, quick=asked.quick)
        profiles = measured(there, asked.profiles)
        predictions = _forecasts(chosen, profiles, urls)
        # A second profile that is there and cannot predict is refused before anything runs.
        _forecasts(chosen, again_there, urls)
        runs = _measure(chosen, asked.rounds, urls, scratch, works)
        second = measured(again_there, asked.again) if asked.again else {}
        by_second = _forecasts(chosen, second, urls) if asked.again else {}
    rows = [
        _row(one, profiles[one.profile], predictions[one.name], runs[one.name], urls)
        for one in chosen
        if runs[one.name]
    ]
    again = None
    if asked.again:
        apart = [apart_s(profiles[name], one) for name, one in second.items()]
        again = agreement(predictions, by_second, rows, apart)
    share = stolen.share()
    return {
        "machine": {**on_what, "stolen": share},
        "warnings": [one for one in (busy, _robbed(share)) if one],
        "quick": asked.quick,
        "steady": asked.steady,
        "rounds": asked.rounds,
        "wall_s": time.monotonic() - began,
        "profiles": [
            {"name": name, "took_s": one.profile.took_s, "pass_s": one.pass_s}
            for name, one in profiles.items()
        ],
        "rows": rows,
        "summary": summary(rows) if rows else None,
        "again": again,
    }


def _profiled(
    chosen: Sequence[Chosen],
    works: Mapping[str, tuple[Work, Paced]],
    urls: Urls,
    scratch: Path,
    there: Mapping[str, Profiled | None],
    keep: Path | None,
    *,
    quick: bool,
) -> dict[str, Profiled]:
    """Profiles of the configurations by name: those that are there, the others made now."""
    return {
        name: there[name] or of_configurations(name, *works[work], urls, scratch, keep, quick=quick)
        for name, work in {one.profile: one.work for one in chosen}.items()
    }


def _forecasts(
    chosen: Sequence[Chosen], profiles: Mapping[str, Profiled | None], urls: Urls
) -> dict[str, Json]:
    """What is predicted of each configuration whose profile is there."""
    known = [(one, profiles[one.profile]) for one in chosen]
    return {one.name: forecast(by.profile, one, urls) for one, by in known if by is not None}


@contextmanager
def _works(
    chosen: Sequence[Chosen], keep: Path | None, *, steadily: bool
) -> Iterator[Mapping[str, tuple[Work, Paced]]]:
    """What the configurations train, by its name, each with what says how fast the machine is.

    keep: where the times of steady layers are kept.
    """
    names = dict.fromkeys(one.work for one in chosen)
    if steadily:
        yield {name: (steady(WORKS[name], keep), Even()) for name in names}
        return
    with paces(names) as probes:
        yield {name: (WORKS[name], probes[name]) for name in names}


def _measure(
    chosen: Sequence[Chosen],
    rounds: int,
    urls: Urls,
    scratch: Path,
    works: Mapping[str, tuple[Work, Paced]],
) -> dict[str, list[tuple[Taken, float]]]:
    """Every configuration once a round, every other round backwards.

    Each run with the CPU seconds of a pass of its work's probe beside it.
    """
    runs: dict[str, list[tuple[Taken, float]]] = {one.name: [] for one in chosen}
    for number in range(rounds):
        for one in chosen if number % 2 == 0 else reversed(chosen):
            work, pace = works[one.work]
            found, pass_s = pace.beside(partial(train, one, work, urls, scratch))
            runs[one.name].append((found, pass_s))
            say(
                f"round {number + 1} of {rounds}: {one.name} {1e3 * found.step_s:.1f} ms a step, "
                f"{found.wall_s:.1f} s, a pass of the probe {1e3 * pass_s:.1f} ms"
            )
    return runs


def _row(
    one: Chosen,
    known: Profiled,
    predicted: Json,
    runs: Sequence[tuple[Taken, float]],
    urls: Urls,
) -> Json:
    """Predicted, as the profile is and at each run's pace, beside measured."""
    factors = [pass_s / known.pass_s for _, pass_s in runs]
    paced = [forecast(at_pace(known.profile, factor), one, urls) for factor in factors]
    return row(one.name, predicted, [taken for taken, _ in runs], paced, factors) | _what(one)


def _what(one: Chosen) -> Json:
    """What a row's configuration is."""
    return {
        "work": one.work,
        "channel": one.channel,
        "way": one.way,
        "workers": one.workers,
        "functions_mib": list(one.functions),
        "batch_size": one.batch_size,
        "epochs": one.epochs,
        "settings": dict(one.settings),
        "held_out": one.held_out,
    }


def _robbed(share: float | None) -> str | None:
    """That the machine's host gave much of its time to others; None: not much, or nobody knows."""
    if share is None or share <= _ROBBED:
        return None
    return (
        f"the host of this machine gave {100 * share:.1f}% of its time to others: runs do not "
        "repeat themselves, and errors tell of that as well"
    )


def _busy(load: float) -> str | None:
    """That the machine does other things; None if it does not."""
    if load <= _BUSY:
        return None
    return (
        f"this machine is busy: {load} processes ran at once in the last minute, on "
        f"{len(os.sched_getaffinity(0))} cores; what is measured now means nothing"
    )


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(
        "planning", "Predicted beside measured: time, dollars and memory of configurations."
    )
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        metavar="NAME",
        help=f"these configurations: {', '.join(CHOSEN)}; "
        f"with --choose these problems: {', '.join(_PROBLEMS)}; with --run these jobs: "
        f"{', '.join(_JOBS)}",
    )
    parser.add_argument(
        "--choose",
        action="store_true",
        help="instead: how good and how quick the papers' own methods are at choosing plans",
    )
    parser.add_argument(
        "--run",
        action="store_true",
        help="with --choose: for jobs of this machine, and run the plans",
    )
    parser.add_argument(
        "--imitate",
        action="store_true",
        help=f"these configurations: {', '.join(IMITATED)}",
    )
    parser.add_argument(
        "--steady",
        action="store_true",
        help="layers take the same CPU time in every pass, somewhat more than on this machine now",
    )
    parser.add_argument("--seed", type=int, default=0, help="of --choose: of random problems")
    parser.add_argument(
        "--rounds",
        type=_whole,
        help=f"default: {_ROUNDS}, or {_QUICK_ROUNDS} if --quick; 0: profiles alone, which "
        "--profiles keeps",
    )
    parser.add_argument(
        "--profiles",
        type=_directory,
        metavar="DIR",
        help="keep the profiles there, and use those that are there; of --steady in a directory "
        "of its own there (default: make them anew)",
    )
    parser.add_argument(
        "--again",
        type=_directory,
        metavar="DIR",
        help="second profiles of the same, kept there: those that are there, or made after the "
        "runs; how far predictions by both are apart",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{', '.join(_QUICK)}, one round, and profiles of few probes; with --choose: few "
        "problems",
    )
    asked = parser.parse_args(args)
    if asked.run and not asked.choose:
        parser.error("argument --run: add --choose")
    if asked.imitate and (asked.choose or asked.only):
        parser.error("argument --imitate: not with --choose or --only")
    if asked.steady and asked.choose:
        parser.error("argument --steady: not with --choose")
    if asked.again and (asked.choose or asked.steady):
        parser.error("argument --again: not with --choose or --steady")
    if asked.again and asked.profiles and asked.again.samefile(asked.profiles):
        parser.error("argument --again: give another directory than --profiles has")
    if asked.rounds == 0 and (asked.choose or not asked.profiles):
        parser.error("argument --rounds: 0 makes profiles alone: add --profiles DIR")
    if asked.steady and asked.profiles:
        try:
            asked.profiles = _directory(f"{asked.profiles}/steady")
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument --profiles: {error}")
    known = (_JOBS if asked.run else _PROBLEMS) if asked.choose else tuple(EVERY)
    usual: Iterable[str] = IMITATED if asked.imitate else _QUICK if asked.quick else CHOSEN
    asked.only = asked.only or list(known if asked.choose else usual)
    for name in asked.only:
        if name not in known:
            parser.error(f"argument --only: {name!r} is none of {', '.join(known)}")
    if asked.rounds is None:
        asked.rounds = _QUICK_ROUNDS if asked.quick else _ROUNDS
    return asked


def _directory(text: str) -> Path:
    """One that can be written to; it is made, as a profile takes minutes."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is no directory: {error.strerror}") from error
    return path


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 0 or more")
    return number
