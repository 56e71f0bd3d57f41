"""Data sets that a job can name."""

from __future__ import annotations

import numpy as np

from dayfly.errors import RequestError
from dayfly.train.arrays import Arrays


def digits() -> Arrays:
    """scikit-learn's handwritten digits: x (1797, 1, 8, 8) float32 in 0..1, y (1797,) int64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise RequestError(
            'data="digits" comes with scikit-learn, which is not installed: '
            "pip install 'dayfly[digits]'"
        ) from None
    bunch = load_digits()
    images = np.asarray(bunch.images, dtype=np.float32)[:, None] / np.float32(16)
    return {"x_train": images, "y_train": np.asarray(bunch.target, dtype=np.int64)}


#: Built-in data by name.
BUILTIN = {"digits": digits}
