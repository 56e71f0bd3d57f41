"""What the bits of a run depend on besides its seed: where it began, and whether it may go on here.

Equal replicas, and the same bits after a death or a resume, are promised for one CPU type, torch
build and number of threads, with the same instruction sets. A run has these in `run.json`. Its
functions begin with its variables (`life.processor`), a later life gives them the same ones, and
each worker looks by itself, as on some platforms none knows what machine it will get.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping

import numpy as np

from dayfly.errors import RequestError, RunFailed
from dayfly.life.environment import THREADS
from dayfly.life.processor import ATEN, VARIABLES, Processor

Facts = Mapping[str, str]
#: What must be equal, as errors call it; only what both sides know is compared. A torch build is
#: more than its version: what it was built with, such as MKL, decides about its sums.
_EQUAL = {
    "cpu_type": "CPU {}",
    "torch": "torch {}",
    "torch_build": "torch build {}",
    "threads": "{} thread(s)",
    **{name: f"{name}={{}}" for name in VARIABLES},
}
#: What should be, and is only said: torch computes by itself.
_LIKE = ("numpy", "python")
_WAY_OUT = "the bits may be others, so give --allow-other-cpu to go on all the same"


def made_here() -> dict[str, str]:
    """Of a run that begins on this machine; names and values.

    Raises RequestError if the user's variables ask for what this CPU lacks.
    """
    processor = Processor.here()
    return {**_found(processor), "threads": str(THREADS), **processor.variables(os.environ)}


def variables(facts: Facts) -> dict[str, str]:
    """Those of the environment that a run's functions begin with."""
    return {name: facts[name] for name in VARIABLES if name in facts}


def going_on(
    recorded: Facts | None, *, allow_other: bool, processor: Processor | None = None
) -> tuple[dict[str, str], list[str]]:
    """What a run goes on with on this machine, and what to say of that.

    Args:
        recorded: of its life before; None or less than today: as earlier versions wrote it.
        processor: this machine's.

    Raises:
        RequestError: if the machine is another, unless that is allowed.
    """
    processor = processor or Processor.here()
    before = dict(recorded or {})
    here = {**_found(processor), "threads": str(THREADS)}
    lacking = processor.lacks(variables(before))
    others = _differing(before, here)
    if others is None and lacking is not None:
        others = f"the run is of {lacking}, and this machine's {processor.type} lacks that"
    if others is not None and not allow_other:
        raise RequestError(f"{others}: {_WAY_OUT}")
    notes = [] if others is None else [f"{others}: the bits may be others from here on"]
    if "cpu_type" not in before:
        notes.append(
            "run.json is of an earlier version and does not say on which CPU the run began: if it "
            "was another, the bits may be others from here on"
        )
    for what in _LIKE:
        if what in before and before[what] != here[what]:
            notes.append(
                f"made with {what} {before[what]}, and this is {here[what]}: the bits may be "
                "others from here on"
            )
    other_type = before.get("cpu_type") != here["cpu_type"]
    own = processor.variables(os.environ) if other_type or lacking is not None else {}
    return {**here, **variables(before), **own}, notes


def check_function(expected: Facts, *, allow_other: bool) -> str | None:
    """Look whether this function's process computes as the run does; called in it.

    Returns what to say of another one that is allowed. Raises RunFailed if it is not.

    Args:
        expected: of the run.
    """
    import torch

    capability = torch.backends.cpu.get_cpu_capability().lower()
    own = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    found = {**_found(Processor.here()), **own, "threads": str(torch.get_num_threads())}
    if ATEN in expected:
        found[ATEN] = capability  # what it does, whatever it was told
    others = _differing(expected, found)
    if others is None:
        return None
    if not allow_other:
        raise RunFailed(f"{others}: {_WAY_OUT}")
    return f"{others}: the bits may be others"


def _differing(run: Facts, here: Facts) -> str | None:
    """In words that name both; None if all is equal that both know."""
    names = [one for one in _EQUAL if one in run and one in here and run[one] != here[one]]
    if not names:
        return None
    theirs, ours = (
        " and ".join(_EQUAL[name].format(side[name]) for name in names) for side in (run, here)
    )
    return f"the run is of {theirs}, and this machine has {ours}"


def _found(processor: Processor) -> dict[str, str]:
    """What is as it is here, whatever is set."""
    import torch  # whoever only reads records does without

    # The line that says what this CPU can do is not the build's.
    built = [one for one in torch.__config__.show().splitlines() if "capability usage" not in one]
    return {
        "torch": torch.__version__,
        "torch_build": hashlib.sha256("\n".join(built).encode()).hexdigest()[:12],
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": processor.name,
        "cpu_type": processor.type,
        "machine": platform.machine(),
    }
