"""Run directories made up of records as a run writes them: any number of workers and steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dayfly.dataclass_json import read
from dayfly.runs.report import spans
from dayfly.runs.report.spans import StepWork
from dayfly.runs.report.timeline import Timeline
from dayfly.runs.report.timeline import timeline as made_of_records
from dayfly.runs.settings import Settings
from dayfly.specs.events import Event, StepTold, Told, event_of, told_of

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
    return {**record, "began": began, "spans": spans or {}}


def traffic(at: float, up: int, down: int, requests: int, attempt: int = 0) -> Json:
    return {
        "at": at,
        "kind": "traffic",
        "bytes_up": up,
        "bytes_down": down,
        "requests": requests,
        "puts": 0,
        "gets": 0,
        "generation": 0,
        "attempt": attempt,
    }


def epoch(at: float, **record: Any) -> Json:
    return {"at": at, "kind": "epoch", "record": record, "spans": {}, "generation": 0, "attempt": 0}


#: What tests leave out of records, by kind.
_USUAL: Json = {
    "invoked": {"attempt": 0},
    "ended": {"death": False},
    "checkpoint": {"step": 0},
    "rolled back": {"from_step": 0, "to_step": 0, "redone_steps": 0, "cause": ""},
    "step": {"step": 0, "loss": None, "computed": True, "step_s": 1.0, "spans": {}},
    "round": {"step": 0, "computed": True, "round_s": 1.0, "spans": {}},
    "epoch": {"record": {"epoch": 0}, "spans": {}},
    "part": {"seconds": 0.0},
    "traffic": dict.fromkeys(("bytes_up", "bytes_down", "requests"), 0),
}
_USED = {"attempt": 0, "memory_mib": None, "init_s": 0.0, "run_s": 1.0, "outcome": "returned"}


def events(trees: Iterable[Json]) -> list[Event]:
    """The coordinator's records."""
    return [event_of(_whole(tree), "a record") for tree in trees]


def told(trees: Iterable[Json]) -> list[Told]:
    """A worker's records."""
    return [told_of(_whole(tree), "a record") for tree in trees]


def step_told(tree: Json) -> StepTold:
    """A worker's record of a step."""
    (found,) = told([tree])
    assert isinstance(found, StepTold)
    return found


def timeline(coordinator: Iterable[Json], workers: Mapping[int, Any], *, running: bool) -> Timeline:
    """Of records as a file has them."""
    by_rank = {rank: told(trees) for rank, trees in workers.items()}
    return made_of_records(events(coordinator), by_rank, running=running)


def works(workers: Mapping[int, Iterable[Json]]) -> list[StepWork]:
    """Of records as a file has them."""
    return spans.works({rank: told(trees) for rank, trees in workers.items()})


def settings_of(tree: Json) -> Settings:
    """As run.json has them; a pipeline's workers follow from its cut."""
    return read(Settings, {"workers": 1, **tree}, "settings")


def _whole(tree: Json) -> Json:
    whole = {"at": 0.0, **_USUAL.get(tree["kind"], {}), **tree}
    if tree["kind"] == "ended":
        whole["used"] = _USED | tree["used"]
    if tree["kind"] == "round":
        whole.setdefault("losses", [None] * whole.setdefault("steps", 1))
        whole["steps"] = len(whole["losses"])
    return whole


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
    whole = {"format": 3, "run_id": "made-up", "status": "done", "settings": {"workers": 2}}
    whole |= record or {}
    if whole.get("result") is not None:
        whole["result"] = {"run_id": whole["run_id"], "status": whole["status"], **whole["result"]}
    (directory / "run.json").write_text(json.dumps(whole))
    for name, tree in (("history", history), ("bill", bill)):
        if tree is not None:
            (directory / f"{name}.json").write_text(json.dumps(tree))
    files = {"coordinator": coordinator} | {f"worker-{rank}": r for rank, r in workers.items()}
    for name, records in files.items():
        lines = "".join(json.dumps(_whole(one)) + "\n" for one in records)
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
