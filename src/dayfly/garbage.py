"""What Python's garbage collector need not search: modules live as long as their process.

torch alone makes 300,000 objects. To search them takes 0.1 s of a processor each time, several
times while modules are imported, and several times more while the interpreter ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Keeps the collector off while modules are imported, and later from all that exists then."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
