"""`dayfly bench collectives`: its form, its arithmetic, and that nothing stays; no speed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from benchmarks.parts import by_kernel, cases, cpu_clocks, namespaces, sums, two_servers
from benchmarks.parts.memory import growth_bytes
from benchmarks.parts.predictions import NAMES, AllReduce, fitting
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.redis_server import RedisOptions, RedisServer
from benchmarks.parts.star import HUB_HOST, Star
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks import collectives
from dayfly.errors import RequestError, RunFailed
from dayfly.life.sessions import Session
from dayfly.wire.channels.kind import Abilities
from tests.benchmarks.left import namespace_is_swept, spaces
from tests.cli import command
from tests.soak import processes

pytestmark = pytest.mark.long

TINY = ["--quick", "--workers", "2", "--mb", "0.1", "--rate", "100", "--latency", "1"]
TWO = ["--collectives", "scatter-reduce", "overlapped"]

needs_namespaces = pytest.mark.skipif(
    not namespaces.possible(), reason="network namespaces need root, ip and tc"
)


def text_of(result: dict[str, Any]) -> str:
    page = io.StringIO()
    Console(file=page, width=100).print(collectives.table(result))
    return page.getvalue()


def test_a_short_run(tmp_path: Path) -> None:
    parts = ["--capped", "--uncapped", "--memory", "--channel", "files"]
    done = command.run("bench", "collectives", *TINY, *TWO, *parts, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round 1 of 1: overlapped" in done.stderr
    result = command.last_json(done.stdout)
    assert (result["bench"], result["status"], result["channel"]) == (
        *("collectives", "done"),
        "files",
    )
    assert "tbf" not in result
    assert [row["collective"] for row in result["capped"]] == TWO[1:]
    for row in result["capped"]:
        assert row["bound_s"] == pytest.approx(0.1e6 / 100e6)  # 2(n-1)/n is 1 for n = 2
        assert row["ratio"] == pytest.approx(median(row["seconds"]) / row["bound_s"])
        assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
        # s/2 up, and down, twice, and two latencies each: never faster than the lines carry it.
        assert row["virtual_ratio"] >= 1
        assert row["ratio"] > 1
    for row in result["uncapped"]:
        ratios = [a / b for a, b in zip(row["seconds"], row["gloo_seconds"], strict=True)]
        assert row["ratio"] == pytest.approx(median(ratios))
        assert len(ratios) == 2
    assert [len(row["growth_mb"]) for row in result["memory"]] == [2, 2]
    text = text_of(result)
    assert "2 workers, 0.1 MB, 100 MB/s each way, 1 ms: the bound is 0.001 s" in text
    assert f"{result['capped'][0]['ratio']:.3f}" in text
    assert list(tmp_path.iterdir()) == []


def test_cpu_time_is_that_of_ranks_and_store_apart() -> None:
    pytest.importorskip("redis")
    args = ["--cpu", "--quick", "--workers", "2", "--channel", "redis"]
    result = collectives.run(args)
    (row,) = result["cpu"]["all_reduces"]
    assert (row["channel"], row["collective"], row["workers"]) == ("redis", "overlapped", 2)
    # Each rank puts its contribution and its sum, and gets the other's, with headers.
    nbytes = 1e6 * row["mb"]
    assert 2 * nbytes < row["moved_bytes"] < 2.01 * nbytes
    # No thread of a rank spins: CPU time is at most a core's for each thread that works.
    assert 0 < min(row["cpu_seconds"]) < 4 * max(row["seconds"])
    assert min(row["store_cpu_seconds"]) > 0
    ratios = [a / b for a, b in zip(row["cpu_seconds"], row["gloo_cpu_seconds"], strict=True)]
    assert row["cpu_ratio"] == pytest.approx(median(ratios))
    messages = result["cpu"]["messages"]
    assert [one["bytes"] for one in messages] == [2**16, 2**20, 2**24]
    assert all(one["client"] == "redis-py" and one["cpu_ratio"] > 0 for one in messages)
    assert f"{1e9 * row['cpu_took_s'] / nbytes:.2f}" in text_of(result)


def test_cpu_time_of_others_is_not_that_of_ranks() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    ours, rank = subprocess.Popen(spin), subprocess.Popen(spin)
    try:
        assert ours.pid in cpu_clocks.others([rank.pid])
        assert rank.pid not in cpu_clocks.others([rank.pid])
        assert os.getpid() in cpu_clocks.others([rank.pid])
        command.eventually("time of the one", lambda: cpu_clocks.cpu_s([ours.pid]) > 0.05)
    finally:
        for process in (ours, rank):
            process.kill()
            process.wait()
    assert cpu_clocks.cpu_s([ours.pid]) == 0  # it ended


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--channel", "tape"], "--channel 'tape': give one of files, redis, "),
        (["--channel", "tape://x"], "channel 'tape://...': it is not known"),
        (["--channel", "files", "--collectives", "push-pull"], "push-pull cannot be measured"),
        (["--channel", "files", "--workers", "1"], "--workers 1: give 2 to 64"),
        (["--channel", "files", "--mb", "0"], "--mb 0: give a number above 0"),
        (["--channel", "files", "--latency", "-1"], "--latency -1: "),
        (["--channel", "files", "--workers", "6"], "10 all-reduces in a row on 6 workers are not"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    args: list[str], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        collectives.run(["--capped", *args])


def test_a_wrong_option_exits_with_2() -> None:
    with pytest.raises(SystemExit) as exit_:
        collectives.run(["--collectives", "carrier-pigeon"])
    assert exit_.value.code == 2


# --- what is left


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process ended; who is to wait for it does not matter."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it may be reaped between opening and reading
        return True


def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    # A buffer that takes an hour.
    slow = ["--workers", "2", "--mb", "8", "--rate", "0.002", "--collectives", "overlapped"]
    asked = ("bench", "collectives", "--capped", "--channel", "files", *slow)
    with command.start(*asked, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert "the bound is 4000.000 s" in process.stderr.readline()
        ranks = children(process.pid)
        assert len(ranks) >= 2
        (session,) = processes.sessions(process.pid)
        assert (command.directory_of(session) / "messages").exists()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=command.WAIT_S)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        command.eventually("the ranks' end", lambda: all(map(gone, ranks)))
        assert command.nothing_left(session)


RANKS = """
import os, time
from benchmarks.parts.ranks import Ranks

