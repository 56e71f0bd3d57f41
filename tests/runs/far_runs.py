"""Whole runs whose functions have a share of a GPU that is not there; in a process of its own.

`main` prints JSON: what the test looks at.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import dayfly
from dayfly.errors import RunFailed
from dayfly.life.faults import Fault
from dayfly.life.platforms import gpus
from tests.runs import small

MODEL = "tests.runs.far_job:model"
#: Each is a run on the CPU, and one with GPUs, whose workers die.
CASES: dict[str, tuple[dict[str, Any], list[Fault]]] = {
    "bsp": ({}, [Fault(1, 5, "grad-put-sum"), Fault(0, 11, "applied"), Fault(1, 17, "computed")]),
    "local-sgd": (
        {"sync": "local-sgd", "k": 3},
        [Fault(1, 5, "reduced"), Fault(0, 10, "stepped")],
    ),
    "int8": ({"compress": "int8"}, [Fault(1, 5, "grad-put-sum"), Fault(1, 14, "computed")]),
}


class ByName:
    """The model of `far_job`, which a worker imports; the user's own code travels by value."""

    def __call__(self) -> Any:
        return pkgutil.resolve_name(MODEL)()

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (MODEL,)


def far_and_near(case: str, directory: Path) -> dict[str, Any]:
    settings, faults = CASES[case]
    job = small.job(small.write_data(directory), model=ByName())
    given = {**small.SETTINGS, **settings, "workers": 2}
    near = dayfly.train(job, run_dir=directory / "near", **given)
    far = dayfly.train(job, run_dir=directory / "far", faults=faults, gpu_share=0.5, **given)
    weights = [dict(run.model().named_buffers())["0.counted"].item() for run in (near, far)]
    same = [
        {
            name: tensor.tolist()
            for name, tensor in run.model().state_dict().items()
            if name != "0.counted"
        }
        for run in (near, far)
    ]
    invocations = json.loads((far.directory / "bill.json").read_text())["invocations"]
    return {
        "same": same[0] == same[1] and small.bits(near)[1] == small.bits(far)[1],
        "far": weights,
        "restarts": far.result.restarts,
        "shares": [row["gpu_share"] for row in invocations],
        "settings": json.loads((far.directory / "run.json").read_text())["settings"]["gpu_share"],
    }


def not_there(directory: Path) -> dict[str, Any]:
    """Functions that are given a GPU, and torch cannot use it."""
    job = small.job(small.write_data(directory))
    try:
        dayfly.train(job, run_dir=directory / "run", gpu_share=1, **small.SETTINGS)
    except RunFailed as error:
        return {"error": str(error)}
    return {"error": None}


def main(case: str, directory: str) -> None:
    gpus.gpus_of_this_machine = lambda: ("0",)
    whole = Path(directory)
    found = not_there(whole) if case == "not there" else far_and_near(case, whole)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
