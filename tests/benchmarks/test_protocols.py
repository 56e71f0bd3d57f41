"""The bench of protocols: seconds in virtual time, bytes of messages, and runs that are kept."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.parts.predictions import AllReduce
from benchmarks.parts.protocols import hybrid, utilisation
from benchmarks.parts.protocols.beside import Link, Method, compare, tables
from benchmarks.parts.protocols.trained import Runs, Task, Trained
from benchmarks.parts.protocols.virtual import Exchange, step_s, streamed_s
from rich.console import Console

from benchmarks import protocols
from dayfly.cli.demo import demo_job
from dayfly.errors import RequestError
from dayfly.specs.streaming import Streaming
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.keys import HEADER_BYTES
from tests.benchmarks.left import scratch

LINK = {"bytes_per_s": 10e6, "latency_s": 0.02}


def test_a_step_is_what_computing_and_the_all_reduce_take() -> None:
    exchange = Exchange(length=1_400_000)
    alone = AllReduce(
        name="scatter-reduce",
        world_size=4,
        size_bytes=5_600_000,
        abilities=Abilities(in_flight=4),
        **LINK,
    )
    took = step_s([exchange], [1.0] * 4, **LINK)
    assert took == pytest.approx(1 + alone.virtual_s, rel=1e-3)
    another = step_s([exchange, replace(exchange, length=4)], [1.0] * 4, **LINK)
    assert another == pytest.approx(took + 4 * 0.02, rel=1e-3), "put, get, put and get once more"


def test_a_streamed_sum_takes_what_is_longer_than_the_steps_beside_it() -> None:
    whole = Exchange(length=1_400_000)
    sum_s = step_s([whole], [0.0] * 4, **LINK)

    def epoch_s(exchanges: list[Exchange], streaming: Streaming, compute_s: float) -> float:
        each = [compute_s] * 4
        return streamed_s(exchanges, streaming, each, k=4, rounds=3, **LINK)

    assert epoch_s([whole], Streaming(overlap=0), 1.0) == pytest.approx(3 * (4 + sum_s))
    half = replace(whole, length=whole.length // 2)
    half_s = step_s([half], [0.0] * 4, **LINK)
    hidden = epoch_s([half, half], Streaming(fragments=2), 1.0)
    assert hidden == pytest.approx(3 * 4 + half_s), "at the epoch's end the last one is waited for"
    late = epoch_s([whole], Streaming(overlap=3), 0.01)
    assert late == pytest.approx(4 * 0.01 + 2 * (sum_s + 0.01) + sum_s), "one step is beside none"


def test_a_worker_that_lags_waits_for_nobody() -> None:
    """The aggregator takes 3 parts and puts the sum; another computes longer, puts 1, takes 1."""
    exchange = Exchange(length=1_000_000)  # 0.4 s a way
    slow = [1.0, 3.0, 3.0, 3.0]
    waits = step_s([exchange], slow, aggregators=1, **LINK)
    lags = step_s([exchange], slow, aggregators=1, lag=True, **LINK)
    assert lags == pytest.approx(3.0 + 0.4 + 0.4 + 2 * 0.02, rel=1e-3)
    assert waits == pytest.approx(3.0 + 0.4 + 3 * 0.4 + 0.4 + 0.4 + 4 * 0.02, rel=1e-2)


def test_a_runs_bytes_tell_what_messages_were() -> None:
    """4 workers: of a contribution 3 shards up and 3 down; of sums one up and 3 down."""
    shard, part, total = 250, 2, 3
    up, down = 3 * shard * part + shard * total, 3 * shard * part + 3 * shard * total
    assert Exchange.measured(1000, 4, 7, 7 * 4 * up, 7 * 4 * down) == Exchange(
        length=1000, contribution=part, total=total
    )
    assert 4 * shard > HEADER_BYTES, "headers are in a run's bytes, and small beside shards"


def test_the_hybrid_protocol_stands_beside_scatter_reduce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the settings of each method; its curve is made up, and hap's is an epoch later."""
    runs = Runs(None, tmp_path, 4)

    def came(self: Method, _: Runs, seed: int) -> Trained:
        late = [2.0] if self.settings.get("sync") == "hap" else []
        made = _came([*late, 2.0, hybrid.TARGET, hybrid.TARGET][:3], 100 + seed)
        return replace(made, accuracies=[0.5, 0.9, 0.9])

    monkeypatch.setattr(Method, "train", came)
    rows = hybrid.measure(runs, [0, 1])
    by_name = {row["method"]: row for row in rows}
    assert set(by_name) == {
        "scatter-reduce",
        *(f"{how} K {k}" for how in ("k-reduce", "hap") for k in (1, 2)),
    }
    plain, lags = by_name["scatter-reduce"], by_name["hap K 1"]
    assert (plain["epoch"], lags["epoch"], plain["sooner_0"]) == (2, 3, 1.0)
    assert lags["steps_s"][0] < by_name["k-reduce K 1"]["steps_s"][0]
    faster = plain["steps_s"][0] / lags["steps_s"][0]
    assert lags["sooner_0"] == pytest.approx(faster * 2 / 3)
    page = io.StringIO()
    Console(file=page, width=80).print(hybrid.table(rows, 4))
    assert "…" not in page.getvalue(), "it fits into a terminal"
    of_three = [row["method"] for row in hybrid.measure(Runs(None, tmp_path, 3), [0])]
    assert of_three == ["scatter-reduce", "k-reduce K 1", "hap K 1"], "no row is there twice"


