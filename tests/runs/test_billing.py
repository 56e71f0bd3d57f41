"""A run's bill, from its directory, under its own price list and under any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.catalogue.metering import StoreTraffic
from dayfly.life.faults import Fault
from dayfly.runs.events import Events
from dayfly.runs.report.reading import rebill
from dayfly.wire.keys import COORDINATOR
from tests.runs import coordinator, small
from tests.runs.test_resume import resume

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]


def plain(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def test_the_runs_own_list_gives_the_bill_that_it_ended_with(undisturbed: Undisturbed) -> None:
    run = undisturbed(2)
    again = plain(rebill(run.directory).dump())
    assert again == run.bill
    assert again["price_list"] == run.result.price_list == "aws-lambda"
    assert again["cost_usd"] == run.result.cost_usd


def test_what_the_coordinator_would_have_cost_is_no_part_of_the_sum(
    undisturbed: Undisturbed,
) -> None:
    run = undisturbed(2)
    (life,) = Events.read(run.directory / "events").coordinator_used
    assert 0 < life.run_s <= run.result.wall_s + 1
    assert life.memory_mib is not None
    price = 1.66667e-5 * life.memory_mib / 1024
    assert run.bill["coordinator_usd"] == pytest.approx(life.run_s * price, rel=0.01)
    assert sum(run.bill["by_kind"].values()) == pytest.approx(run.bill["cost_usd"])


def test_rows_by_function_have_the_runs_traffic(undisturbed: Undisturbed) -> None:
    run = undisturbed(2)
    rows = run.bill["functions"]
    assert [row["function"] for row in rows] == ["worker-0", "worker-1"]
    for key in ("bytes_up", "bytes_down", "requests"):
        assert sum(row[key] for row in rows) == getattr(run.result, key)
    for row in rows:
        assert row["puts"] >= 2 * small.STEPS, "a part and a sum in each step"
        assert row["gets"] >= 2 * small.STEPS
        assert row["puts"] + row["gets"] <= row["requests"]
        assert 0 < row["init_ms"] < row["billed_ms"]
    assert run.bill["by_kind"]["initialisation"] > 0


@pytest.mark.parametrize("prices", ["cloud-run", "fargate", "alibaba-fc", "vm-p3-2xlarge"])
def test_any_other_list_afterwards(prices: str, undisturbed: Undisturbed) -> None:
    run = undisturbed(2)
    found = rebill(run.directory, prices, "s3")
    assert (found.price_list, found.store) == (prices, "s3")
    assert found.cost_usd != run.bill["cost_usd"]
    rows = run.bill["functions"]
    puts = sum(row["puts"] for row in rows)
    others = sum(row["requests"] for row in rows) - puts
    assert found.by_kind["store_requests"] == pytest.approx(puts * 5e-6 + others * 4e-7)
    assert json.loads((run.directory / "bill.json").read_text()) == run.bill, "as it was"


def test_the_store_held_something_at_its_checkpoints(undisturbed: Undisturbed) -> None:
    run = undisturbed(2)
    held = [e["stored_bytes"] for e in small.events(run.directory, "coordinator")
            if e["kind"] == "checkpoint"]  # fmt: skip
    assert Events.read(run.directory / "events").stored_bytes == max(held) > 0


def test_functions_without_a_limit_are_billed_as_the_list_sizes_them(
    undisturbed: Undisturbed,
) -> None:
    directory = undisturbed(2).directory
    sizes = {
        name: {row["memory_mib"] for row in rebill(directory, name).invocations}
        for name in ("aws-lambda", "cloud-run", "vm-m5-large")
    }
    assert sizes == {"aws-lambda": {1769}, "cloud-run": {4096}, "vm-m5-large": {8192}}


def test_the_users_own_catalogue_is_named_in_the_bill(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    row = '[usd_per_request]\nvalue = 1\nsource = "a bet"\nas_of = "2026-11"\n'
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms" / "aws-lambda.toml").write_text(row)
    found = rebill(undisturbed(2).directory, own=tmp_path)
    assert found.overridden == ("aws-lambda: usd_per_request",)
    assert found.requests_usd == 2


def test_a_run_is_billed_by_the_catalogue_that_it_was_given(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = '[usd_per_request]\nvalue = 1\nsource = "a bet"\nas_of = "2026-11"\n'
    (tmp_path / "own" / "platforms").mkdir(parents=True)
    (tmp_path / "own" / "platforms" / "aws-lambda.toml").write_text(row)
    monkeypatch.chdir(tmp_path)
    job = small.job(data, epochs=1)
    run = dayfly.train(job, run_dir=tmp_path / "run", catalogue="own", **small.SETTINGS)
    assert run.bill["overridden"] == ["aws-lambda: usd_per_request"]
    assert run.result.cost_usd > 1
    monkeypatch.chdir("/")
    assert plain(rebill(run.directory).dump()) == run.bill
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(dayfly.RequestError, match="is no directory: name one of your own"):
        rebill(run.directory)


def test_what_cannot_be_billed_is_refused(undisturbed: Undisturbed, tmp_path: Path) -> None:
    directory = undisturbed(2).directory
    with pytest.raises(dayfly.RequestError, match="no platform 'monopoly'"):
        rebill(directory, "monopoly")
    with pytest.raises(dayfly.RequestError, match="no store 'shelf'"):
        rebill(directory, "aws-lambda", "shelf")
    with pytest.raises(dayfly.RequestError, match=r"holds no run: it has no run\.json"):
        rebill(tmp_path)


def test_a_run_whose_coordinator_was_killed_is_billed(data: Path, tmp_path: Path) -> None:
    """Before it goes on, and after: the killed invocations are in the bill then, too."""
    directory = tmp_path / "run"
    fault = Fault(COORDINATOR, 13, "step")
    coordinator.killed(data=data, run_dir=directory, workers=2, log_budget_mib=1, faults=[fault])
    before = rebill(directory)
    assert [row["outcome"] for row in before.invocations] == ["coordinator killed"] * 2
    assert 0 < before.billed_s < 100
    assert before.functions[0]["puts"] > 0

    result = resume(directory)
    after = rebill(directory)
    outcomes = sorted(row["outcome"] for row in after.invocations)
    assert outcomes == ["coordinator killed"] * 2 + ["returned"] * 2
    assert after.billed_s == pytest.approx(result["billed_s"])
    assert after.cost_usd == pytest.approx(result["cost_usd"])
    assert sum(row["requests"] for row in after.functions) == result["requests"]
    killed = [row["billed_ms"] for row in after.invocations if row["outcome"] != "returned"]
    assert sorted(killed) == sorted(row["billed_ms"] for row in before.invocations)


def write(directory: Path, name: str, *lines: dict[str, Any]) -> None:
    directory.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / f"{name}.jsonl").write_text(text)


def invoked(at: float, function: str, attempt: int) -> dict[str, Any]:
    record = {"at": at, "kind": "invoked", "function": function, "attempt": attempt}
    return {**record, "memory_mib": 1024}


def test_invocations_that_nobody_saw_end(tmp_path: Path) -> None:
    """Three lives, of which two were killed; each is billed until the last that was heard of it."""
    ended = {
        "function": "worker-0",
        "attempt": 0,
        "memory_mib": 512,
        "init_s": 0.5,
        "run_s": 2.0,
        "outcome": "returned",
    }
    write(
        tmp_path,
        "coordinator",
        invoked(10, "worker-0", 0),
        invoked(100, "worker-0", 0),
        invoked(100, "worker-1", 0),
        invoked(200, "worker-0", 0),
        {"at": 203, "kind": "ended", "death": False, "used": ended},
    )
    write(tmp_path, "worker-0", *({"at": at, "kind": "alive"} for at in (11, 14, 101, 130, 201)))
    found = Events.read(tmp_path).used
    assert [(one.function, one.run_s, one.outcome) for one in found] == [
        ("worker-0", 4, "coordinator killed"),
        ("worker-0", 30, "coordinator killed"),
        ("worker-0", 2.0, "returned"),
        ("worker-1", 0, "coordinator killed"),
    ]
    assert [one.memory_mib for one in found] == [1024, 1024, 512, 1024]


def test_traffic_counts_from_the_start_of_each_attempt(tmp_path: Path) -> None:
    def record(generation: int, attempt: int, **counters: int) -> dict[str, Any]:
        life = {"generation": generation, "attempt": attempt}
        return {"at": 0, "kind": "traffic", **counters, **life}

    write(
        tmp_path,
        "worker-3",
        record(0, 0, puts=1, gets=1, requests=3, bytes_up=10, bytes_down=20),
        {"at": 1, "kind": "alive"},
        record(0, 0, puts=2, gets=3, requests=6, bytes_up=15, bytes_down=25),
        record(0, 1, puts=1, gets=0, requests=1, bytes_up=1, bytes_down=0),
        record(1, 0, puts=4, gets=4, requests=8, bytes_up=2, bytes_down=2),
    )
    assert Events.read(tmp_path).moved == {
        "worker-3": StoreTraffic(puts=7, gets=7, requests=15, bytes_up=18, bytes_down=27)
    }


def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "coordinator", invoked(10, "worker-0", 0))
    with (tmp_path / "coordinator.jsonl").open("a") as file:
        file.write('{"at": 11, "ki')
    assert len(Events.read(tmp_path).used) == 1


def test_a_run_without_events_costs_nothing(tmp_path: Path) -> None:
    assert Events.read(tmp_path / "none").used == []
    assert Events.read(tmp_path / "none").moved == {}
    assert Events.read(tmp_path / "none").stored_bytes == 0


def test_when_the_last_was_heard(tmp_path: Path) -> None:
    assert Events.read(tmp_path).heard_at is None
    write(tmp_path, "coordinator", invoked(10, "worker-0", 0))
    write(tmp_path, "worker-0", {"at": 17, "kind": "alive"}, {"at": 12, "kind": "x"})
    with (tmp_path / "worker-0.jsonl").open("a") as file:
        file.write('{"at": 19, "kind": "step", "text": "')  # cut short by a kill
    assert Events.read(tmp_path).heard_at == 17
