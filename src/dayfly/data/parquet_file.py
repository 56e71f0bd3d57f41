"""Parquet, read one row group after another, and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dayfly.data.arrow import batch_of, pyarrow
from dayfly.data.tables import Batch, Table, TableSource
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

#: Rows that are looked at together.
_ROWS = 2**14


@suggests
@dataclass(frozen=True, kw_only=True)
class ParquetFile(TableSource):
    """A table in a Parquet file. Lists of one length are one column of x, or of y."""

    name: ClassVar[str] = "parquet"
    form: ClassVar[str] = "Parquet"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_file() and path.suffix.lower() in (".parquet", ".pq")

    def table(self, path: Path) -> Table:
        return _RowGroups(path)


class _RowGroups(Table):
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pyarrow("pyarrow.parquet").ParquetFile(path) as file:
                self.names = list(file.schema_arrow.names)
        except (OSError, ValueError) as error:  # pyarrow's own derive from these
            raise self._unreadable(error) from error

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        row = 0
        try:
            with pyarrow("pyarrow.parquet").ParquetFile(self.path) as file:
                for record in file.iter_batches(_ROWS, columns=list(names), use_threads=False):
                    yield batch_of(self, record, row)
                    row += record.num_rows
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> RequestError:
        return self.refusal(f"it cannot be read as Parquet: {in_short(error)}: write it anew")
