"""What a plan would take with one of its settings changed, the others as they are.

    workers, replicas    the next smaller and larger number of functions: half as many, twice
    vCPUs                each other number that the memory can be had with
    GPU                  each other share that can be had
    memory               the next smaller and larger size of the profile, in all stages
    micro-batches        half as many, twice as many
    schedule             the other order of a cut model's passes
    collective           each other that the channel has
    aggregators          K of k-reduce and hap: half as many, twice as many, all with equal shares
    store                the same functions over each other store

Each is predicted as the plan itself was. The front answers which plan is best; this answers what a
person asks next, whether a little more of one thing helps, and what it costs. Such plans are also
the neighbours among which `local_search` looks for a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel_problem import collectives_of
from dayfly.planning.choose.from_profile import limited, vcpus
from dayfly.planning.configuration import stage_size
from dayfly.runs.choosing.candidate import Candidate, changed
from dayfly.runs.choosing.cuts import limits_of
from dayfly.runs.choosing.option import KnownPredictions, Option, fits
from dayfly.runs.choosing.other_stores import OverStore
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.plans import configuration
from dayfly.specs.methods import Method
from dayfly.wire.collectives import K_REDUCE
from dayfly.wire.pipelines.orders import ORDERS
from dayfly.wire.pipelines.step import Layout


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting changed.

    Attributes:
        setting: its name, as a person says it.
        chosen: its value in the plan.
        other: the value that is tried.
        option: the plan with it, predicted; None: it cannot be run.
        why: why it cannot; empty: it can.
        asked_for: whether the plan is one of those that were asked for, by `--micro-batches` and
            others.
    """

    setting: str
    chosen: str
    other: str
    option: Option | None = None
    why: str = ""
    asked_for: bool = True


def knobs(
    option: Option,
    asked: PlanQuery,
    predicted: KnownPredictions,
    counted: Callable[[Candidate], Candidate | None],
    stores: Sequence[OverStore] = (),
) -> tuple[Knob, ...]:
    """Each setting of a plan changed alone, in the order of the module's list.

    Args:
        option: the plan.
        asked: what the choice is among.
        predicted: predicts others.
        counted: gives a plan the epochs of its method and batch size, or None
            (`variants.Variants.of`).
        stores: the plan over other stores.
    """
    candidate = option.candidate
    changes = [*_changes(candidate, asked)]
    made = [_counted(candidate, own, asked, counted) for _, own in changes]
    said = zip(changes, predicted.each(made), strict=True)
    found = [_tried(knob, one, asked) for (knob, _), one in said]
    store = candidate.target.profile.channel
    for over in stores:
        knob = Knob("store", store, over.store, why=over.why)
        found.append(knob if over.option is None else _tried(knob, over.option, asked))
    return tuple(found)


def _counted(
    candidate: Candidate,
    own: Mapping[str, Any],
    asked: PlanQuery,
    counted: Callable[[Candidate], Candidate | None],
) -> Candidate | RequestError:
    try:
        one = counted(changed(candidate, own))
    except RequestError as refusal:
        return refusal
    if one is None:
        return RequestError("it does not reach the same loss")
    s = one.settings
    return replace(one, limits=limits_of(one.target, asked, s.workers, s.sizes_mib))


def _tried(knob: Knob, option: Option | RequestError, asked: PlanQuery) -> Knob:
    if isinstance(option, RequestError):
        return replace(knob, why=str(option))
    if fits(option):
        return replace(knob, option=option, asked_for=_is_asked_for(option.candidate, asked, knob))
    said = option.prediction
    needs = f"{max(said.memory_mib):.0f} MiB"
    if said.gpu_memory_mib:
        needs += f", and {max(said.gpu_memory_mib):.0f} MiB of a GPU's"
    return replace(knob, why=f"a function would need {needs}")


def _is_asked_for(one: Candidate, asked: PlanQuery, knob: Knob) -> bool:
    """Whether a changed plan is one of those that were asked for. `_changes` keeps the limits of
    workers and memory sizes by itself."""
    s, profile = one.settings, one.target.profile
    sums = s.members > 1 and not s.cut and not s.protocol.staleness
    if asked.collectives and sums and s.algorithm not in asked.collectives:
        return False
    if asked.micro_batches and (s.cut or knob.setting == "micro-batches"):
        # Of a cut model all replicas' together, else each worker's.
        together = (s.micro_batches or 1) * (s.members if s.cut else 1)
        if together not in asked.micro_batches:
            return False
    if not any(way.allows(Method.of(s)) for way in asked.ways):
        return False
    c = configuration(s, one.wanted)
    used = sum(c.members_of(at) * vcpus(stage_size(profile, c, at)) for at in range(c.stages))
    return used <= (1 + 1e-9) * asked.vcpus_of(profile)


