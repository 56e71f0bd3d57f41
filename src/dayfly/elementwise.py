"""Operations of formulas that hold for a number and, element by element, for arrays of NumPy.

A formula that is written with them states a cost once: `predict` asks it for one configuration, and
a planner for all at once. Additions, products and comparisons need nothing; these do. They are
typed for numbers, as formulas are read; who gives arrays gets arrays. Plain numbers need no NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_PLAIN = (int, float)


def least(a: float, b: float) -> Any:
    """Returns the smaller of two."""
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


def most(a: float, b: float) -> Any:
    """Returns the larger of two."""
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)


def largest(value: float) -> Any:
    """Returns the largest element of an array, or 0 if it is empty; a number as it is."""
    if isinstance(value, _PLAIN):
        return value
    import numpy as np

    return float(np.max(value, initial=0.0))


def choice(condition: object, a: float, b: float) -> Any:
    """Returns the first where the condition holds, else the second; both are computed."""
    if isinstance(condition, _PLAIN):
        return a if condition else b
    import numpy as np

    return np.where(condition, a, b)  # type: ignore[call-overload]


def rounded(value: float) -> Any:
    """Returns the nearest whole number; of two the even one."""
    if isinstance(value, _PLAIN):
        return round(value)
    import numpy as np

    return np.rint(value).astype(np.int64)


def ceiling(value: float) -> Any:
    """Returns the least whole number that is not below."""
    if isinstance(value, _PLAIN):
        return math.ceil(value)
    import numpy as np

    return np.ceil(value).astype(np.int64)


def by_value(function: Callable[[Any], float], value: float) -> Any:
    """Returns what a function of one number says, asked once for each number that there is."""
    if isinstance(value, _PLAIN):
        return function(value)
    import numpy as np

    found, at = np.unique(value, return_inverse=True)
    return np.array([function(one) for one in found.tolist()])[at].reshape(np.shape(value))
