"""`--shares auto`: shares with which both roles of hap end a step together (FasDL, equation 16).

    aggregator   |passes of B^a samples|  parts up, n-1 parts down, sum, sum up, other sums down  |
    another      |passes of B^n samples                                 |  parts up, sums down     |

B^n is the most samples with which another worker's round is no longer than an aggregator's: what
the equation says, T(B^n) = T(B^a) + T_agg, as a cap and rounded down (docs/errata.md), with T_agg
as the schedules have it. The batch is the job's, so the aggregators have what is left of it.
Nothing is left if the others can compute all of it while the aggregators sum, which are standalone
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.checks import check_configuration
from dayfly.planning.closed_form_kinds import rounds_s
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import excess_mib
from dayfly.planning.profile import Profile, read_profile
from dayfly.runs.keywords import AUTO
from dayfly.runs.plans import JobSpec, configuration
from dayfly.runs.settings import Settings


def settled(
    given: Mapping[str, Any],
    job: Job,
    name: str,
    code: Path | None,
    profile: Profile | Path | None,
) -> dict[str, Any]:
    """Returns settings with shares that are numbers.

    Args:
        given: settings of the run, by name.
        job: that is run.
        name: of the job.
        code: directory of its file; None: it has none.
        profile: of the job, or its file; None: the one that `--plan auto` keeps.

    Raises:
        RequestError: shares are not asked for so, cannot be so, or there is no profile.
    """
    if given.get("shares") != AUTO:
        if profile is not None:
            raise RequestError(f"--profile is for shares that follow from it: add --shares {AUTO}")
        return dict(given)
    if profile is None:
        from dayfly.runs.auto import at_hand  # it measures, too, which takes long to import

        profile = at_hand(job, name, code, given)
    known = read_profile(profile) if isinstance(profile, Path) else profile
    rest = {key: value for key, value in given.items() if key != "shares"}
    if known is None:
        Settings(**given)  # says what is missing
    assert known is not None, "settings have no shares that are not numbers"
    return {**rest, "shares": even_shares(known, Settings(**rest), JobSpec.of(job))}


def even_shares(profile: Profile, settings: Settings, wanted: JobSpec) -> tuple[int, ...]:
    """Returns each worker's share of a batch; empty: all are equal.

    Args:
        profile: of the job.
        settings: of the run, of hap, without shares.
        wanted: of the job.

    Raises:
        RequestError: no run of hap, unequal memory, or the profile lacks its functions.
    """
    if not settings.protocol.staleness:
        raise RequestError(
            f"--shares {AUTO} is for --sync hap, whose roles differ in what they do beside "
            f"computing: leave it out, and --sync {settings.sync} has shares by each one's CPU"
        )
    if settings.each_memory_mib:
        raise RequestError(
            f"--shares {AUTO} is for functions of one memory size: give --memory one, or the "
            "shares themselves"
        )
    c = configuration(settings, wanted)
    check_configuration(profile, c)
    batch, k = min(c.batch_size, profile.samples), c.aggregators or 0
    others = c.workers - k
    standalone = (0,) * k + (1,) * others
    if batch >= others and _keeps(profile, replace(c, shares=standalone), batch):
        return standalone
    low, high = batch // c.workers, (batch - k) // others
    while low < high:  # the last of low to high that keeps the limits
        middle = (low + high + 1) // 2
        if _keeps(profile, replace(c, shares=_shares(c, batch, middle)), batch):
            low = middle
        else:
            high = middle - 1
    return _shares(c, batch, low) if low > batch // c.workers else ()


def _shares(c: Configuration, batch: int, others_samples: int) -> tuple[int, ...]:
    """So many samples for each of the others, and for aggregators an equal part of what is left."""
    k = c.aggregators or 0
    others = c.workers - k
    own, theirs = batch - others * others_samples, k * others_samples
    common = gcd(own, theirs)
    return (own // common,) * k + (theirs // common,) * others


def _keeps(profile: Profile, c: Configuration, batch: int) -> bool:
    aggregator_s, other_s = rounds_s(profile, c, batch)
    return other_s <= aggregator_s and excess_mib(profile, c, len(c.kinds) - 1) <= 0
