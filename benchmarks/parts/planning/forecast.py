"""Profiles, and what they predict of the configurations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.parts.planning.channels import Urls
from benchmarks.parts.planning.configurations import WAYS, Chosen
from benchmarks.parts.planning.imitated import EVERY
from benchmarks.parts.planning.jobs import Work, write_data
from benchmarks.parts.planning.pace import Paced, pace_text, read_pace
from benchmarks.parts.spread import say
from dayfly.errors import RequestError, RunFailed
from dayfly.planning.profile import Profile, profile_text, read_profile
from dayfly.runs.plans import JobSpec
from dayfly.runs.predict import predict_run
from dayfly.runs.profiling import measuring
from dayfly.runs.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A profile, and pass_s: CPU seconds of the probe's pass beside it, see `pace`.

    made_s: when, in seconds since 1970; None: nobody wrote it down.
    """

    profile: Profile
    pass_s: float
    made_s: float | None = None


def kept(name: str, directory: Path | None) -> Profiled | None:
    """The profile of that name, if it is there.

    Raises RequestError for what is no profile, and for one whose pace nobody wrote down.
    """
    if directory is None or not (file := _file(directory, name)).exists():
        return None
    beside = _pace_file(directory, name)
    if not beside.exists():
        raise RequestError(
            f"{file} has no {beside.name} beside it, which says how fast the machine was: take the "
            "profile away, and it is made anew"
        )
    pass_s, made_s = read_pace(beside)
    return Profiled(profile=read_profile(file), pass_s=pass_s, made_s=made_s)


def of_configurations(
    name: str,
    work: Work,
    pace: Paced,
    urls: Urls,
    scratch: Path,
    keep: Path | None,
    *,
    quick: bool = False,
) -> Profiled:
    """The profile of that name, with all memory sizes of the configurations that are of it; see
    `profiled`."""
    of_it = [one for one in EVERY.values() if one.profile == name]
    first = of_it[0]
    sizes = sorted({size for one in of_it for size in one.memory_mib})
    way = {"channel": urls[first.channel], **WAYS[first.way]}
    return profiled(name, work, way, sizes, scratch, pace, keep, quick=quick)


def profiled(
    name: str,
    work: Work,
    way: Mapping[str, Any],
    sizes: Sequence[int],
    scratch: Path,
    pace: Paced,
    keep: Path | None,
    *,
    quick: bool = False,
) -> Profiled:
    """The profile of a work on functions of these sizes. way: settings of theirs.

    name: of its file. pace: of its work. keep: a directory where it is put; None: nowhere. quick:
    of few probes. Raises RunFailed if a function of it fails.
    """
    data = write_data(work, scratch)

    def measured() -> Profile:
        return measuring.profile(
            work.job(data, batch_size=work.batch_size),
            Settings(memory_mib=sizes[0], **way),
            sizes,
            name=work.name,
            quick=quick,
            note=say,
        )

    say(f"profile {name}: functions of {', '.join(map(str, sizes))} MiB")
    made_s = time.time()
    made, pass_s = pace.beside(measured)
    say(f"profile {name}: {made.took_s:.1f} s, a pass of the probe {1e3 * pass_s:.1f} ms")
    if keep is not None:
        # The pace first: a profile without one is of no use.
        _pace_file(keep, name).write_text(pace_text(pass_s, made_s))
        _file(keep, name).write_text(profile_text(made))
    return Profiled(profile=made, pass_s=pass_s, made_s=made_s)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}.json"


def _pace_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.pace.json"


def forecast(profile: Profile, chosen: Chosen, urls: Urls) -> dict[str, Any]:
    """What is predicted of a configuration, as JSON has it."""
    wanted = JobSpec(batch_size=chosen.batch_size, epochs=chosen.epochs)
    settings = Settings(channel=urls[chosen.channel], **chosen.asked)
    prediction = predict_run(profile, settings, wanted).prediction
    if prediction is None:
        raise RunFailed(f"{chosen.name}: there is no prediction of it")
    return asdict(prediction)
