"""Columns of Arrow as values of a table: what Parquet and Hugging Face's files have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from dayfly.data.tables import Batch, Table
from dayfly.errors import RequestError


def pyarrow(module: str) -> Any:
    """Returns a module of pyarrow. Raises RequestError if it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise RequestError(
            "this form of data is read by pyarrow, which is not installed: "
            "pip install 'dayfly[parquet]'"
        ) from None


def batch_of(table: Table, record: Any, first: int) -> Batch:
    """A record batch of Arrow as a batch of a table.

    Args:
        first: the place of its first row.
    """
    columns, missing = {}, {}
    for name, column in zip(record.schema.names, record.columns, strict=True):
        columns[name], missing[name] = _values(table, name, column, first)
    return Batch(np.arange(first, first + record.num_rows), columns, missing)


def _values(table: Table, name: str, column: Any, first: int) -> tuple[Any, Any]:
    pa = pyarrow("pyarrow")
    types, kind = pa.types, column.type
    missing = np.asarray(column.is_null(nan_is_null=types.is_floating(kind)))
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=np.str_), missing
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        zero = False if types.is_boolean(kind) else 0
        return column.fill_null(zero).to_numpy(zero_copy_only=False), missing
    if types.is_decimal(kind):
        return column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False), missing
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(table, name, column, missing, first)
    raise table.refusal(
        f"column {name!r} is {kind}, which is neither numbers nor text: leave it out by "
        "columns=[...], or save it as numbers"
    )


def _lists(table: Table, name: str, column: Any, missing: Any, first: int) -> tuple[Any, Any]:
    """Lists of one length as rows (n, length, ...)."""
    if missing.any():
        raise table.refusal(
            f"column {name!r} has no list: take the row out", first + int(missing.argmax())
        )
    length = np.asarray(pyarrow("pyarrow.compute").list_value_length(column))
    if len(length) and (length != length[0]).any():
        at = int((length != length[0]).argmax())
        raise table.refusal(
            f"column {name!r} has lists of {length[0]} and {length[at]} elements: pad them to one "
            "length",
            first + at,
        )
    values, lost = _values(table, name, column.flatten(), first)
    if lost.any():
        raise table.refusal(f"column {name!r} has lists with missing elements: fill them")
    return values.reshape(len(length), -1, *values.shape[1:]), missing
