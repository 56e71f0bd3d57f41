"""Modules that are imported once, where functions are forked, by kind of run; imports none of them.

A command names them before it knows more of a request than its kind, see `cli.warm`.
"""

from __future__ import annotations

#: Of a job's functions. NumPy loads its random numbers once they are seeded: in each function.
JOB = ("numpy.random", "dayfly.runs.worker", "dayfly.wire.channels.all_ends")
#: Of those that evaluate what it made.
EVALUATION = (*JOB, "dayfly.runs.evaluating.worker")
#: Of the functions that measure a job.
PROFILE = (*JOB, *(f"dayfly.runs.profiling.{it}" for it in ("life", "exchange", "neighbours")))
#: Of a script's: what one of torch.distributed imports itself, and what torch imports when an
#: optimizer is first made.
SCRIPT = (
    "numpy.random",
    "torch._dynamo",
    "torch.distributed",
    "dayfly.runs.scripts.worker",
    "dayfly.wire.channels.all_ends",
)
