"""Run directories made up of records as a run writes them: any number of workers and steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BEGAN = 1_000_000.0


def invoked(at: float, rank: int, attempt: int = 0) -> Json:
    return {"at": at, "kind": "invoked", "function": f"worker-{rank}", "attempt": attempt}


def ended(
    at: float,
    rank: int,
    attempt: int = 0,
    *,
    init_s: float,
    run_s: float,
    status: str | None = None,
    error: str | None = None,
) -> Json:
    """status None: it died."""
    return {
        "at": at,
        "kind": "ended",
        "death": status is None,
        "error": error,
        "result": None if status is None else {"status": status, "step": 0},
        "peak_mib": None,
        "used": {
            "function": f"worker-{rank}",
            "attempt": attempt,
            "memory_mib": 1769,
            "init_s": init_s,
            "run_s": run_s,
            "outcome": "killed" if status is None else "returned",
        },
    }


def step(
    began: float,
    number: int,
    seconds: float,
    spans: Mapping[str, list[list[float]]] | None = None,
    *,
    attempt: int = 0,
    computed: bool = True,
    loss: float | None = 0.5,
) -> Json:
    record: Json = {
        "at": began + seconds,
        "kind": "step",
        "step": number,
        "loss": loss,
        "computed": computed,
        "step_s": seconds,
        "generation": 0,
        "attempt": attempt,
    }
    if spans is None:
        return {**record, "compute_s": seconds / 2, "wire_s": seconds / 4}
    return {**record, "began": began, "spans": spans}


def traffic(at: float, up: int, down: int, requests: int, attempt: int = 0) -> Json:
    return {
        "at": at,
        "kind": "traffic",
        "bytes_up": up,
        "bytes_down": down,
        "requests": requests,
        "generation": 0,
        "attempt": attempt,
    }


def epoch(at: float, **record: Any) -> Json:
    return {"at": at, "kind": "epoch", "record": record, "generation": 0, "attempt": 0}


def write(
    directory: Path,
    coordinator: Iterable[Json],
    workers: Mapping[int, Iterable[Json]],
    *,
    record: Json | None = None,
    history: Json | None = None,
    bill: Json | None = None,
) -> Path:
    """A run's directory with these events."""
    (directory / "events").mkdir(parents=True)
    whole = {"format": 1, "run_id": "made-up", "status": "done", "settings": {"workers": 2}}
    (directory / "run.json").write_text(json.dumps(whole | (record or {})))
    for name, tree in (("history", history), ("bill", bill)):
        if tree is not None:
            (directory / f"{name}.json").write_text(json.dumps(tree))
    files = {"coordinator": coordinator} | {f"worker-{rank}": r for rank, r in workers.items()}
    for name, records in files.items():
        lines = "".join(json.dumps(one) + "\n" for one in records)
        (directory / "events" / f"{name}.jsonl").write_text(lines)
    return directory


def regular(workers: int, steps: int, *, deaths: bool = True) -> tuple[list[Json], dict[int, Any]]:
    """Events of steps of 100 ms: 60 computed, then uploads and downloads; worker 1 dies once.

    Worker 1 dies after half of the steps, and its successor computes the others.
    """
    coordinator, records = [], {}
    for rank in range(workers):
        coordinator.append(invoked(BEGAN + rank / 100, rank))
        spans = {
            "compute": [[0.0, 60.0 - rank % 7]],
            "upload": [[60.0, 70.0]],
            "wait": [[60.0, 75.0], [80.0, 85.0 + rank % 5]],
            "download": [[75.0, 80.0]],
            "apply": [[90.0, 95.0]],
        }
        half = steps // 2 if deaths and rank == 1 else steps
        first = BEGAN + 1
        records[rank] = [step(first + n / 10, n, 0.1, spans) for n in range(half)]
        if half < steps:
            died = first + half / 10
            coordinator += [
                ended(died, 1, init_s=0.2, run_s=died - BEGAN - 0.21, error="ValueError: no"),
                invoked(died, 1, 1),
            ]
            records[1] += [
                step(first + n / 10 + 1, n, 0.1, spans, attempt=1) for n in range(half, steps)
            ]
        last = (1, 1) if half < steps else (rank, 0)
        end = records[rank][-1]["at"]
        began = died if half < steps else BEGAN + rank / 100
        coordinator.append(
            ended(end + 0.1, *last, init_s=0.5, run_s=end - began - 0.4, status="done")
        )
        records[rank].append(traffic(end, 10**6 * (rank + 1), 2 * 10**6, 100))
    coordinator.append({"at": BEGAN + steps / 20, "kind": "checkpoint", "step": steps // 2})
    return sorted(coordinator, key=lambda event: event["at"]), records


def script(directory: Path) -> Path:
    """A script's run on two workers that lived four times: a death, a lifetime, --resume, done."""

    def live(began: float, life: int, outcomes: tuple[str, str]) -> list[Json]:
        calls = [invoked(BEGAN + began, rank, life) for rank in (0, 1)]
        ends = []
        for rank, outcome in enumerate(outcomes):
            one = ended(BEGAN + began + 4, rank, life, init_s=0.5, run_s=3.0, status="done")
            dead = outcome == "raised"
            result = {"status": "done"} if outcome == "returned" else None
            one |= {"death": dead, "result": result, "error": "ValueError: no" if dead else None}
            ends.append({**one, "used": {**one["used"], "outcome": outcome}})
        return calls + ends

    def again(began: float, cause: str, *, died: bool) -> Json:
        return {"at": BEGAN + began, "kind": "started again", "cause": cause, "died": died}

    coordinator = [
        *live(0, 0, ("cancelled", "raised")),
        again(4, "worker 1 raised ValueError: no", died=True),
        *live(4, 1, ("lifetime", "cancelled")),
        again(8, "worker 0 came to the end of its lifetime", died=False),
        *live(8, 2, ("cancelled", "cancelled")),
        *live(12, 3, ("returned", "returned")),
    ]
    told = [traffic(BEGAN + 4 * n + 1, 10**6, 2 * 10**6, 10, n) for n in range(4)]
    start = {"kind": "start", "step": 0, "seconds": 0.001, "generation": 0, "attempt": 0}
    records = [{**start, "at": BEGAN + 4 * n + 0.6, "attempt": n} for n in range(4)]
    record = {
        "kind": "script",
        "script": {"file": "/there/train.py", "module": None, "digest": "00"},
        "args": ["--epochs", "3"],
        "cwd": "/there",
        "generation": 3,
        "deaths": 1,
    }
    workers = dict.fromkeys((0, 1), told + records)
    bill = {
        "cost_usd": 0.003,
        "price_list": "aws-lambda",
        "store": None,
        "functions": [
            {"function": f"worker-{n}", "store_requests_usd": 0.0, "cost_usd": 0.0015}
            for n in (0, 1)
        ],
    }
    history: Json = {"epochs": [], "step_loss": []}
    return write(directory, coordinator, workers, record=record, history=history, bill=bill)
