"""Tables with named columns as samples: which column is what, and what is refused.

Two passes over a table in batches: the first finds out what each column holds and refuses what
cannot be trained on; the second writes the rows of x (N, F) and y. Texts become numbers in
alphabetical order, unless the order is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dayfly.data.base import Column, DataSource, Samples
from dayfly.data.spool import Spool
from dayfly.errors import RequestError

#: Names by which a column is taken for the target, unless one is named.
TARGETS = ("target", "label", "labels", "class", "y")
#: Cells of text that stand for a missing value.
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
#: Different texts of a column that may become numbers, at most.
_MOST_TEXTS = 10_000

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a table.

    Args:
        places: of the rows in the file, counted as its unit is.
        columns: by name, values (n, ...): numbers, or text.
        missing: by name, where (n,) there is none; left out: nowhere.
    """

    places: Sequence[int] | NDArray[np.int64]
    columns: Mapping[str, Values]
    missing: Mapping[str, NDArray[np.bool_]]


class Table(ABC):
    """A table in a file, read in batches.

    Attributes:
        path: of the file.
        names: of the columns, in their order.
        unit: what `Batch.places` are numbers of, such as "line".
        class_names: of columns of class numbers whose names the file has.
    """

    path: Path
    names: Sequence[str]
    unit = "row"
    class_names: Mapping[str, Sequence[str]] = {}

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yields the columns of these names, batch by batch.

        Raises:
            RequestError: the file is damaged.
        """

    def refusal(self, text: str, at: int | None = None) -> RequestError:
        """Returns an error that names the file and the place in it."""
        where = f", {self.unit} {at}" if at is not None else ""
        return RequestError(f"{self.path}{where}: {text}")


@dataclass(slots=True)
class Seen:
    """What a column was found to hold."""

    rows: int = 0
    missing: int = 0
    first_missing: int | None = None
    whole: bool = True
    #: A text that is no number, and where.
    text: tuple[str, int] | None = None
    texts: set[str] = field(default_factory=set)
    shape: tuple[int, ...] | None = None

    @property
    def type(self) -> str:
        """Its type in words, such as `whole numbers, 3 missing`."""
        if self.text is not None:
            many = len(self.texts) > _MOST_TEXTS
            return f"text, {f'more than {_MOST_TEXTS}' if many else len(self.texts)} different"
        words = "whole numbers" if self.whole else "numbers"
        words += f" of shape {list(self.shape)}" if self.shape else ""
        return words + (f", {self.missing} missing" if self.missing else "")


def numbers(values: Values, *, whole: bool) -> Values | None:
    """Values (n, ...) as int64 if they are whole, else as float64; None: some are no numbers."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    for dtype in (np.int64, np.float64) if whole else (np.float64,):
        try:
            return values.astype(dtype)
        except (ValueError, OverflowError):
            continue
    return None


@dataclass(frozen=True, kw_only=True)
class TableSource(DataSource):
    """Files that are tables: which column is the target, and which are x.

    Args:
        target: column of y; several: y (N, k). Default: the one called target, label, labels,
            class or y.
        columns: of x, in this order; default: all others. Numbers are float32, (N, F); a single
            column of lists keeps its shape.
        classes: the target's values in the order of their class numbers; default: whole numbers as
            they are, texts in alphabetical order.
        categories: columns of text in x that become whole numbers, in alphabetical order; or a
            mapping of each to its texts in their order.
        missing: what becomes of rows with missing values: "refuse" them, "drop" such rows, or a
            number to put into x.
        dtype: of x.
        validation: another such file, to validate on; default: a tenth is split off by the seed.
    """

    target: str | Sequence[str] | None = None
    columns: Sequence[str] | None = None
    classes: Sequence[Any] | None = None
    categories: Sequence[str] | Mapping[str, Sequence[Any]] = ()
    missing: Literal["refuse", "drop"] | float = "refuse"
    dtype: str = "float32"
    validation: str | PathLike[str] | None = None

    @abstractmethod
    def table(self, path: Path) -> Table:
        """Opens the table of a file.

        Raises:
            RequestError: it cannot be read.
        """

    def tables(self) -> tuple[Table, Table | None]:
        """Opens the table to train on, and the one to validate on if there is one."""
        other = None
        if self.validation is not None:
            other = self.table(Path(fspath(self.validation)).expanduser())
        return self.table(self.expanded_path), other

    def look(self) -> list[Column]:
        table, _ = self.tables()
        return [Column(name, one.type) for name, one in _scanned(table, table.names).items()]

    def read(self) -> Samples:
        table, other = self.tables()
        plan = _Plan.of(self, table)
        arrays = dict(zip(("x_train", "y_train"), plan.arrays(table), strict=True))
        if other is not None:
            if lost := [name for name in plan.names if name not in other.names]:
                raise other.refusal(f"it has no column {lost[0]!r}, which {table.path} has")
            plan.check(other)
            arrays |= zip(("x_val", "y_val"), plan.arrays(other), strict=True)
        classes = plan.classes or (table.class_names.get(plan.y[0], ()) if len(plan.y) == 1 else ())
        return Samples(arrays, classes, plan.described(table), plan.notes)