class Sleeper:
    def __init__(self, rank): self.pid = os.getpid
    def sleep(self): time.sleep(600)

if __name__ == "__main__":
    ranks = Ranks(Sleeper, 2)
    print(*ranks.ask("pid"), flush=True)
    ranks.ask("sleep")
"""


class Clerk:
    """A rank that does as it is told."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def fail(self, rank: int) -> int:
        if self.rank == rank:
            raise ValueError("no such luck")
        return self.rank

    def end(self, rank: int) -> None:
        if self.rank == rank:
            os._exit(3)

    def now(self) -> float:
        return time.monotonic()


def test_ranks_die_with_whoever_started_them(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(RANKS)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as starter:
        try:
            assert starter.stdout is not None
            pids = [int(pid) for pid in starter.stdout.readline().split()]
            assert len(pids) == 2
        finally:
            starter.kill()
    command.eventually("the ranks' end", lambda: all(map(gone, pids)))


def test_what_ranks_are_asked() -> None:
    with Ranks(Clerk, 2) as ranks:
        assert ranks.ask("fail", 5) == [0, 1]
        assert ranks.ask("fail", 5, count=1) == [0]
        asked = time.monotonic()
        assert min(ranks.together("now")) > asked
        with pytest.raises(RunFailed, match="rank 1: ValueError: no such luck"):
            ranks.ask("fail", 1)
        assert not ranks.in_order
    with Ranks(Clerk, 1) as ranks, pytest.raises(RunFailed, match="rank 0 ended"):
        ranks.ask("end", 0)


# --- the kernel's bucket


@needs_namespaces
def test_a_star_counts_what_its_buckets_let_through_and_goes() -> None:
    with Star(2) as star:
        server = star.in_hub(RedisServer, RedisOptions(host=HUB_HOST))
        with star.limited(1e6):
            before = star.sent_bytes()
            for name in star.spaces:
                value = f"redis-cli -h {HUB_HOST} -p {server.port} set {name} {'x' * 20_000}"
                told = subprocess.run(
                    ["ip", "netns", "exec", name, *value.split()], capture_output=True, text=True
                )
                assert told.stdout.strip() == "OK", told
            assert star.sent_bytes() - before > 40_000
        star.in_hub(server.close)
        assert len(star.spaces) == 2
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()


@needs_namespaces
def test_what_a_killed_star_left_is_swept() -> None:
    code = (
        "import os, signal; from benchmarks.parts.star import Star\n"
        "with Star(1): os.kill(os.getpid(), signal.SIGKILL)"
    )
    namespace_is_swept(code, "hub")


@needs_namespaces
def test_our_line_beside_the_kernels() -> None:
    pytest.importorskip("dayfly.wire.channels.redis")
    case = cases.Case(
        workers=2, mb=0.2, rate_mb_per_s=5.0, latency_ms=0.0, collectives=["scatter-reduce"]
    )
    with Session.open() as session:
        (row,) = by_kernel.measure(session, case, 2, 1)
    assert 0.5 < row["message_share"] < 1
    (ours, kernel) = row["ours_seconds"][0], row["kernel_seconds"][0]
    assert row["ratio"] == pytest.approx(ours / (kernel * row["message_share"]))
    assert "scatter-reduce" in text_of({"machine": MACHINE, "rounds": 1, "tbf": [row]})
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()


@needs_namespaces
def test_two_servers_beside_one() -> None:
    pytest.importorskip("dayfly.wire.channels.redis")
    case = cases.Case(
        workers=2, mb=0.2, rate_mb_per_s=5.0, latency_ms=0.0, collectives=["scatter-reduce"]
    )
    with Session.open() as session:
        (row,) = two_servers.measure(session, case, 1, 1)
    assert row["ratio"] == pytest.approx(row["one_seconds"][0] / row["two_seconds"][0])
    assert "scatter-reduce" in text_of({"machine": MACHINE, "rounds": 1, "servers": [row]})
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()


MACHINE = {"cores": 2, "cpu": "any", "torch": "2", "python": "3", "load": 0.0}


def test_the_kernels_time_is_for_all_that_it_counts() -> None:
    # Of what the kernel let through in 2.2 s, 10 in 11 parts are messages: 2 s for them.
    assert by_kernel.compared([2.0, 1.0], [2.2, 2.2], [10 / 11, 10 / 11]) == pytest.approx([1, 0.5])


def test_without_root_the_cross_check_is_said_to_be_missing() -> None:
    assert "needs root" in text_of({"machine": MACHINE, "rounds": 1, "tbf": None})
    assert "need root" in text_of({"machine": MACHINE, "rounds": 1, "servers": None})


# --- arithmetic


@given(
    world_size=st.sampled_from([2, 3, 4, 8]),
    length=st.integers(1, 2000),
    operations=st.integers(1, 4),
)
def test_sums_are_known_without_summing(world_size: int, length: int, operations: int) -> None:
    buffers = [torch.empty(length) for _ in range(world_size)]
    for rank, buffer in enumerate(buffers):
        sums.fill(buffer, rank)
    assert sums.exact(world_size, operations)
    for _ in range(operations):
        total = torch.stack(buffers).sum(0)
        buffers = [total.clone() for _ in buffers]
    assert sums.is_sum(buffers[0], world_size, operations)
    buffers[0][length // 2] += 1
    assert not sums.is_sum(buffers[0], world_size, operations)


def test_a_chunk_in_anothers_place_is_seen() -> None:
    whole = torch.empty(4096)
    sums.fill(whole, 0)
    assert sums.is_sum(whole, 1, 1)
    moved = torch.cat([whole[1024:2048], whole[:1024], whole[2048:]])
    assert not sums.is_sum(moved, 1, 1)


@pytest.mark.parametrize(("workers", "most"), [(2, 50), (4, 50), (8, 39), (3, 10), (6, 6)])
def test_how_many_sums_in_a_row_are_exact(workers: int, most: int) -> None:
    assert sums.most_exact(workers, 50) == most
    assert sums.exact(workers, most)
    assert most == 50 or not sums.exact(workers, most + 1)


@pytest.mark.parametrize(
    ("ratio", "in_full", "times"),
    [(1.04, False, 10), (1.4, False, 2), (4.1, False, 1), (20, False, 1), (20, True, 10)],
)
def test_slow_ones_are_measured_for_a_third_of_the_time(
    ratio: float, in_full: bool, times: int
) -> None:
    assert cases.in_a_row(10, ratio, in_full) == times


def case(workers: int) -> cases.Case:
    return cases.Case(
        workers=workers, mb=8.0, rate_mb_per_s=10.0, latency_ms=20.0, collectives=NAMES
    )


def one(name: str, workers: int = 4, **abilities: Any) -> AllReduce:
    return case(workers).one(name, Abilities(in_flight=8, **abilities))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_formulas_tell_the_virtual_time(name: str, workers: int, direct: bool) -> None:
    """Where latencies do not stand out, which is all that is measured by default."""
    chosen = one(name, workers, direct=direct)
    assert chosen.formula_s == pytest.approx(chosen.virtual_s, rel=0.01)
    assert chosen.bound_s == pytest.approx(1.2 if workers == 4 else 1.4)
    assert chosen.virtual_s > (0.8 if name == "push-pull" else chosen.bound_s)


def test_channels_that_sum_carry_push_pull_alone() -> None:
    everything_else = [name for name in NAMES if name != "push-pull"]
    assert fitting(None, one("")) == everything_else
    assert fitting(None, one("", sums=True)) == ["push-pull"]
    assert fitting(["ring"], one("")) == ["ring"]
    with pytest.raises(RequestError, match="ring cannot be measured over this channel: a channel"):
        fitting(["ring"], one("", sums=True))


def test_messages_that_are_too_large_do_not_fit() -> None:
    # Splits of 2 MB; all others send chunks, or the whole.
    fit = fitting(None, one("", largest_bytes=2_000_000))
    assert "scatter-reduce" in fit
    assert "all-reduce" not in fit
    with pytest.raises(RequestError, match="messages of 8000000 bytes, and the channel takes 2000"):
        fitting(["all-reduce"], one("", largest_bytes=2_000_000))


@pytest.mark.parametrize(
    ("work", "least", "most"),
    [(lambda: torch.ones(2**23), 2**25, 2**25 + 2**23), (lambda: None, 0, 2**23)],
)
def test_how_much_memory_is_taken(work: Callable[[], object], least: int, most: int) -> None:
    assert 0.95 * least <= growth_bytes(work) <= most
