"""Data sets that a job can name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from dayfly.errors import RequestError
from dayfly.training.arrays import Arrays

#: The file in scikit-learn's package.
_DIGITS = ("datasets", "data", "digits.csv.gz")


def digits() -> Arrays:
    """Returns scikit-learn's handwritten digits: x (1797, 1, 8, 8) float32, 0..1, y (1797,) int64.

    The file is read where scikit-learn has it: importing the package takes more than a second.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    files = [path for one in folders if (path := Path(one, *_DIGITS)).is_file()]
    if not files:
        raise RequestError(
            'data="digits" comes with scikit-learn, which is not installed: '
            "pip install 'dayfly[digits]'"
        )
    rows = np.loadtxt(files[0], delimiter=",", dtype=np.float32)  # (1797, 64 pixels and the digit)
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / np.float32(16)
    return {"x_train": images, "y_train": rows[:, -1].astype(np.int64)}


#: Built-in data by name.
BUILTIN = {"digits": digits}
