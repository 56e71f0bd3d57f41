"""Groups of processes that nobody but torch.distributed started: what they leave, and take up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from dayfly.runs.scripts import standalone
from dayfly.wire.channels import direct

pytestmark = pytest.mark.long

#: Far longer than anything here takes, and far less than a group's timeout.
LONG_S = 200

#: The other rank never comes. Waits of ours are short, as they are not what is tested.
RAISES_WHILE_WAITING = """
import sys
import torch
import torch.distributed as dist
from dayfly.runs.scripts import standalone
from dayfly.wire.process_group import member

standalone._LAST_S = member._LAST_S = 0.1
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("dayfly", store=store, rank=0, world_size=2)
with dist._coalescing_manager(async_ops=True):
    dist.all_reduce(torch.ones(100_000))
    dist.all_reduce(torch.ones(4))
waits = dist.irecv(torch.ones(4), 1)
waits.get_future().then(lambda done: print("told", file=sys.stderr))
raise ZeroDivisionError("the user's own")
"""


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param("", id="memory"),
        # One more of a product: the end is the process group's, whatever the channel.
        pytest.param("tcp://", id="tcp", marks=pytest.mark.slow),
    ],
)
def test_an_interpreter_ends_while_operations_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    monkeypatch.setenv("DAYFLY_CHANNEL", channel)
    ended = subprocess.run(
        [sys.executable, "-c", RAISES_WHILE_WAITING, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert ended.returncode == 1
    assert "ZeroDivisionError: the user's own" in ended.stderr
    assert "told" in ended.stderr
    assert "shutdown" not in ended.stderr  # of pools to which something was given after that


@pytest.mark.parametrize(
    "channel", ["", pytest.param("tcp://", marks=pytest.mark.slow)], ids=["memory", "tcp"]
)
def test_another_world_after_one_that_was_destroyed(tmp_path: Path, channel: str) -> None:
    """With other ranks, and without the process that made the channel; and then they end."""
    processes = spawn(_worlds, (tmp_path, channel), nprocs=3, join=False, daemon=True)
    until = time.monotonic() + LONG_S
    while not processes.join(1.0):
        assert time.monotonic() < until


def _worlds(rank: int, directory: Path, channel: str) -> None:
    os.environ["DAYFLY_CHANNEL"] = channel
    direct.LINGER_S = 10 * LONG_S  # for what nobody reads
    standalone._LAST_S = LONG_S  # for who leaves late
    _gathered(directory / "first", rank, 3)
    _gathered(directory / "reversed", 2 - rank, 3)
    if rank > 0:
        _gathered(directory / "without the first", rank - 1, 2)


def _gathered(path: Path, rank: int, size: int) -> None:
    store = dist.FileStore(str(path), size)
    dist.init_process_group("dayfly", store=store, rank=rank, world_size=size)
    ranks = torch.empty(size, dtype=torch.int64)
    dist.all_gather_into_tensor(ranks, torch.tensor([rank]))
    assert dist.get_rank() == rank
    assert ranks.tolist() == list(range(size))
    dist.destroy_process_group()
