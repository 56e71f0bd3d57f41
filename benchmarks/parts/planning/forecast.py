"""Profiles, and what they predict of the configurations."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.parts.planning.channels import Urls
from benchmarks.parts.planning.configurations import CHOSEN, WAYS, Chosen
from benchmarks.parts.planning.jobs import WORKS, write_data
from benchmarks.parts.spread import say
from dayfly.errors import RunFailed
from dayfly.plan.profile import Profile
from dayfly.plan.profile_file import profile_text
from dayfly.runs.planning import Wanted, read_profile
from dayfly.runs.predicting import predict_run
from dayfly.runs.profiling import measuring
from dayfly.runs.settings import Settings


def profile(
    name: str, urls: Urls, scratch: Path, kept: Path | None = None, *, quick: bool = False
) -> Profile:
    """The profile of that name, with all memory sizes of the configurations that are of it.

    kept: a directory; a profile that is there is used as it is, and one that is made is put there.
    quick: of few probes. Raises RunFailed if a function of it fails.
    """
    file = None if kept is None else kept / f"{name}.json"
    if file is not None and file.exists():
        return read_profile(file)
    of_it = [one for one in CHOSEN.values() if one.profile == name]
    first = of_it[0]
    sizes = sorted({size for one in of_it for size in one.memory_mib})
    work = WORKS[first.work]
    say(f"profile {name}: functions of {', '.join(map(str, sizes))} MiB")
    made = measuring.profile(
        work.job(write_data(work, scratch), batch_size=work.batch_size),
        Settings(channel=urls[first.channel], memory_mib=sizes[0], **WAYS[first.way]),
        sizes,
        name=work.name,
        quick=quick,
        note=say,
    )
    say(f"profile {name}: {made.took_s:.1f} s")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(profile_text(made))
    return made


def forecast(profile: Profile, chosen: Chosen, urls: Urls) -> dict[str, Any]:
    """What is predicted of a configuration, as JSON has it."""
    wanted = Wanted(batch_size=chosen.batch_size, epochs=chosen.epochs)
    settings = Settings(channel=urls[chosen.channel], **chosen.asked)
    prediction = predict_run(profile, settings, wanted).prediction
    if prediction is None:
        raise RunFailed(f"{chosen.name}: there is no prediction of it")
    return asdict(prediction)
