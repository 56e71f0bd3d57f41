"""`profile.json`: a profile as text, and back, checked key by key, as people write it by hand, too.

    {"version": 1, "job": "digits", "platform": "local", "channel": "...", "samples": 1438, ...,
     "layers": [{"name": "1 Linear", "parameters": 33280, "trained": 33280, ...}, ...],
     "sizes": [{"memory_mib": 1024, "forward": [{"fixed": 1e-4, "each": 2e-6}, ...],
                "step_s": {"value": 3e-4, "low": 3e-4, "high": 4e-4, "count": 40}, ...}, ...],
     "fit": {"a": ..., "b": ..., "m": ..., "error": ...} | null, ...}

A figure is a number, if somebody says it, or an object with its spread, if it was measured. What is
not limited, infinite or not known is null. Keys that have a usual value may be left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any, TypeVar

from dayfly.errors import RequestError
from dayfly.plan.figures import Affine, Figure, Transfer
from dayfly.plan.profile import VERSION, Fit, LayerBytes, Pass, Profile, SizeProfile
from dayfly.wire.shaping import Rates
from dayfly.wire.streams import Store

Value = TypeVar("Value")
#: From what JSON has, and where it stands, to what it means; raises RequestError.
Check = Callable[[Any, str], Value]


def dump_profile(profile: Profile) -> dict[str, Any]:
    """For JSON."""
    tree = _plain(asdict(profile))
    return {"version": VERSION, **tree}


def load_profile(tree: Any, where: str = "the profile") -> Profile:
    """From what JSON has. where: what it is called in errors.

    Raises RequestError, naming the place, for a key, type, sign or number of layers that is wrong.
    """
    checked = _object(tree, where, {"version": _whole, **_PROFILE})
    version = checked.pop("version")
    if version != VERSION:
        raise RequestError(
            f"{where} has version {version}, and this dayfly reads {VERSION}: measure it anew"
        )
    profile = Profile(**checked)
    _check_whole(profile, where)
    return profile


def profile_text(profile: Profile) -> str:
    """What is written to `profile.json`."""
    return json.dumps(dump_profile(profile), indent=1, allow_nan=False) + "\n"


def parse_profile(text: str, where: str) -> Profile:
    """From a file's text; as `load_profile`."""
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{where} is no JSON: {error}") from error
    return load_profile(tree, where)


def _plain(value: Any) -> Any:
    """JSON has no infinity: null says it where it can stand."""
    if isinstance(value, float) and math.isinf(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _check_whole(profile: Profile, where: str) -> None:
    """Raise RequestError for parts that do not fit each other."""
    count = len(profile.layers)
    if not count:
        raise RequestError(f"{where}: layers is empty: give one at least")
    if not profile.sizes:
        raise RequestError(f"{where}: sizes is empty: give one at least")
    if not profile.listed and count > 1:
        raise RequestError(
            f"{where}: a model that is no list of layers (listed: false) has one entry in layers, "
            f"not {count}"
        )
    for number, layer in enumerate(profile.layers):
        if layer.trained > layer.parameters:
            raise RequestError(
                f"{where}: layers[{number}] trains {layer.trained} bytes of {layer.parameters}: "
                "give at most as many"
            )
    for number, size in enumerate(profile.sizes):
        for name in ("forward", "backward"):
            if len(times := getattr(size, name)) != count:
                raise RequestError(
                    f"{where}: sizes[{number}].{name} has {len(times)} entries, and there are "
                    f"{count} layers: give one a layer"
                )
    order = [math.inf if s.memory_mib is None else s.memory_mib for s in profile.sizes]
    if any(one >= other for one, other in pairwise(order)):
        raise RequestError(f"{where}: sizes must rise by memory_mib, null last, each only once")


def _object(tree: Any, where: str, checks: Mapping[str, Check[Any]]) -> dict[str, Any]:
    """The checked values of an object's keys; those with a default may be missing."""
    if not isinstance(tree, Mapping):
        raise RequestError(f"{where} is {_kind(tree)}: give an object")
    unknown = [str(key) for key in tree if key not in checks]
    if unknown:
        raise RequestError(
            f"{where} has an unknown key {unknown[0]!r}: keys are {', '.join(checks)}"
        )
    missing = [key for key in checks if key not in tree and key not in _USUAL]
    if missing:
        raise RequestError(f"{where} lacks the key {missing[0]!r}")
    return {
        key: check(tree[key], f"{where}: {key}" if ":" not in where else f"{where}.{key}")
        for key, check in checks.items()
        if key in tree
    }


def _made(kind: Callable[..., Value], checks: Mapping[str, Check[Any]]) -> Check[Value]:
    return lambda value, where: kind(**_object(value, where, checks))


def _each(check: Check[Value]) -> Check[tuple[Value, ...]]:
    def checked(value: Any, where: str) -> tuple[Value, ...]:
        if not isinstance(value, list):
            raise RequestError(f"{where} is {_kind(value)}: give a list")
        return tuple(check(item, f"{where}[{number}]") for number, item in enumerate(value))

    return checked


def _or_null(check: Check[Value], instead: Any = None) -> Check[Any]:
    return lambda value, where: instead if value is None else check(value, where)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RequestError(f"{where} is {_kind(value)}: give a number")
    return float(value)


def _positive(value: Any, where: str) -> float:
    if (number := _number(value, where)) <= 0:
        raise RequestError(f"{where} is {number:g}: give a number above 0")
    return number


def _not_negative(value: Any, where: str) -> float:
    if (number := _number(value, where)) < 0:
        raise RequestError(f"{where} is {number:g}: give 0 or more")
    return number


def _one_or_more(value: Any, where: str) -> float:
    if (number := _number(value, where)) < 1:
        raise RequestError(f"{where} is {number:g}: give 1 or more")
    return number


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError(f"{where} is {_kind(value)}: give a whole number, 0 or more")
    return value


def _count(value: Any, where: str) -> int:
    if (number := _whole(value, where)) < 1:
        raise RequestError(f"{where} is 0: give 1 or more")
    return number


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where} is {_kind(value)}: give a text")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"{where} is {_kind(value)}: give true or false")
    return value