@dataclass(frozen=True)
class _Plan:
    """How a table becomes x and y. orders: of columns of text: the numbers of their texts."""

    source: TableSource
    x: Sequence[str]
    y: Sequence[str]
    seen: Mapping[str, Seen]
    orders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: TableSource, table: Table) -> _Plan:
        """Chooses columns, and finds out what they hold."""
        target = source.target
        y = [target] if isinstance(target, str) else list(target or _target(table, source))
        given = source.columns
        if isinstance(given, str):
            raise RequestError(f"columns={given!r} is one name: give a list, as in [{given!r}]")
        x = [name for name in table.names if name not in y] if given is None else list(given)
        for name in (*y, *x, *source.categories):
            if name not in table.names:
                raise table.refusal(
                    f"there is no column {name!r}: it has {', '.join(map(repr, table.names[:20]))}"
                )
        if not x or (both := set(x) & set(y)):
            what = f"column {min(both)!r} is both target and x" if x else "no column is left for x"
            raise table.refusal(f"{what}: name others by columns=[...]")
        unused = [name for name in source.categories if name not in x]
        if unused:
            raise table.refusal(f"categories has {unused[0]!r}, which is no column of x")
        missing = source.missing
        if missing not in ("refuse", "drop") and not isinstance(missing, int | float):
            raise RequestError(f"missing={missing!r}: give 'refuse', 'drop', or a number")
        plan = cls(source, x, y, _scanned(table, [*y, *x]))
        return replace(plan, orders=plan._orders(table)).check(table, plan.seen)

    @property
    def names(self) -> list[str]:
        """Of all columns that are read."""
        return [*self.y, *self.x]

    @property
    def classes(self) -> list[str]:
        """Names of the classes of a single target, in their order."""
        return list(self.orders.get(self.y[0], ())) if len(self.y) == 1 else []

    @property
    def notes(self) -> list[str]:
        """On texts that became numbers."""
        return [
            f"column {name!r}: {', '.join(f'{text} = {n}' for text, n in list(order.items())[:20])}"
            for name, order in self.orders.items()
        ]

    def described(self, table: Table) -> list[Column]:
        """The table's columns, for people."""
        roles = {**dict.fromkeys(self.x, "x"), **dict.fromkeys(self.y, "y")}
        seen = self.seen
        return [
            Column(name, seen[name].type if name in seen else "not read", roles.get(name, ""))
            for name in table.names
        ]

    def _orders(self, table: Table) -> dict[str, dict[str, int]]:
        source, orders = self.source, {}
        given = source.categories if isinstance(source.categories, Mapping) else {}
        for name in self.names:
            seen = self.seen[name]
            order: Sequence[Any] | None = given.get(name)
            if name in self.y and source.classes is not None:
                order = source.classes
            elif order is None and seen.text is not None and name in (*self.y, *source.categories):
                if len(seen.texts) > _MOST_TEXTS:
                    raise table.refusal(
                        f"column {name!r} has more than {_MOST_TEXTS} different texts: leave it "
                        "out by columns=[...]"
                    )
                order = sorted(seen.texts)
            if order is not None:
                texts = [str(one) for one in order]
                if len(set(texts)) < len(texts):
                    raise RequestError(f"the order of column {name!r} has a value twice: {texts}")
                orders[name] = {text: number for number, text in enumerate(texts)}
        return orders

    def check(self, table: Table, seen: Mapping[str, Seen] | None = None) -> _Plan:
        """Raises RequestError for columns that cannot be trained on. seen: of the table."""
        seen = _scanned(table, self.names) if seen is None else seen
        for name, found in seen.items():
            if found.text is not None and name not in self.orders:
                text, at = found.text
                remedy = (
                    f"leave it out by columns=[...], or map its texts to whole numbers by "
                    f"categories=[{name!r}]"
                    if name in self.x
                    else "give classes=[...] with all values in their order"
                )
                raise table.refusal(f"column {name!r} holds text ({text!r}): {remedy}", at)
            fillable = name in self.x and name not in self.orders
            filled = fillable and self.source.missing != "refuse"
            if found.missing and self.source.missing != "drop" and not filled:
                fill = ", missing=0 puts a number there" if fillable else ""
                raise table.refusal(
                    f"column {name!r} has no value ({found.missing} of {found.rows} rows have "
                    f"none): missing='drop' leaves such rows out{fill}",
                    found.first_missing,
                )
        return self

    def arrays(self, table: Table) -> tuple[Values, Values]:
        """x (N, F) and y (N,) or (N, k) of a table; written row by row."""
        spools: list[Spool] | None = None
        for batch in table.batches(self.names):
            keep = np.ones(len(batch.places), bool)
            if self.source.missing == "drop":
                for lost in batch.missing.values():
                    keep &= ~lost
            x = self._side(table, batch, self.x, keep).astype(self.source.dtype)
            y = self._side(table, batch, self.y, keep)
            y = y.astype(np.float32) if self._fractions else y
            y = y[:, 0] if len(self.y) == 1 and y.shape[1:] == (1,) else y
            if spools is None:
                spools = [Spool(one.dtype, one.shape[1:]) for one in (x, y)]
            for spool, rows in zip(spools, (x, y), strict=True):
                spool.add(rows)
        if spools is None or not spools[0].rows:
            raise table.refusal("no row is left to train on")
        return spools[0].array(), spools[1].array()

    @property
    def _fractions(self) -> bool:
        """Whether the targets are numbers that are not whole."""
        return any(not self.seen[one].whole and one not in self.orders for one in self.y)

    def _side(
        self, table: Table, batch: Batch, names: Sequence[str], keep: NDArray[np.bool_]
    ) -> Values:
        made = [self._column(table, batch, name)[keep] for name in names]
        if len(made) == 1 and made[0].ndim > 1:
            return made[0]
        return np.concatenate([one.reshape(len(one), -1) for one in made], axis=1)

    def _column(self, table: Table, batch: Batch, name: str) -> Values:
        values = batch.columns[name]
        lost = batch.missing.get(name)
        if name in self.orders:
            order = self.orders[name]
            found = np.array([order.get(str(one), -1) for one in values.tolist()], np.int64)
            unknown = found < 0 if lost is None else (found < 0) & ~lost
            if unknown.any():
                at = int(unknown.argmax())
                raise table.refusal(
                    f"column {name!r} has {str(values[at])!r}, which is none of "
                    f"{', '.join(list(order)[:10])}: name all values in their order",
                    int(batch.places[at]),
                )
            return found
        if lost is not None and lost.any():
            fill = 0 if self.source.missing in ("refuse", "drop") else self.source.missing
            kept = numbers(values[~lost], whole=self.seen[name].whole)
            made = np.full(values.shape, fill, np.float64)
            made[~lost] = kept
            return made
        found_numbers = numbers(values, whole=self.seen[name].whole)
        if found_numbers is None:  # unlike what the first pass saw
            raise table.refusal(f"column {name!r} changed while it was read: start again")
        return found_numbers