def _changes(candidate: Candidate, asked: PlanQuery) -> Iterator[tuple[Knob, Mapping[str, Any]]]:
    """Yields each knob, and the settings with it."""
    s, own, profile = candidate.settings, dict(candidate.own), candidate.target.profile
    members, what = s.members, "replicas" if s.cut else "workers"
    micro = own.get("micro_batches", 1)
    each = s.layout.each
    for others in (tuple(one // 2 for one in each), tuple(2 * one for one in each)):
        if min(others) >= 1 and sum(others) <= asked.workers:
            more = _of_members(own, max(others))
            # The micro-batches of a step stay as many: each replica has its part of them.
            if s.cut:
                more["micro_batches"] = max(1, micro * members // max(others))
            elif members == 1 and asked.collectives:
                more["collective"] = asked.collectives[0]
            count = others[0] if s.layout.even else others
            words = Layout(len(others), others).in_words
            yield Knob(what, s.layout.in_words, words), {**more, what: count}
    has, share = own.get("cpu_cores"), own.get("gpu_share")
    sizes = [size for size, one in limited(profile) if has in (None, one.cpu_cores)]
    sizes = list(dict.fromkeys(sizes))
    for step in (-1, 1):
        if s.cut:
            other = tuple(_next(sizes, size, step) for size in s.stage_memory_mib)
            if other != s.stage_memory_mib:
                words = "next smaller" if step < 0 else "next larger"
                yield Knob("memory", "of each stage", words), {**own, "stage_memory_mib": other}
        elif (
            s.memory_mib is not None and (size := _next(sizes, s.memory_mib, step)) != s.memory_mib
        ):
            yield Knob("memory", f"{s.memory_mib} MiB", f"{size} MiB"), {**own, "memory_mib": size}
    for count in (micro // 2, 2 * micro):
        if 1 <= count <= -(-candidate.wanted.batch_size // members):
            yield Knob("micro-batches", str(micro), str(count)), {**own, "micro_batches": count}
    if s.cut:
        for name in ORDERS:
            if name != s.schedule:
                yield Knob("schedule", s.schedule, name), {**own, "schedule": name}
    if s.memory_mib is not None and not s.cut:
        of_size = [one for size, one in limited(profile) if size == s.memory_mib]
        for cores in dict.fromkeys(one.cpu_cores for one in of_size if one.cpu_cores):
            if has not in (None, cores):
                yield Knob("vCPUs", f"{has:g}", f"{cores:g}"), {**own, "cpu_cores": cores}
        for part in dict.fromkeys(one.gpu_share for one in of_size if one.gpu_share):
            if share not in (None, part):
                yield Knob("GPU", f"{share:g}", f"{part:g}"), {**own, "gpu_share": part}
    if members > 1 and not s.cut and not s.protocol.staleness:
        for name in asked.collectives or collectives_of(profile):
            if name not in (s.algorithm, K_REDUCE):
                summed = {**own, "collective": name, "aggregators": None}
                yield Knob("collective", s.algorithm, name), summed
    if s.aggregators is not None:
        for count in (s.aggregators // 2, 2 * s.aggregators):
            if 1 <= count <= members:
                more = {**own, "aggregators": count, "shares": ()}
                yield Knob("aggregators", str(s.aggregators), str(count)), more


def _of_members(own: Mapping[str, Any], members: int) -> dict[str, Any]:
    """Settings for so many members: a lone one sums nothing; of aggregators there are no more."""
    more = {name: value for name, value in own.items() if name != "shares"}
    if members == 1:
        more = {name: value for name, value in more.items() if name not in ("collective", "sync")}
    if more.pop("aggregators", None) is not None and members > 1:
        more["aggregators"] = min(own["aggregators"], members)
    return more


def _next(sizes: list[int], size: int, step: int) -> int:
    """The next of rising sizes, or the same one at the end."""
    at = sizes.index(size) + step
    return sizes[at] if 0 <= at < len(sizes) else size
