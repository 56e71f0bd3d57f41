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
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from dayfly.life.environment import setting
from dayfly.life.platforms.base import Context
from dayfly.runs.scripts.lifetime import Life, living
from dayfly.runs.scripts.wiring import Wiring
from dayfly.wire.channels.base import Channel
from dayfly.wire.process_group.store import ChannelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who a script's process is.

    run: its name. restarts: how often all workers have started anew; max_restarts: how often they
    may. files: directory for what the script keeps.
    """

    run: str
    rank: int
    world_size: int
    restarts: int
    max_restarts: int
    files: str


def variables(member: Member, threads: int) -> dict[str, str]:
    """The environment of a worker of torchrun's (torch 2.13, `LocalElasticAgent`), and our own.

    threads: of this process, for those that it starts. MASTER_ADDR and MASTER_PORT lead nowhere,
    as nothing here needs them; the port is the run's own, so that scripts that open one of their
    own do not meet those of other runs.
    """
    rank, size = str(member.rank), str(member.world_size)
    port = 20_000 + zlib.crc32(member.run.encode()) % 10_000
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
        "TORCHELASTIC_RUN_ID": member.run,
        "TORCHELASTIC_RESTART_COUNT": str(member.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(member.max_restarts),
        # The store is not rank 0's, but whoever started the workers keeps it.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": str(threads),
        "DAYFLY_RUN_DIR": member.files,
    }


@contextmanager
def prepare(
    member: Member, *, channel: Channel, context: Context, wait_timeout_s: float
) -> Iterator[None]:
    """Run a script within: it finds all that torchrun would have set up, over the wire.

    channel: open, and kept open; the coordinator serves it with a `StoreServer`. The process has
    joined it (see `process_group.endpoint`). All is as before at the end, whatever the script did.
    wait_timeout_s: longest wait for rank 0's word on checkpoints.
    """
    store = ChannelStore(channel, member.rank)
    life = Life(
        channel,
        member.rank,
        member.world_size,
        context.remaining_s,
        wait_timeout_s=wait_timeout_s,
    )
    with ExitStack() as stack:
        stack.enter_context(living(life))
        stack.enter_context(setting(variables(member, torch.get_num_threads())))
        stack.enter_context(Wiring(member.rank, member.world_size, store).connected())
        yield