def _came(losses: list[float], bytes_up: int) -> Trained:
    return Trained(
        losses=losses,
        accuracies=[],
        train_losses=losses,
        steps=100,
        bytes_up=bytes_up,
        up_bytes=[bytes_up * n / len(losses) for n in range(1, len(losses) + 1)],
        bytes_down=2 * bytes_up,
        requests=1,
        train_s=1.0,
        step_s=0.01,
    )


def test_bytes_to_the_plateau_are_of_the_first_epoch_that_is_within_a_hundredth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(name="made up", make=lambda _: demo_job(), batch=lambda n: (torch.ones(n), None))
    plain = Method(name="plain", task=task)
    less = Method(name="less", task=task, settings={"k": 10})
    never = Method(name="never", task=task, settings={"k": 20})
    by_k = {
        1: _came([2.0, 1.005, 1.0, 1.0], 4000),
        10: _came([2.0, 2.0, 1.5, 1.01], 400),
        20: _came([2.0, 2.0, 2.0, 1.02], 200),
    }
    monkeypatch.setattr(Method, "train", lambda self, runs, seed: by_k[self.k])
    links = [Link(mb_per_s=1e-3, latency_ms=0.0)]
    rows = compare(Runs(None, tmp_path, 4), plain, [plain, less, never], [0], 100, 0.01, links)
    ours, sooner, late = rows
    assert (ours["epoch"], ours["fewer"], ours["sooner_0"]) == (2, 1.0, 1.0)
    assert (sooner["epoch"], sooner["fewer"]) == (4, (4000 * 2 / 4) / 400)
    assert sooner["more"] == pytest.approx(0.01)
    assert (late["reached"], "fewer" in late) == (0, False)
    page = io.StringIO()
    for one in tables(rows, "plain", links):
        Console(file=page, width=80).print(one)
    assert "0 of 1" in page.getvalue()
    assert "…" not in page.getvalue(), "it fits into a terminal"


@pytest.mark.long
def test_a_run_is_kept_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # benches beside have theirs elsewhere
    job = replace(demo_job(), epochs=2)
    task = Task(name="digits", make=lambda _: job, batch=lambda n: (torch.ones(n), None))
    keep = tmp_path / "kept.jsonl"
    first = Runs(keep, tmp_path, 2).train(task, 0, "", sync="local-sgd", k=20)
    assert (first.steps, len(first.losses)) == (52, 2)
    times = zip(first.computed_s, first.stepping_s, strict=True)
    assert all(0 < computed < stepping <= first.train_s for computed, stepping in times)
    assert 0 < first.up_bytes[0] < first.up_bytes[1] == first.bytes_up
    monkeypatch.setattr(Runs, "_train", lambda *_: pytest.fail("it is there"))
    assert Runs(keep, tmp_path, 2).train(task, 0, "", sync="local-sgd", k=20) == first
    assert scratch(tmp_path) == []


def test_computing_has_more_of_the_time_the_less_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual time; the shares of real runs are made up."""
    asked: list[dict[str, float]] = []

    def came(_: Method, __: Runs, seed: int, **capped: float) -> Trained:
        asked.append(capped)
        came = replace(_came([1.0], 1), computed_s=[1.0, 2.0], stepping_s=[4.0, 4.0 + seed])
        return replace(came, steps=120)

    monkeypatch.setattr(Method, "train", came)
    rows = utilisation.measure(Runs(None, tmp_path, 4), [0, 1])
    by_name = {row["method"]: row["virtual"] for row in rows}
    plain, average, outer, streamed, rounded = list(by_name.values())[:5]
    assert plain < average == outer < 0.65 < 0.95 < streamed < rounded < 1
    assert [name for name in by_name if "gpt" in name] == ["gpt bsp", "gpt k 15 F 2 T 10"]
    step_s = utilisation.STEP_S / plain
    assert rows[0]["virtual_step_s"] == step_s
    # A worker puts 3 of 4 shards, gets as many, puts its sum, and gets 3, one after another.
    moves_s = (3 + 3 + 1 + 3) / 4 * 4e-6 * utilisation.PARAMETERS / 10
    assert step_s == pytest.approx(utilisation.STEP_S + moves_s + 4 * 0.02, rel=0.01)
    assert (rows[0]["real"], rows[0]["real_min"], rows[0]["real_max"]) == (0.325, 0.25, 0.5)
    assert asked[0] == {"uplink_mb_per_s": 10.0, "downlink_mb_per_s": 10.0, "latency_ms": 20.0}
    page = io.StringIO()
    Console(file=page, width=80).print(utilisation.table(rows, 4))
    assert "…" not in page.getvalue(), "it fits into a terminal"


def test_what_cannot_be_meant_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--workers 2: give 3 or more"):
        protocols.run(["--workers", "2"])
    with pytest.raises(RequestError, match="--seeds 0: give 1 or more"):
        protocols.run(["--seeds", "0"])
    with pytest.raises(RequestError, match="--first-seed 100: give 0 to 99"):
        protocols.run(["--first-seed", "100"])
    with pytest.raises(RequestError, match="there is no such directory"):
        protocols.run(["--keep", str(tmp_path / "none" / "kept")])
    other = tmp_path / "other"
    other.write_text(f"{json.dumps({'of': 1})}\n")
    with pytest.raises(RequestError, match="line 1 is no run of this bench"):
        protocols.run(["--keep", str(other)])
