"""A torch.distributed script on functions, over channels, with a death in its middle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.parts.redis_server import RedisServer

from dayfly.life import ends
from tests.cli import command
from tests.run_command.scripts import run

pytestmark = pytest.mark.long

#: Rank 1 is killed, once, while the others wait for it.
SUM = """
    import os, signal, torch
    import torch.distributed as dist

    dist.init_process_group()
    rank = dist.get_rank()
    terms = torch.arange(1000.0) * (rank + 1)
    dist.all_reduce(terms)
    if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    print(terms[-1].item())
    dist.destroy_process_group()
"""


@contextmanager
def place(scheme: str, directory: Path) -> Iterator[str | None]:
    """URL of a channel."""
    match scheme:
        case "memory":
            yield None
        case "file":
            yield f"file://{directory}/channel"
        case "redis":
            with RedisServer() as server:
                yield server.url
        case _:
            yield f"{scheme}://"


@pytest.mark.parametrize(
    "scheme",
    [
        # A store's messages outlive a death, sockets' do not; the file channel is memory's.
        *("redis", "tcp"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("file", "memory", "ps")),
    ],
)
def test_a_script_starts_again_over_every_channel(scheme: str, here: Path) -> None:
    with place(scheme, here) as url:
        ran = run(here, SUM, channel=url)
    assert ran.result.status == "done", ran.result.error
    assert ran.result.restarts == 1
    assert [ran.of(rank) for rank in range(2)] == [["2997.0"], ["2997.0"]]
    assert ran.result.bytes_up > 8000
    assert ran.result.requests > 4
    if scheme == "file":
        assert list((here / "channel").iterdir()) == []


def test_a_rank_that_never_comes_is_a_named_error(here: Path) -> None:
    ran = run(
        here,
        """
        import os, time
        import torch, torch.distributed as dist
        dist.init_process_group()
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(4), src=1)
        time.sleep(100)
        """,
        wait_timeout_s=1.0,
        max_restarts=0,
    )
    assert ran.result.status == "failed"
    assert "worker 0 raised WaitTimeout" in (ran.result.error or "")
    assert 'script.py", line 6' in (ran.result.error or "")


def test_an_error_of_the_wire_waits_for_the_death_that_explains_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "CAUSE_S", command.WAIT_S)
    ran = run(
        here,
        """
        import os, time
        from pathlib import Path
        import torch, torch.distributed as dist
        dist.init_process_group()
        first = Path("rank 0")
        if dist.get_rank() == 0:
            first.symlink_to(f"/proc/{os.getpid()}")
            try:
                dist.recv(torch.zeros(4), src=1)
            except Exception as error:
                raise RuntimeError("no batch") from error
        while not first.is_symlink() or first.exists():  # until its process is gone
            time.sleep(0.01)
        raise ValueError("the cause")
        """,
        wait_timeout_s=0.5,
        max_restarts=0,
    )
    error = ran.result.error or ""
    assert error.startswith("worker 1 raised ValueError: the cause")
    assert error.endswith("\nalso: worker 0 raised RuntimeError: no batch")
