"""What a script finds in its process: the variables of torchrun, its group, its store, its life.

Each function is a node of its own, with one process: LOCAL_RANK is 0, LOCAL_WORLD_SIZE 1, and
GROUP_RANK the rank. That is what functions are, machines that share neither files nor GPUs:

- what LOCAL_RANK 0 downloads or unpacks for its machine, each function needs for itself;
- `torch.cuda.set_device(LOCAL_RANK)`, `DDP(device_ids=[LOCAL_RANK])` and device meshes find the
  GPU that a function has, which is its first, also where several functions share one;
- Lightning takes its rank from RANK and its device from LOCAL_RANK, so that it accepts both
  `devices=1, num_nodes=N` and `devices=N, num_nodes=1`; Accelerate divides threads by the local
  size only where OMP_NUM_THREADS is not set, which it is.

On this machine functions do share a disk, as nodes of a cluster may: a script that downloads to a
shared place must let RANK 0 do it, there as here.

`Wiring` leads every request for a group of torch.distributed to the wire; none needs an address.

    asked for                                      what the script gets
    gloo, nccl, mpi, cpu:gloo,cuda:nccl, nothing   a group of the backend `dayfly`
    fake                                           fake, as torch has it
    env://, tcp://..., nothing                     the run's store, its rank and world size
    file://..., a store of its own                 that store; the group is the wire's all the same

torch 2.13 makes every group, also those of new_group and of device meshes, in one function, which
is replaced here. `dist.get_backend()` says `dayfly`: scripts and libraries choose by it between
tensors in memory and on a GPU, as nccl takes no others, and the wire takes both. What torch has for
gloo alone, `monitored_barrier` and `_set_pg_timeout`, asks the wire's groups.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from dayfly.errors import RequestError
from dayfly.life.environment import setting
from dayfly.life.platforms.base import Context
from dayfly.runs.scripts.backend import NAME, register
from dayfly.runs.scripts.lifetime import ScriptLifetime, installed
from dayfly.runs.scripts.process import here
from dayfly.runs.task import FunctionTask
from dayfly.specs.pace import REPORT_EVERY_OVER_LINK_S, Pace
from dayfly.wire.channels.base import Channel
from dayfly.wire.process_group.store import ChannelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTask(FunctionTask):
    """What a function that runs a script is told: one rank of one generation.

    Args:
        restarts: how often all workers started anew before.
        max_restarts: how often they may after deaths.
        script: the file, absolute.
        module: its name, if it was asked for as a module, as in `-m package.module`.
        args: the script's own.
        cwd: where the user typed the command.
        digest: SHA-256 of the script's file, in hex.
        files: a directory for what the script keeps, which later generations find again.
        report_s: longest time between two reports of what it moved.
        attempt: of the function.
        trimmed_step: the message log of a loop before it is gone.
        checkpoint_age_s: of the checkpoint of a loop, when the function was invoked.
        log_budget_bytes, ahead_bytes: for which the channel was made.
        pace: how often a loop reports, and looks for a wish to stop.
    """

    restarts: int
    max_restarts: int
    script: str
    module: str | None
    args: tuple[str, ...]
    cwd: str
    digest: str
    files: str
    report_s: float = REPORT_EVERY_OVER_LINK_S
    attempt: int = 0
    trimmed_step: int = 0
    checkpoint_age_s: float = 0.0
    log_budget_bytes: int = 0
    ahead_bytes: int = 0
    pace: Pace = field(default_factory=Pace)


def variables(task: ScriptTask, threads: int) -> dict[str, str]:
    """The environment of a worker of torchrun's (torch 2.13, `LocalElasticAgent`), and our own.

    MASTER_ADDR and MASTER_PORT lead nowhere, as nothing here needs them; the port is the run's own,
    so that scripts that open one of their own do not meet those of other runs.

    Args:
        threads: of this process, for those that it starts.
    """
    rank, size = str(task.rank), str(task.world_size)
    port = 20_000 + zlib.crc32(task.run.encode()) % 10_000
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": rank,
        "GROUP_WORLD_SIZE": size,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": task.run,
        "TORCHELASTIC_RESTART_COUNT": str(task.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(task.max_restarts),
        # The store is not rank 0's, but whoever started the workers keeps it.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": str(threads),
        "DAYFLY_RUN_DIR": task.files,
    }


@contextmanager
def prepare(task: ScriptTask, *, channel: Channel, context: Context) -> Iterator[None]:
    """Run a script within: it finds all that torchrun would have set up, over the wire.

    The process has joined it (see `process_group.endpoint`). All is as before at the end, whatever
    the script did.

    Args:
        channel: open, and kept open; the coordinator serves it with a `StoreServer`.
    """
    store = ChannelStore(channel, task.rank)
    life = ScriptLifetime(
        channel,
        task.rank,
        task.world_size,
        context.remaining_s,
        wait_timeout_s=task.wait_timeout_s,
    )
    with ExitStack() as stack:
        stack.enter_context(installed(life))
        stack.enter_context(setting(variables(task, torch.get_num_threads())))
        stack.enter_context(Wiring(task.rank, task.world_size, store).connected())
        yield


_MAKE, _DEFAULT_TIMEOUT = "_new_process_group_helper", "_get_default_timeout"
_MONITORED, _SET_TIMEOUT = "monitored_barrier", "_set_pg_timeout"


def wire_backend(asked: str, known: Collection[str]) -> str:
    """The backend that a group gets; `asked` is as torch has it, such as `cpu:gloo,cuda:nccl`.

    Args:
        known: the backends that torch knows; a request for others is torch's to refuse.
    """
    names = {part.rpartition(":")[2].strip() for part in asked.lower().split(",")}
    return asked if names == {"fake"} or not names <= set(known) else NAME


class Wiring:
    """One rank's.

    Args:
        store: a torch Store of all ranks of the run.
    """

    def __init__(self, rank: int, world_size: int, store: Any) -> None:
        self._rank = rank
        self._world_size = world_size
        self._store = store

    @contextmanager
    def connected(self) -> Iterator[None]:
        """While it lasts, torch.distributed in this process is led to the wire."""
        register()  # torch has done so, unless it was told not to look for backends
        timeout = getattr(distributed_c10d, _DEFAULT_TIMEOUT)
        with ExitStack() as stack:
            make = self._made_by(getattr(distributed_c10d, _MAKE))
            stack.enter_context(_replaced(vars(distributed_c10d), {_MAKE: make}))
            # nccl's is another, and asking for it warns where nccl is not compiled in.
            own_timeout = {_DEFAULT_TIMEOUT: lambda backend: timeout(_mapped(backend))}
            stack.enter_context(_replaced(vars(distributed_c10d), own_timeout))
            gloos = {
                _MONITORED: _barrier_or(getattr(distributed_c10d, _MONITORED)),
                _SET_TIMEOUT: _timeout_or(getattr(distributed_c10d, _SET_TIMEOUT)),
            }
            for module in (distributed_c10d, dist):
                there = {name: one for name, one in gloos.items() if name in vars(module)}
                stack.enter_context(_replaced(vars(module), there))
            # The module's name is also a function's, which hides it.
            handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
            here = {"env": self._rendezvous, "tcp": self._rendezvous}
            stack.enter_context(_replaced(handlers, here))
            yield

    def _made_by(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """torch's function that makes a group, told to make it over the wire."""
        signature = inspect.signature(make)

        @functools.wraps(make)
        def make_over_wire(*given: Any, **named: Any) -> Any:
            call = signature.bind(*given, **named)
            told = call.arguments
            asked = str(told["backend"])
            if _mapped(asked) != NAME:
                return make(*given, **named)
            if (process := here()) is not None:
                process.makes_group()
            if not told["global_ranks_in_group"]:  # the group of all ranks
                # MPI knows these by itself, and torch asks no rendezvous for it.
                if asked == "mpi" and told["group_size"] == -1:
                    told["group_rank"], told["group_size"] = self._rank, self._world_size
                    told["store"] = distributed_c10d.PrefixStore("default_pg", self._store)
                self._check(told["group_rank"], told["group_size"])
            if asked != NAME:
                told["backend"], told["backend_options"] = NAME, None
            # For what it does, connecting at once, the group would need a communicator of NCCL's.
            told["device_id"] = None
            return make(*call.args, **call.kwargs)

        return make_over_wire

    def _rendezvous(self, url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        """In place of torch's handlers, which connect to rank 0 over TCP."""
        parts = urlsplit(url)
        named = dict(parse_qsl(parts.query))
        # As torch does: what the call says, or else, by env://, what is set by now.
        known: Mapping[str, str] = os.environ if parts.scheme == "env" else {}
        rank = int(named.get("rank") or known.get("RANK") or self._rank)
        size = int(named.get("world_size") or known.get("WORLD_SIZE") or self._world_size)
        self._check(rank, size)
        yield self._store, rank, size

    def _check(self, rank: int, world_size: int) -> None:
        if (rank, world_size) != (self._rank, self._world_size):
            raise RequestError(
                f"the script asks for a group as rank {rank} of {world_size}, but this is rank "
                f"{self._rank} of {self._world_size} of the run: leave both out or take them from "
                "RANK and WORLD_SIZE, and say --workers for another number"
            )


def _mapped(asked: str) -> str:
    return wire_backend(str(asked), dist.Backend.backend_list)


def _ours(group: Any) -> bool:
    """Whether a group is the wire's; of a rank that is no member it is torch's to say so."""
    member = not distributed_c10d._rank_not_in_group(group)
    return member and bool(distributed_c10d.get_backend(group) == NAME)


def _barrier_or(monitored: Callable[..., None]) -> Callable[..., None]:
    """`dist.monitored_barrier`, which for the wire's groups is their own."""

    @functools.wraps(monitored)
    def barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        group = distributed_c10d._get_default_group() if group is None else group
        if not _ours(group):
            monitored(group, timeout, wait_all_ranks)
        else:
            seconds = isinstance(timeout, (int, float))
            limit = dt.timedelta(seconds=timeout) if seconds else timeout
            group.monitored_barrier(limit, wait_all_ranks)

    return barrier


def _timeout_or(set_timeout: Callable[..., None]) -> Callable[..., None]:
    """`_set_pg_timeout`, which asks the wire's groups themselves."""

    @functools.wraps(set_timeout)
    def of_group(timeout: Any, group: Any = None) -> None:
        group = distributed_c10d._get_default_group() if group is None else group
        if not _ours(group):
            set_timeout(timeout, group)
        else:
            group.set_timeout(timeout)

    return of_group


@contextmanager
def _replaced(names: dict[str, Any], by: Mapping[str, Any]) -> Iterator[None]:
    """Some entries of a dictionary, which are there, for a while."""
    before = {name: names[name] for name in by}
    names.update(by)
    try:
        yield
    finally:
        names.update(before)
