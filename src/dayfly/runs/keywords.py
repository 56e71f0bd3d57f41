"""The settings of a run as keywords of `dayfly.train` and `dayfly.resume`, for editors and `help`.

`Settings` says what each means; a test holds the two together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

from dayfly.dataclass_json import check_kind
from dayfly.errors import RequestError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class SettingKeywords(TypedDict, total=False):
    """As the fields of `dayfly.runs.settings.Settings`."""

    workers: int
    platform: str
    platform_options: Mapping[str, str | float | bool]
    channel: str | None
    memory_mib: int | None
    lifetime_s: float | None
    cpu_cores: float | None
    uplink_mb_per_s: float | None
    downlink_mb_per_s: float | None
    latency_ms: float | None
    cold_start_s: float | None
    payload_kb: float | None
    gpu_share: float | None
    imitate: str | None
    log_budget_mib: int | None
    wait_timeout_s: float
    catalogue: str | None
    allow_other_cpu: bool
    sync: str
    k: int | Literal["epoch"] | None
    collective: str | None
    aggregators: int | None
    compress: str
    target_accuracy: float | None
    checkpoint_every_s: float
    micro_batches: int | None
    on_nan: str
    cut: tuple[int, ...]
    replicas: int | None
    schedule: str
    stage_memory_mib: tuple[int, ...]


def shows_settings(function: AnyFunction) -> AnyFunction:
    """Has the signature name each setting in place of `**settings`; None: as it would be."""
    whole = inspect.signature(function)
    own = [one for one in whole.parameters.values() if one.kind is not one.VAR_KEYWORD]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in get_type_hints(SettingKeywords).items()
    ]
    signature = whole.replace(parameters=[*own, *named])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def check_keywords(given: Mapping[str, Any], of: Any, without: Collection[str] = ()) -> None:
    """Checks keywords before a dataclass is made of them.

    Args:
        given: by name; None: as if it was not given.
        of: the dataclass.
        without: names of its fields that are no keywords.

    Raises:
        RequestError: a name is no field's, with the one that may be meant; or a value is not of
            its field's type.
    """
    kinds = get_type_hints(of, include_extras=True)
    known = [one.name for one in fields(of) if one.name not in without]
    for name, value in sorted(given.items()):
        if name not in known:
            longer = [one for one in known if one.startswith(f"{name}_")]
            near = longer or get_close_matches(name, known, n=1)
            meant = f": do you mean {near[0]}?" if near else f": give one of {', '.join(known)}"
            raise RequestError(f"there is no setting {name}{meant}")
        if value is not None:
            check_kind(kinds[name], value, name)
