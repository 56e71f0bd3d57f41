"""The peer: data parallel training as one writes it with torch alone, DDP over gloo.

`python -m benchmarks.parts.torch_ddp SPECIFICATION`, one process a rank (`peer.py` starts them).
Takes one command a line on standard input and answers with one JSON object a line on standard
output; lives until its input ends.

    train     a whole training from the first weights on, timed step by step
    alone     the same without any communication: what the processes cost each other as it is
    reduce    all-reduces of a buffer of the gradients' size, and nothing else
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.parts.measured import fastest_tenth
from benchmarks.parts.workloads import Workload, workload_of
from dayfly import lifeline
from dayfly.training.order import Epochs
from dayfly.training.replica import build_model

#: What a step consists of, in order; each is the time from the end of the one before.
PARTS = ("data", "forward", "backward", "optimizer", "loss")
_REDUCTIONS = 20


class Rank:
    """One process. The data is in memory, and which samples form which step is known beforehand."""

    def __init__(self, workload: Workload, data: Path) -> None:
        self._job = workload.job(data)
        self._x, self._y = (
            torch.from_numpy(np.load(data / f"{name}_train.npy")) for name in ("x", "y")
        )
        self._rank, self._world_size = dist.get_rank(), dist.get_world_size()
        # dayfly's order, so that both sides train on the same batches. All batches are full and
        # shared evenly, as DDP takes the plain mean over the ranks.
        epochs = Epochs(workload.samples, workload.batch_size, self._job.seed)
        self._order = [
            torch.from_numpy(epochs.indices(step, self._rank, self._world_size))
            for step in range(workload.steps)
        ]
        self._warm_steps = workload.warm_steps

    def train(self) -> dict[str, Any]:
        """With DDP."""
        # The buckets are 25 MiB (the first 1 MiB), and buffers come from rank 0: as by default.
        model = DistributedDataParallel(
            build_model(self._job), gradient_as_bucket_view=True, static_graph=True
        )
        return self._timed(model)

    def alone(self) -> dict[str, Any]:
        """Without DDP, all ranks at the same time."""
        return self._timed(build_model(self._job))

    def reduce(self) -> dict[str, Any]:
        """Milliseconds of an all-reduce of all gradients at once."""
        elements = sum(parameter.numel() for parameter in build_model(self._job).parameters())
        flat = torch.ones(elements)
        took = []
        for _ in range(_REDUCTIONS):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(flat)
            took.append(time.perf_counter() - began)
        return {"reduce_ms": 1000 * mean(took[_REDUCTIONS // 2 :])}

    def _timed(self, model: nn.Module) -> dict[str, Any]:
        loss_of: Callable[[Any, Any], torch.Tensor] = self._job.loss  # type: ignore[assignment]
        optimizer = self._job.optimizer(model.parameters())  # type: ignore[misc]
        model.train()
        dist.barrier()
        losses: list[float] = []
        marks: list[tuple[float, ...]] = []
        cpu_s = 0.0
        for step, mine in enumerate(self._order):
            if step == self._warm_steps:
                cpu_s = _cpu_s()
            began = time.perf_counter()
            x, y = self._x[mine], self._y[mine]
            fetched = time.perf_counter()
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            forward = time.perf_counter()
            loss.backward()  # type: ignore[no-untyped-call]
            backward = time.perf_counter()
            optimizer.step()
            stepped = time.perf_counter()
            losses.append(loss.item())
            marks.append((began, fetched, forward, backward, stepped, time.perf_counter()))
        cpu_s = _cpu_s() - cpu_s
        # The last step is left out, as dayfly's is.
        measured = marks[self._warm_steps : -1]
        ends = [mark[-1] for mark in marks[self._warm_steps - 1 : -1]]
        took_s = ends[-1] - ends[0]
        each_ms = [1000 * (end - start) for start, end in pairwise(ends)]
        parts = {
            part: 1000 * mean(mark[number + 1] - mark[number] for mark in measured)
            for number, part in enumerate(PARTS)
        }
        return {
            "steps_per_s": len(measured) / took_s,
            "losses": losses,
            "parts_ms": {
                "step": 1000 * took_s / len(measured),
                "fastest tenth": fastest_tenth(each_ms),
                **parts,
                "cpu": 1000 * cpu_s / (len(measured) + 1),
            },
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(specification: str) -> None:
    """Serve commands until standard input ends."""
    # What libraries print goes to the log; answers have a descriptor of their own.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        given = json.loads(specification)
        armed = lifeline.arm(given["lifeline_fd"])
        os.close(given["lifeline_fd"])
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{given['rendezvous']}",
            rank=given["rank"],
            world_size=given["world_size"],
        )
        try:
            rank = Rank(workload_of(given["workload"], given["quick"]), Path(given["data"]))
            commands = {"train": rank.train, "alone": rank.alone, "reduce": rank.reduce}
            for line in sys.stdin:
                print(json.dumps(commands[line.strip()]()), file=answers, flush=True)
        finally:
            dist.destroy_process_group()
            os.close(armed)


if __name__ == "__main__":
    main(sys.argv[1])
