"""`dayfly profile --from-catalogue`: what its flags say of a platform that cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.catalogue.lookup import Catalogue
from dayfly.cli.catalogue import own_catalogue
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.catalogued import Assumed
from dayfly.planning.profile import Profile
from dayfly.runs.profiling.from_catalogue import base_mib, catalogued_profile

#: By the names of flags: what is assumed, and how much a unit of the flag is of it.
_ASSUMED = {
    "flops_per_vcpu": ("vcpu_flops_per_s", 1e9),
    "cpu": ("vcpus", 1.0),
    "threads": ("threads", 1),
    "latency": ("latency_s", 1e-3),
    "uplink": ("up_bytes_per_s", 1e6),
    "downlink": ("down_bytes_per_s", 1e6),
    "cold_start": ("cold_start_s", 1.0),
    "beta": ("beta", 1.0),
}


#: Flags of a platform that is looked up, and of one that is measured, alone.
_OF_ROWS = ("store", "flops_per_vcpu", "threads", "beta", "cold_start", "base_memory")
_OF_MEASURING = ("channel", "imitate", "wait_timeout", "quick")


def check_flags(flags: Mapping[str, Any]) -> bool:
    """Whether a profile is to be made from the catalogue.

    Raises RequestError for flags that say nothing then, or otherwise.
    """
    looked_up = bool(flags["from_catalogue"])
    for flag in _OF_MEASURING if looked_up else _OF_ROWS:
        if flags.get(flag) not in (None, False):
            raise RequestError(
                f"{_flag(flag)} is for a profile that is "
                + (
                    "measured: leave out --from-catalogue"
                    if looked_up
                    else "looked up: add --from-catalogue"
                )
            )
    return looked_up


def profile_from_catalogue(
    job: Job, name: str, memory_mib: tuple[int, ...], flags: Mapping[str, Any]
) -> Profile:
    """The job's profile on the platform and over the store that the flags name.

    name: the job's. flags: by their names with underscores; None: not given. platform, store:
    names of the catalogue. cpu: vCPUs. uplink, downlink: MB/s. latency: ms. cold_start: s.
    flops_per_vcpu: GFLOP/s. base_memory: MiB, measured if it is not given. threads, beta: as
    `Assumed`. own: the user's own catalogue. Raises RequestError for what is missing, not known, or
    cannot be.
    """
    for flag, example in (("platform", "aws-lambda"), ("store", "s3")):
        if flags.get(flag) is None:
            raise RequestError(
                f"--from-catalogue needs {_flag(flag)}: give a name of dayfly catalogue, as "
                f"{example}"
            )
    if not memory_mib:
        raise RequestError("--from-catalogue needs --memory: give sizes in MiB, as 1769,3538")
    given = {
        assumed: flags[flag] * unit
        for flag, (assumed, unit) in _ASSUMED.items()
        if flags.get(flag) is not None
    }
    base = flags.get("base_memory")
    directory = own_catalogue(flags.get("own"))
    return catalogued_profile(
        job,
        name=name,
        platform=flags["platform"],
        store=flags["store"],
        memory_mib=memory_mib,
        assumed=Assumed(base_mib=base_mib() if base is None else base, **given),
        catalogue=Catalogue(Path(directory).expanduser() if directory is not None else None),
    )


def _flag(name: str) -> str:
    """As the command line has it."""
    return "--price-store" if name == "store" else f"--{name.replace('_', '-')}"