def _target(table: Table, source: TableSource) -> list[str]:
    found = [name for name in table.names if name.lower() in TARGETS]
    if len(found) == 1:
        return found
    named = f"columns {', '.join(map(repr, found))} may" if found else "no column's name says to"
    last = table.names[-1]
    raise table.refusal(
        f"{named} be the target: name it, as in "
        f"data=dayfly.data.{source.name}({str(source.path)!r}, target={last!r})"
    )


def _scanned(table: Table, names: Sequence[str]) -> dict[str, Seen]:
    """What each column holds, by one pass over the table."""
    seen = {name: Seen() for name in names}
    for batch in table.batches(names):
        for name, one in seen.items():
            values, lost = batch.columns[name], batch.missing.get(name)
            one.rows += len(values)
            places = np.asarray(batch.places)
            if lost is not None and lost.any():
                one.missing += int(lost.sum())
                if one.first_missing is None:
                    one.first_missing = int(places[lost.argmax()])
                values, places = values[~lost], places[~lost]
            if not len(values):
                continue
            one.shape = values.shape[1:]
            if values.dtype.kind == "U" and len(one.texts) <= _MOST_TEXTS:
                one.texts.update(np.unique(values).tolist())
            if one.text is not None:
                continue
            found = numbers(values, whole=one.whole)
            if found is None:
                at = _first_text(values)
                one.text = str(values[at]), int(places[at])
            elif found.dtype.kind == "f":
                one.whole = False
                finite = np.isfinite(found).reshape(len(found), -1).all(axis=1)
                if not finite.all():
                    raise table.refusal(
                        f"column {name!r} is not finite: put a number there, or take the row out",
                        int(places[finite.argmin()]),
                    )
    if not any(one.rows for one in seen.values()):
        raise table.refusal("it has no rows")
    return seen


def _first_text(values: Values) -> int:
    for at, value in enumerate(values.tolist()):
        try:
            float(value)
        except ValueError:
            return at
    return 0
