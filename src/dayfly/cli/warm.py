"""The first seconds of a command that starts functions: torch is imported in two processes at once.

command    | flags | import torch | read and check the job ... | invoke
zygote             | import torch, preload | waits              | forks functions
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from dayfly import garbage
from dayfly.errors import RequestError
from dayfly.life.platforms import lineage
from dayfly.uncompiled import leave_compiler_unloaded


def warm_up(preload: Sequence[str]) -> float:
    """Starts the process that functions are forked from, and imports torch into this one meanwhile.

    Returns when it was called, in Unix seconds: since then the user waits, but for the start of the
    interpreter.

    What the command refuses afterwards leaves nothing: the process ends with this one, and has
    neither files nor functions before a platform takes it.

    Args:
        preload: modules that the functions will need, see `runs.preloads`.
    """
    asked_at = time.time()
    with suppress(RequestError, OSError):  # who opens the platform says what cannot be
        lineage.warm_up(preload)
    with garbage.importing():
        leave_compiler_unloaded()
    return asked_at
