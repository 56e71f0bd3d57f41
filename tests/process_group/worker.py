"""A worker process: runs workloads, each in a process group that it makes and destroys."""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

SEED = 20261121
#: The environment of every worker: gloo finds its peers without asking the machine's resolver.
ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
#: Over gloo also: no rank leaves new_group before all have their group. Without it, a rank that
#: destroys its group at once closes connections that another is still making, and that one fails.
GLOO = {"TORCH_DIST_INIT_BARRIER": "1"}
#: Groups that were destroyed. The threads of gloo may refer to one a while longer, by what it
#: called back. Were theirs the last reference, a thread would wait for its own end, which aborts.
_DESTROYED: list[dist.ProcessGroup] = []
#: References to a group in a comprehension over that list: the list, the variable, the argument.
_OURS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rank's part of a workload.

    workload: `module:function`. directory: of this workload and backend alone; the working
    directory of all ranks. timeout_s: the process group's.
    """

    workload: str
    backend: str
    rank: int
    world_size: int
    directory: Path
    timeout_s: float
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it; of a worker that gave no answer, nothing but its code.

    values: what the workload returned. error: type and text of what it raised; trace: where.
    code: with which the worker ended, minus the signal if by one, if it gave no answer.
    took_s: from the making of the group.
    """

    values: dict[str, torch.Tensor] | None = None
    error: str | None = None
    trace: str = ""
    code: int | None = None
    took_s: float = 0.0


def serve(fd: int) -> set[str]:
    """Run what comes over a connection until it closes; returns the backends that were used."""
    used: set[str] = set()
    torch.set_num_threads(1)
    os.environ.update(ENVIRONMENT)
    with Connection(fd) as connection:
        while True:
            try:
                task = pickle.loads(connection.recv_bytes())
            except EOFError:
                return used
            used.add(task.backend)
            connection.send_bytes(pickle.dumps(perform(task)))


def perform(task: Task) -> Outcome:
    """Run a workload, whatever comes of it."""
    module, _, name = task.workload.partition(":")
    os.chdir(task.directory)
    began = time.monotonic()
    environment = {**task.environment, **(GLOO if task.backend == "gloo" else {})}
    os.environ.update(environment)
    _DESTROYED[:] = [group for group in _DESTROYED if sys.getrefcount(group) > _OURS]
    try:
        workload = getattr(importlib.import_module(module), name)
        dist.init_process_group(
            task.backend,
            store=dist.FileStore(str(task.directory / "store"), task.world_size),
            rank=task.rank,
            world_size=task.world_size,
            timeout=timedelta(seconds=task.timeout_s),
        )
        try:
            torch.manual_seed(SEED)
            random.seed(SEED)
            values = workload(task.rank, task.world_size)
        finally:
            assert dist.group.WORLD is not None
            _DESTROYED.append(dist.group.WORLD)
            dist.destroy_process_group()
    except Exception as error:
        return Outcome(
            error=f"{type(error).__name__}: {error}",
            trace=traceback.format_exc(),
            took_s=time.monotonic() - began,
        )
    finally:
        for variable in environment:
            del os.environ[variable]
    return Outcome(values=values)
