"""The keywords of the Python functions by name and type, for editors and `help`.

`Settings`, `PlanQuery` and `Scenario` say what each means; a test holds the two together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

from dayfly.dataclass_json import check_kind
from dayfly.errors import RequestError
from dayfly.misspelt import meant

#: In place of a plan: the run chooses it.
AUTO = "auto"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class ProfileKeywords(TypedDict, total=False):
    """Those of `dayfly.runs.settings.Settings` on which a measurement depends."""

    platform: str
    channel: str | None
    cpu_cores: float | None
    uplink_mb_per_s: float | None
    downlink_mb_per_s: float | None
    latency_ms: float | None
    imitate: str | None
    wait_timeout_s: float
    catalogue: str | None


class SettingKeywords(ProfileKeywords, total=False):
    """As the fields of `dayfly.runs.settings.Settings`."""

    workers: int
    platform_options: Mapping[str, str | float | bool]
    memory_mib: int | None
    lifetime_s: float | None
    cold_start_s: float | None
    payload_kb: float | None
    gpu_share: float | None
    log_budget_mib: int | None
    max_cost_usd: float | None
    max_time_s: float | None
    coordinator_lifetime_s: float | None
    allow_other_cpu: bool
    sync: str
    k: int | Literal["epoch"] | None
    outer: str | None
    outer_lr: float | None
    outer_momentum: float | None
    fragments: int | None
    overlap: int | None
    collective: str | None
    aggregators: int | None
    compress: str
    virtual_workers: int | None
    precision: str
    target_accuracy: float | None
    target_loss: float | None
    keep: str | None
    monitor: str | None
    mode: str | None
    patience: int | None
    log: tuple[str, ...]
    checkpoint_every_s: float
    micro_batches: int | None
    on_nan: str
    cut: tuple[int, ...]
    replicas: int | tuple[int, ...] | None
    schedule: str
    stage_memory_mib: tuple[int, ...]
    each_memory_mib: tuple[int, ...]
    shares: tuple[int, ...] | Literal["auto"]


class ChangeKeywords(TypedDict, total=False):
    """As the fields of `dayfly.runs.changes.Changes`."""

    platform: str | None
    platform_options: Mapping[str, Any] | None
    imitate: str | None
    workers: int | None
    memory_mib: int | None
    stage_memory_mib: tuple[int, ...] | None
    each_memory_mib: tuple[int, ...] | None
    shares: tuple[int, ...] | None
    cpu_cores: float | None
    lifetime_s: float | None
    uplink_mb_per_s: float | None
    downlink_mb_per_s: float | None
    latency_ms: float | None
    cold_start_s: float | None
    channel: str | None
    sync: str | None
    k: int | Literal["epoch"] | None
    outer: str | None
    outer_lr: float | None
    outer_momentum: float | None
    fragments: int | None
    overlap: int | None
    collective: str | None
    aggregators: int | None
    cut: tuple[int, ...] | None
    replicas: int | tuple[int, ...] | None
    micro_batches: int | None
    schedule: str | None
    log_budget_mib: int | None
    checkpoint_every_s: float | None


class ChoiceKeywords(TypedDict, total=False):
    """Fields of `dayfly.runs.choosing.query.PlanQuery` that `plan` does not have itself."""

    workers: int
    vcpus: float | None
    memory_mib: tuple[int, ...]
    micro_batches: tuple[int, ...]
    collectives: tuple[str, ...]
    batch_size: int | None
    batch_sizes: tuple[int, ...]
    methods: tuple[str, ...]
    fragments: tuple[int | None, ...]
    overlap: tuple[int, ...]
    compress: tuple[str, ...]
    efficiencies: tuple[str, ...]
    epochs: int | None
    most_batch_size: int | None
    merge_layers: int | None
    merge_by: str
    target_loss: float | None
    target_accuracy: float | None
    least_predicted: int


class ScenarioKeywords(TypedDict, total=False):
    """As the fields of `dayfly.planning.simulation.scenario.Scenario`."""

    seed: int
    deaths_per_hour: float
    cold_start_s: float
    cold_start_sigma: float
    straggler_sigma: float
    stragglers: int
    straggler_factor: float
    store_bytes_per_s: float | None
    decline: tuple[tuple[float, float], ...]
    invoke_call_s: float
    invoke_at_once: int
    invoke_fan_out: int | None


def shows(keywords: type) -> Callable[[AnyFunction], AnyFunction]:
    """Has a function's signature name each keyword in place of `**`; None: as it would be.

    Args:
        keywords: a `TypedDict`, as the function unpacks it.
    """

    def shown(function: AnyFunction) -> AnyFunction:
        whole = inspect.signature(function)
        own = [one for one in whole.parameters.values() if one.kind is not one.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in get_type_hints(keywords).items()
        ]
        signature = whole.replace(parameters=[*own, *named])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return shown


def check_keywords(
    given: Mapping[str, Any],
    of: Any,
    without: Collection[str] = (),
    beside: Callable[..., Any] | None = None,
) -> None:
    """Checks keywords before a dataclass is made of them.

    Args:
        given: by name; None: as if it was not given.
        of: the dataclass.
        without: names of its fields that are no keywords.
        beside: the function that was called, whose own keywords may be meant, too.

    Raises:
        RequestError: a name is no field's, with the one that may be meant; or a value is not of
            its field's type.
    """
    kinds = get_type_hints(of, include_extras=True)
    known = [one.name for one in fields(of) if one.name not in without]
    own = inspect.signature(beside).parameters.values() if beside is not None else ()
    every = list(dict.fromkeys([*known, *(x.name for x in own if x.kind is x.KEYWORD_ONLY)]))
    for name, value in sorted(given.items()):
        if name not in known:
            raise RequestError(f"there is no setting {name}{meant(name, every)}")
        if value is not None:
            check_kind(kinds[name], value, name)
