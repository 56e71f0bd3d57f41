"""`dayfly bench distributed`: its form, its arithmetic, and that nothing stays; no speed."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist
from benchmarks.parts import on_gpu, overlap
from benchmarks.parts.examples import EXAMPLES, HOWS, OVERLAP_FEW_IMAGES, small_resnet
from benchmarks.parts.programs.after_backward import AfterBackward
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.stores import running
from benchmarks.parts.turns import Taken, in_turns
from rich.console import Console
from torch import nn

from benchmarks import distributed
from dayfly.errors import RequestError, RunFailed
from dayfly.life.sessions import Session
from tests.cli import command
from tests.soak import processes

pytestmark = pytest.mark.long

TINY = ["--quick", "--rounds", "1", "--workers", "2"]


def text_of(result: dict[str, Any]) -> str:
    page = io.StringIO()
    Console(file=page, width=120).print(distributed.table(result))
    return page.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "other"),
    [
        ("ddp-resnet", "gpipe"),
        # As a program, tests/process_group/test_equal.py has it.
        pytest.param("1f1b", "gpipe", marks=pytest.mark.slow),
    ],
)
def test_a_short_run(program: str, other: str, tmp_path: Path) -> None:
    parts = ["--examples", "--small", "--programs", program, "--seconds", "0.01"]
    done = command.run("bench", "distributed", *TINY, *parts, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{program} on 2, round 1 of 1: dayfly" in done.stderr
    result = command.last_json(done.stdout)
    assert (result["bench"], result["status"], result["rounds"]) == ("distributed", "done", 1)
    assert "overlap" not in result
    (example,), (small,) = result["examples"], result["small"]
    assert (example["example"], small["example"]) == (program, "one-float")
    for row in (example, small):
        ratios = [a / b for a, b in zip(row["dayfly_seconds"], row["gloo_seconds"], strict=True)]
        assert row["ratio"] == pytest.approx(median(ratios))
        assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
        assert row["losses_apart"] < 1e-3
    text = text_of(result)
    assert f"{example['ratio']:.2f}" in text
    assert EXAMPLES[program].what in text
    assert EXAMPLES[other].what not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # ten starts of torch; a short run, in the suite, measures in the same way
def test_overlap_has_a_row_a_way_to_communicate() -> None:
    fast = overlap.Slow(mb_per_s=1000.0, latency_ms=0.1)
    with Session.open() as session, running("files", session) as store:
        rows = overlap.measure(session, store, [2], fast, 1, 0.01, OVERLAP_FEW_IMAGES)
    assert [row["how"] for row in rows] == list(HOWS)
    ddp, alone = rows[0]["seconds"][0], rows[-1]["seconds"][0]
    for row in rows:
        assert row["ratio"] == pytest.approx(ddp / row["seconds"][0])
        assert row["beside_s"] == pytest.approx(row["seconds"][0] - alone)
        # Two processes: as many bytes as the gradients have.
        assert row["bound_s"] == pytest.approx(sum(row["bucket_mb"]) / 1000)
    assert len(rows[0]["bucket_mb"]) > 2
    parameters = sum(one.numel() for one in small_resnet().parameters())
    assert sum(rows[0]["bucket_mb"]) == pytest.approx(4e-6 * parameters)
    assert "one by one" in text_of({"machine": MACHINE, "rounds": 1, "overlap": rows})


MACHINE = {"cores": 2, "cpu": "any", "torch": "2", "python": "3", "load": 0.0}


@pytest.mark.slow  # test_equal.py has DDP and FSDP2, the short run how programs are measured
def test_what_runs_on_a_gpu_runs_on_the_processor() -> None:
    with Session.open() as session, running("files", session) as store:
        rows = on_gpu.measure(session, store, [2], 1, 0.01, device="cpu")
    assert [row["example"] for row in rows] == ["ddp-cpu", "fsdp2-cpu"]
    for row in rows:
        assert row["gloo_error"] is None
        assert row["dayfly_samples_per_s"] == pytest.approx(2 * 2 / row["dayfly_s"])
    assert "fsdp2-cpu" in text_of({"machine": MACHINE, "rounds": 1, "gpu": rows})


def test_without_a_gpu_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RequestError, match="--gpu: torch finds no GPU"):
        distributed.run(["--gpu"])
    assert "this machine has none" in text_of({"machine": MACHINE, "rounds": 1, "gpu": None})


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--rate", "0"], "--rate 0: give a number above 0"),
        (["--latency", "-1"], "--latency -1: give milliseconds"),
        (["--rounds", "-2"], "--rounds -2: "),
        (["--workers", "4", "--programs", "gpipe"], "gpipe takes 2 processes: give --workers 2"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    args: list[str], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        distributed.run(args)


def test_a_wrong_option_exits_with_2() -> None:
    with pytest.raises(SystemExit) as exit_:
        distributed.run(["--programs", "carrier-pigeon"])
    assert exit_.value.code == 2


@pytest.mark.slow
def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    asked = ("bench", "distributed", "--small", *TINY, "--rounds", "100000")
    with command.start(*asked, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert "one-float on 2, round 1" in process.stderr.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 4, "two for each backend"
        (session,) = processes.sessions(process.pid)
        assert (command.directory_of(session) / "messages").exists()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=command.WAIT_S)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        command.eventually("the ranks' end", lambda: not any(map(alive, children)))
        assert command.nothing_left(session)


def alive(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it may be reaped between opening and reading
        return False


# --- the programs


class Trainer:
    """A rank that trains a tiny model over gloo."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def train(self, meet: str) -> list[tuple[list[float], list[int]]]:
        """Some weights after three steps, by each way to communicate, and the buckets' sizes."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{meet}", rank=self._rank, world_size=2)
        results = []
        for how in HOWS:
            torch.manual_seed(0)
            # The last layer fills the first bucket, of 1 MiB whatever is asked.
            model = nn.Sequential(nn.Linear(8, 1000), nn.ReLU(), nn.Linear(1000, 300))
            x, y = torch.full((4, 8), 1.0 + self._rank), torch.tensor([0, 1, 2, self._rank])
            program = AfterBackward(model, x, y, 0.5, how=how, bucket_mib=0.001)
            for _ in range(3):
                program.step()
            some = torch.cat([one.detach().flatten()[-99:] for one in model.parameters()])
            results.append((some.tolist(), program.buckets))
        dist.destroy_process_group()
        return results


@pytest.mark.slow  # tests/process_group/test_equal.py compares each way over the wire with gloo
def test_all_ways_to_communicate_train_the_same(tmp_path: Path) -> None:
    with Ranks(Trainer, 2) as ranks:
        ours, theirs = (
            dict(zip(HOWS, r, strict=True)) for r in ranks.ask("train", f"{tmp_path}/m")
        )
    for how in HOWS:
        if how != "alone":
            assert ours[how][0] == pytest.approx(ours["ddp"][0], rel=1e-5, abs=1e-6), how
            assert ours[how][0] == theirs[how][0]
    assert ours["alone"][0] != theirs["alone"][0]
    assert len(ours["one by one"][1]) > 1
    assert ours["one by one"][1] == ours["all at once"][1]


# --- turns


class Slot:
    """A side that takes a given time a step, and notes when it was asked."""

    def __init__(self, name: str, step_s: float, loss: float, asked: list[tuple[str, int]]) -> None:
        self.name, self.step_s, self.loss, self.asked = name, step_s, loss, asked

    def take(self, count: int) -> Taken:
        self.asked.append((self.name, count))
        losses = [[None] * count, [self.loss] * count]
        return Taken(step_s=self.step_s, cpu_s=self.step_s / 2, losses=losses)


def test_sides_take_turns_and_equally_many_steps() -> None:
    asked: list[tuple[str, int]] = []
    sides = {name: Slot(name, step_s, 1.0, asked) for name, step_s in (("a", 0.1), ("b", 0.05))}
    took = in_turns("this", sides, 3, 1.0)
    assert took.steps == 10  # of the slower side, in a second
    assert asked[:4] == [("a", 3), ("b", 3), ("a", 2), ("b", 2)]
    assert asked[4:] == [(name, 10) for name in "abbaab"]
    assert took.ratios("a", "b") == pytest.approx([2.0] * 3)
    assert took.cpu_seconds["a"] == [0.05] * 3
    assert took.losses_apart == 0


def test_sides_that_do_not_do_the_same_are_refused() -> None:
    sides = {name: Slot(name, 1.0, loss, []) for name, loss in (("a", 1.0), ("b", 1.1))}
    with pytest.raises(RunFailed, match=r"a loss is 1 by a and 1\.1 by b"):
        in_turns("this", sides, 1, 1.0)
    assert in_turns("this", sides, 1, 1.0, unlike=frozenset("b")).losses_apart == 0
