"""CSV and TSV: text with a line a sample, whose first line names the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np

from dayfly.data.files import is_number
from dayfly.data.tables import MISSING, Batch, Table, TableSource
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

#: Cells that are looked at together.
_CELLS = 2**18
_SUFFIXES = {".csv": ",", ".tsv": "\t"}


@suggests
@dataclass(frozen=True, kw_only=True)
class CSVFile(TableSource):
    """A table of text, UTF-8, in the form of Python's `csv`: cells may be in double quotes.

    Args:
        delimiter: between cells; default: a comma, in a `.tsv` a tab.
        header: whether the first line names the columns; else their names are "0", "1", ...
    """

    name: ClassVar[str] = "csv"
    form: ClassVar[str] = "CSV, a line a sample"

    delimiter: str | None = None
    header: bool = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_file() and path.suffix.lower() in _SUFFIXES

    def table(self, path: Path) -> Table:
        default = _SUFFIXES.get(path.suffix.lower(), ",")
        return _Lines(path, default if self.delimiter is None else self.delimiter, self.header)


class _Lines(Table):
    unit = "line"

    def __init__(self, path: Path, delimiter: str, header: bool) -> None:
        self.path = path
        self._delimiter = delimiter
        self._header = header
        _, first = next(self._rows(), (0, []))
        if not any(first):
            raise self.refusal("it is empty: its first line names the columns")
        self.names = first if header else [str(number) for number in range(len(first))]
        if header and all(is_number(cell) for cell in first):
            raise self.refusal(
                "the first line has numbers, no names: give header=False, and name columns "
                "'0', '1', ...",
                1,
            )
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise self.refusal(f"two columns are called {min(twice)!r}: rename one", 1)

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        width, at = len(self.names), [list(self.names).index(name) for name in names]
        rows = self._rows()
        if self._header:
            next(rows)
        while some := list(islice(rows, max(1, _CELLS // width))):
            for line, row in some:
                if len(row) != width:
                    raise self.refusal(
                        f"it has {len(row)} cells, and the first line {width}: check delimiter="
                        f"{self._delimiter!r} and quotes",
                        line,
                    )
            cells = list(zip(*(row for _, row in some), strict=True))
            columns = {name: np.array(cells[i]) for name, i in zip(names, at, strict=True)}
            missing = {name: np.isin(column, MISSING) for name, column in columns.items()}
            yield Batch([line for line, _ in some], columns, missing)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Lines that are not empty, as cells, each with its number."""
        line = 0
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, delimiter=self._delimiter, strict=True)
                for row in reader:
                    line = reader.line_num
                    if row:
                        yield line, [cell.strip() for cell in row]
        except UnicodeDecodeError as error:
            raise self.refusal(
                f"it is not UTF-8 after line {line}: {error.reason}: convert it, as with "
                "iconv -f latin1 -t utf-8"
            ) from error
        except csv.Error as error:
            raise self.refusal(f"{error}: check its quotes", line + 1) from error
        except TypeError as error:
            raise RequestError(f"delimiter={self._delimiter!r}: give one character") from error
        except OSError as error:
            raise RequestError(
                f"data {str(self.path)!r} cannot be read: {in_short(error)}: name a file"
            ) from error