def _facts(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} is {_kind(value)}: give an object")
    return dict(value)


def _kind(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) < 40 else "a text"
    return "an object" if isinstance(value, Mapping) else "a list"


def _figure(at_least: Check[float]) -> Check[Figure]:
    """A number that somebody says, or one that was measured, with its quartiles."""

    def checked(value: Any, where: str) -> Figure:
        if not isinstance(value, Mapping):
            return Figure.given(at_least(value, where))
        spread = {"value": at_least, "low": at_least, "high": at_least, "count": _whole}
        figure = Figure(**_object(value, where, spread))
        if not figure.low <= figure.value <= figure.high:
            raise RequestError(f"{where}: give low <= value <= high")
        return figure

    return checked


_AFFINE = _made(Affine, {"fixed": _not_negative, "each": _not_negative})
_SECONDS = _figure(_not_negative)
_TRANSFER = _made(
    Transfer,
    {
        "latency_s": _SECONDS,
        "peak_bytes_per_s": _figure(_positive),
        "saturation_per_byte": _or_null(_positive, math.inf),
        "cpu_s": _not_negative,
        "cpu_s_per_byte": _not_negative,
    },
)
_LAYER = _made(
    LayerBytes,
    {
        "name": _text,
        "parameters": _whole,
        "trained": _whole,
        "buffers": _whole,
        "activations": _not_negative,
        "output": _not_negative,
        "gradient": _not_negative,
        "tensors": _each(_count),
        "moving": _or_null(_whole),
    },
)
_RATES = _made(
    Rates,
    {
        "up_bytes_per_s": _or_null(_positive),
        "down_bytes_per_s": _or_null(_positive),
        "latency_s": _not_negative,
    },
)
_PASS = _made(
    Pass,
    {
        "samples": _count,
        "forward": _each(_SECONDS),
        "backward": _each(_SECONDS),
        "data": _SECONDS,
        "held_mib": _or_null(_not_negative),
    },
)
_SIZE = _made(
    SizeProfile,
    {
        "memory_mib": _or_null(_count),
        "cpu_cores": _or_null(_positive),
        "cpu_period_s": _not_negative,
        "forward": _each(_AFFINE),
        "backward": _each(_AFFINE),
        "data": _AFFINE,
        "apply": _AFFINE,
        "step_s": _SECONDS,
        "reduce_s_per_byte": _not_negative,
        "up": _TRANSFER,
        "down": _TRANSFER,
        "sum_cpu_s": _not_negative,
        "pass_cpu_s": _not_negative,
        "beta": _figure(_positive),
        "crowd": _figure(_one_or_more),
        "crowd_cores": _not_negative,
        "jitter": _not_negative,
        "init_s": _SECONDS,
        "start_s": _SECONDS,
        "end_s": _SECONDS,
        "base_mib": _figure(_not_negative),
        "rates": _or_null(_RATES),
        "passes": _each(_PASS),
    },
)
_PROFILE: Mapping[str, Check[Any]] = {
    "job": _text,
    "platform": _text,
    "imitate": _or_null(_text),
    "channel": _text,
    "listed": _flag,
    "samples": _count,
    "validation_samples": _whole,
    "sample_bytes": _not_negative,
    "state_per_trained_byte": _not_negative,
    "layers": _each(_LAYER),
    "sizes": _each(_SIZE),
    "fit": _or_null(
        _made(Fit, {"a": _positive, "b": _number, "m": _number, "error": _not_negative})
    ),
    "how": _text,
    "took_s": _not_negative,
    "machine": _or_null(_facts),
    "store": _or_null(_made(Store, {"cpu_s": _not_negative, "cpu_s_per_byte": _not_negative})),
    "measures": _whole,
    "batch_size": _or_null(_count),
    "epochs": _count,
    "accumulate": _count,
    "validate_every": _count,
    "clips": _flag,
}
#: Keys that may be left out: those with a default.
_USUAL = frozenset(
    {
        *("buffers", "activations", "output", "gradient", "cpu_period_s"),
        *("saturation_per_byte", "cpu_s", "cpu_s_per_byte", "fit", "how", "took_s", "machine"),
        *("tensors", "moving", "rates", "up_bytes_per_s", "down_bytes_per_s", "measures"),
        *("batch_size", "epochs", "accumulate", "validate_every", "clips"),
        *("passes", "sum_cpu_s", "pass_cpu_s", "crowd", "crowd_cores", "jitter", "store"),
        "held_mib",
    }
)
