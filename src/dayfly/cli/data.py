"""`dayfly data show`: a first look at files of data, before a job is written for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from rich.console import Console

from dayfly.data.base import READERS, DataSource, Samples, source_of
from dayfly.data.encoded import Encoded
from dayfly.errors import RequestError

#: Samples and classes that are shown.
_ROWS, _CLASSES = 3, 20
#: Numbers of a sample that are shown.
_NUMBERS = 8


def given_source(path: str, form: str | None, options: Sequence[str]) -> DataSource:
    """Returns the source that the command names.

    Args:
        path: of the data.
        form: its name; None: by the looks of the path.
        options: of the form, each as name=value.

    Raises:
        RequestError: the form or an option is not known.
    """
    if form is not None:
        READERS.check(form, "--form")
    kind = READERS[form] if form is not None else type(source_of(path))
    known = {one.name: str(one.type) for one in fields(kind) if one.name != "path"}
    return kind(path, **dict(_option(text, kind.name, known) for text in options))


def show(path: str, form: str | None, options: Sequence[str], *, as_json: bool) -> None:
    """Prints what is in files of data, and how to put them into a job. Raises RequestError."""
    source = given_source(path, form, options)
    try:
        facts = facts_of(source, source.read())
    except RequestError as error:
        columns = source.look()
        if not columns:
            raise
        # Of a table, what it holds is what a person has to know to say what is missing.
        facts = facts_of(source, Samples({}, columns=columns, notes=[str(error)]))
    if as_json:
        print(json.dumps(facts))
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for line in _lines(facts):
        console.print(line)


def facts_of(source: DataSource, samples: Samples) -> dict[str, Any]:
    """Returns what the command says, for JSON."""
    arrays = samples.arrays
    y = arrays.get("y_train")
    return {
        "form": source.name,
        "samples": {name[2:]: len(one) for name, one in arrays.items() if name[0] == "x"},
        "arrays": {name: _described(one) for name, one in arrays.items()},
        "columns": [
            {"name": one.name, "type": one.type, "role": one.role} for one in samples.columns
        ],
        "classes": _counts(y, samples.classes),
        "notes": list(samples.notes),
        "first": [
            {name: _shown(one, row) for name, one in arrays.items() if name.endswith("_train")}
            for row in range(min(_ROWS, len(arrays["x_train"]) if "x_train" in arrays else 0))
        ],
        "job": f"data={source}" if arrays else None,
    }


def _option(text: str, form: str, known: Mapping[str, str]) -> tuple[str, Any]:
    """Name and value. known: types of options; a value is JSON, or a text where one may be."""
    name, equals, value = text.partition("=")
    if not equals:
        raise RequestError(f"--option {text}: give name=value, such as target=kind")
    if name not in known:
        raise RequestError(
            f"--option {name}: data of the form {form} has {', '.join(known) or 'none'}"
        )
    if known[name].startswith("str") and not value.startswith("["):
        return name, value
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _described(array: Any) -> str:
    if isinstance(array, Encoded):
        shape = list(array.form.shape) if array.form.shape else "sizes of their own"
        kind = "" if array.form.kind == "plain" else f", stored as {array.form.kind}"
        return f"{len(array)} of {shape} float32{kind}"
    return f"{len(array)} of {list(array.shape[1:])} {array.dtype}"


def _counts(y: Any, classes: Sequence[str]) -> dict[str, int]:
    """Samples of each class; empty: the targets are no classes."""
    if y is None or y.ndim != 1 or y.dtype.kind not in "iu":
        return {}
    values, counts = np.unique(y, return_counts=True)
    if not classes and len(values) > max(_CLASSES, len(y) // 10):
        return {}
    names = [classes[value] if classes else str(value) for value in values.tolist()]
    return dict(zip(names, counts.tolist(), strict=True))


def _shown(array: Any, row: int) -> Any:
    sample = array.sample(row) if isinstance(array, Encoded) else array[row]
    if hasattr(sample, "getbands"):
        return f"image of {sample.width} x {sample.height} pixels, {sample.mode}"
    flat = np.asarray(sample).reshape(-1)
    if flat.size == 1:
        return flat[0].item()
    some = [round(one, 4) if isinstance(one, float) else one for one in flat[:_NUMBERS].tolist()]
    return some if flat.size <= _NUMBERS else [*some, f"... {flat.size} numbers"]


def _lines(facts: Mapping[str, Any]) -> list[str]:
    counts = ", ".join(f"{n} {part}" for part, n in facts["samples"].items())
    split = "" if "val" in facts["samples"] else "; a tenth is split off to validate on"
    lines = [f"form     {facts['form']}"]
    lines += [f"samples  {counts}{split}"] if counts else []
    lines += [f"{name:8} {text}" for name, text in facts["arrays"].items()]
    for one in facts["columns"]:
        role = f" -> {one['role']}" if one["role"] else ""
        lines.append(f"column   {one['name']}: {one['type']}{role}")
    found = list(facts["classes"].items())
    lines += [f"class    {number} {name}: {n}" for number, (name, n) in enumerate(found[:_CLASSES])]
    if len(found) > _CLASSES:
        lines.append(f"         and {len(found) - _CLASSES} more")
    lines += [f"note     {text}" for text in facts["notes"]]
    lines += [f"sample   {row['x_train']} -> {row.get('y_train')}" for row in facts["first"]]
    return [*lines, *([f"job      dayfly.Job({facts['job']}, ...)"] if facts["job"] else [])]
