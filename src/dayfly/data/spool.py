"""Rows of unknown number, written as they are found, to be read as one array that is no memory.

A spool is a temporary file without a name: its room is given back when the process ends, however
it ends.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import RequestError, in_short


class Spool:
    """Grows by rows of one shape and type.

    Args:
        dtype: of the elements.
        row_shape: of a row.
    """

    def __init__(self, dtype: Any, row_shape: tuple[int, ...] = ()) -> None:
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self._file = tempfile.TemporaryFile(prefix="dayfly-")  # noqa: SIM115  # the array maps it
        self.rows = 0

    @property
    def row(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Type and shape of a row."""
        return self._dtype, self._row_shape

    def add(self, rows: NDArray[Any]) -> None:
        """Appends rows (n, *row_shape). Raises RequestError if there is no room."""
        try:
            self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)
        except OSError as error:
            raise self._full(error) from error
        self.rows += len(rows)

    def array(self) -> NDArray[Any]:
        """All rows (N, *row_shape), mapped into memory; nothing can be added any more."""
        shape = (self.rows, *self._row_shape)
        if 0 in shape:
            return np.empty(shape, self._dtype)
        try:
            self._file.flush()
        except OSError as error:
            raise self._full(error) from error
        with self._file as file:
            return np.memmap(file, self._dtype, "r", shape=shape)

    def _full(self, error: OSError) -> RequestError:
        return RequestError(
            f"the rows of the data find no room in {tempfile.gettempdir()}: {in_short(error)}: set "
            "TMPDIR to a directory with more"
        )
