"""`dayfly bench planning --choose`: the papers' methods beside the exact planners."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.parts.choosing.compete import compete
from benchmarks.parts.choosing.methods import Size
from benchmarks.parts.machine import machine, one_thread
from benchmarks.parts.spread import say

WHOLE = Size(random=40, groups=8, v=100, limit_s=15.0, rounds=100, slow=4)
QUICK = Size(random=3, groups=4, v=10, limit_s=5.0, rounds=10, slow=1)


def run(names: Sequence[str], *, seed: int, quick: bool) -> dict[str, Any]:
    """Compare on these problems; the result, see `benchmarks/README.md`."""
    size = QUICK if quick else WHOLE
    began, on_what = time.monotonic(), machine()
    with one_thread():
        rows, answers = compete(names, size, seed, say)
    return {
        "choose": True,
        "machine": on_what,
        "quick": quick,
        "seed": seed,
        "wall_s": time.monotonic() - began,
        "rows": rows,
        "answers": answers,
    }
