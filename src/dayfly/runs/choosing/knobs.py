"""What the chosen plan would take with one of its settings changed, the others as they are.

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
person asks next, whether a little more of one thing helps, and what it costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel_problem import collectives_of
from dayfly.planning.choose.from_profile import limited
from dayfly.runs.choosing.candidate import Candidate, with_settings
from dayfly.runs.choosing.choice import Choice
from dayfly.runs.choosing.option import Option, fits, predicted
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.ranking import MESSAGES_PER_S
from dayfly.wire.collectives import K_REDUCE
from dayfly.wire.pipelines.orders import ORDERS
from dayfly.wire.pipelines.step import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting changed.

    Attributes:
        setting: its name, as a person says it.
        chosen: its value in the plan.
        other: the value that is tried.
        option: the plan with it, predicted; None: it cannot be run.
        why: why it cannot; empty: it can.
    """

    setting: str
    chosen: str
    other: str
    option: Option | None = None
    why: str = ""


def knobs(choice: Choice) -> tuple[Knob, ...]:
    """Each setting of the chosen plan changed alone, in the order of the module's list."""
    candidate, asked = choice.chosen.plan.candidate, choice.asked
    found = [
        _tried(Knob(setting=setting, chosen=chosen, other=other), candidate, own, asked)
        for setting, chosen, other, own in _changes(candidate, asked)
    ]
    store = candidate.target.profile.channel
    found += [
        Knob(setting="store", chosen=store, other=one.store, option=one.option, why=one.why)
        for one in choice.stores
    ]
    return tuple(found)


def _tried(knob: Knob, candidate: Candidate, own: Mapping[str, Any], asked: PlanQuery) -> Knob:
    try:
        option = predicted(with_settings(candidate, own), MESSAGES_PER_S * asked.time_limit_s)
    except RequestError as refusal:
        return replace(knob, why=str(refusal))
    if fits(option):
        return replace(knob, option=option)
    said = option.prediction
    needs = f"{max(said.memory_mib):.0f} MiB"
    if said.gpu_memory_mib:
        needs += f", and {max(said.gpu_memory_mib):.0f} MiB of a GPU's"
    return replace(knob, why=f"a function would need {needs}")


def _changes(
    candidate: Candidate, asked: PlanQuery
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Setting, its value, another one, and the settings with that."""
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
            count = others[0] if s.layout.even else others
            words = Layout(len(others), others).in_words
            yield what, s.layout.in_words, words, {**more, what: count}
    vcpus, share = own.get("cpu_cores"), own.get("gpu_share")
    sizes = [size for size, one in limited(profile) if vcpus in (None, one.cpu_cores)]
    sizes = list(dict.fromkeys(sizes))
    for step in (-1, 1):
        if s.cut:
            other = tuple(_next(sizes, size, step) for size in s.stage_memory_mib)
            if other != s.stage_memory_mib:
                words = "next smaller" if step < 0 else "next larger"
                yield "memory", "of each stage", words, {**own, "stage_memory_mib": other}
        elif (
            s.memory_mib is not None and (size := _next(sizes, s.memory_mib, step)) != s.memory_mib
        ):
            yield "memory", f"{s.memory_mib} MiB", f"{size} MiB", {**own, "memory_mib": size}
    for count in (micro // 2, 2 * micro):
        if 1 <= count <= -(-candidate.wanted.batch_size // members):
            yield "micro-batches", str(micro), str(count), {**own, "micro_batches": count}
    if s.cut:
        for name in ORDERS:
            if name != s.schedule:
                yield "schedule", s.schedule, name, {**own, "schedule": name}
    if s.memory_mib is not None and not s.cut:
        of_size = [one for size, one in limited(profile) if size == s.memory_mib]
        for cores in dict.fromkeys(one.cpu_cores for one in of_size if one.cpu_cores):
            if vcpus not in (None, cores):
                yield "vCPUs", f"{vcpus:g}", f"{cores:g}", {**own, "cpu_cores": cores}
        for part in dict.fromkeys(one.gpu_share for one in of_size if one.gpu_share):
            if share not in (None, part):
                yield "GPU", f"{share:g}", f"{part:g}", {**own, "gpu_share": part}
    if members > 1 and not s.cut and not s.protocol.staleness:
        for name in asked.collectives or collectives_of(profile):
            if name not in (s.algorithm, K_REDUCE):
                changed = {**own, "collective": name, "aggregators": None}
                yield "collective", str(s.algorithm), name, changed
    if s.aggregators is not None:
        for count in (s.aggregators // 2, 2 * s.aggregators):
            if 1 <= count <= members:
                more = {**own, "aggregators": count, "shares": ()}
                yield "aggregators", str(s.aggregators), str(count), more


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
