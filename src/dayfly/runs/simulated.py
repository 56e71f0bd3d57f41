"""A plan simulated: the directory of a run that never was, for `dayfly report` as any other.

run.json                    kind "simulation", scenario, results
events/coordinator.jsonl    functions invoked and ended, checkpoints, rollbacks
events/worker-0.jsonl       what rank 0 would have told; of many workers, of some of them
events/others.jsonl         what the others moved
history.json, bill.json     as of any run

The same plan, scenario and seed make the same bytes: nothing here looks at a clock.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from dayfly import pace
from dayfly.batches import Batches
from dayfly.catalogue.metering import Bill, Moved, Used, bill
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.life import deaths
from dayfly.plan.configuration import Configuration
from dayfly.plan.plan import Plan
from dayfly.plan.scenario import Scenario
from dayfly.plan.simulation.build import course
from dayfly.plan.simulation.chance import Chance
from dayfly.plan.simulation.fleet import DEATHS, Attempt, End, Policy
from dayfly.plan.simulation.outcome import Record, Simulated
from dayfly.plan.simulation.simulate import simulate
from dayfly.runs.billing import catalogue, price_list
from dayfly.runs.directory import RECORD, fresh_directory
from dayfly.runs.events import OTHERS
from dayfly.runs.log_budget import replays
from dayfly.runs.planning import Wanted, configuration, settings_of
from dayfly.runs.record import FORMAT, SIMULATION, read_record
from dayfly.runs.result import Result, write_json
from dayfly.runs.settings import Settings
from dayfly.wire.store import FileStore

#: Workers of which a page shows every step, at most, and however many steps there are; and steps
#: of all of them together, at most.
MOST_SHOWN = 48
_LEAST_SHOWN = 8
_MOST_STEPS = 200_000
#: When simulated runs begin, in Unix seconds: 2000-01-01 00:00:00 UTC, which the page does not say.
ORIGIN_S = 946_684_800.0
#: As life has it.
POLICY = Policy(
    spare_s=pace.SPARE_S,
    late_share=pace.LATE_SHARE,
    late_times=pace.LATE_TIMES,
    most_share=pace.MOST_SHARE,
    deaths_without_a_step=deaths.DEATHS_WITHOUT_A_STEP,
    deaths_of_one_cause=deaths.DEATHS_OF_ONE_CAUSE,
)
_OUTCOMES = {
    End.DONE: "returned",
    End.HANDED_OVER: "returned",
    End.KILLED: "killed",
    End.LIFETIME: "lifetime",
    End.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be simulated. name: part of the run's id. store: of the catalogue, by name, whose
    cap and prices count; None: the profile's, if its channel names one."""

    plan: Plan
    settings: Settings
    wanted: Wanted
    scenario: Scenario
    name: str
    store: str | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        place: str,
        scenario: Scenario,
        name: str,
        *,
        changes: Mapping[str, Any],
        of_the_job: Mapping[str, int],
        store: str | None = None,
    ) -> Request:
        """Of a plan, with changes of its settings and of what it says of its job.

        Raises RequestError for what cannot be.
        """
        for name, value in of_the_job.items():
            if value < 1:
                flag = f"--{name.replace('_', '-')}"
                raise RequestError(f"{flag} {value}: give a number from 1")
        settings = settings_of(plan, place, **changes)
        wanted = replace(Wanted.by(plan), **of_the_job)
        return cls(
            plan=plan,
            settings=settings,
            wanted=wanted,
            scenario=scenario,
            name=name,
            store=store,
        )

    @property
    def configuration(self) -> Configuration:
        """Of what is simulated."""
        return configuration(self.settings, self.wanted)

    def facts(self) -> StoreFacts | None:
        """Of the store. Raises RequestError if the catalogue does not have it."""
        known = catalogue(self.settings)
        named = self.plan.profile.channel.partition("://")[0]
        name = self.store or (named if named in known.stores() else None)
        return known.store(name) if name is not None else None

    @property
    def run_id(self) -> str:
        """A function of all that is asked for."""
        whole = {
            "plan": self.plan.dump(),
            "settings": asdict(self.settings),
            "wanted": asdict(self.wanted),
            "scenario": asdict(self.scenario),
            "store": self.store,
        }
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        word = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return f"{word[:24].strip('-') or 'plan'}-simulated-{digest[:10]}"


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What came of it. directory: its files. result: as of a run, its status "simulated"."""

    directory: Path
    request: Request
    result: Result
    outcome: Simulated
    bill: Bill

    @property
    def more(self) -> dict[str, Any]:
        """What a simulation says beside a run's results."""
        return {
            "seed": self.request.scenario.seed,
            "scenario": self.request.scenario.words(),
            "hand_overs": self.outcome.hand_overs,
            "redone_steps": self.outcome.redone_steps,
            "rollbacks": self.outcome.rollbacks,
            "checkpoints": self.outcome.checkpoints,
            "worst_worker": self.outcome.worst.get("rank"),
            "by_kind": dict(self.bill.by_kind),
        }


def simulated_run(request: Request, directory: Path | None = None) -> SimulatedRun:
    """Simulate a run and write its directory.

    directory: default `runs/<run id>`; one that holds this very simulation is written anew. Raises
    RequestError for what cannot be simulated, and for a directory with something else in it.
    """
    asked, scenario = request.configuration, request.scenario
    shown = watched(asked, scenario, request.plan.profile.samples)
    facts = request.facts()
    planned = course(
        request.plan.profile,
        asked,
        scenario,
        replays=replays(request.settings, request.settings.channel or "file:///"),
        store_bytes_per_s=None if facts is None else facts.bytes_per_s,
    )
    outcome = simulate(planned, scenario, POLICY, shown)
    billed = _bill(request, asked, outcome)
    result = _result(request, outcome, billed)
    place = (directory or Path("runs") / request.run_id).absolute()
    _clear(place, request.run_id)
    with fresh_directory(place) if not place.exists() or any(place.iterdir()) else nullcontext():
        place.mkdir(parents=True, exist_ok=True)
        _write(place, request, asked, outcome, result, billed, shown)
    return SimulatedRun(place, request, result, outcome, billed)


def watched(asked: Configuration, scenario: Scenario, samples: int) -> tuple[int, ...]:
    """The workers whose steps are told: all, or of many evenly chosen ones, some of those that are
    slow, and those that die first. samples: of the data; of a run of many steps, fewer are told."""
    steps = Batches(samples, asked.batch_size).steps * asked.epochs
    most = max(_LEAST_SHOWN, min(MOST_SHOWN, _MOST_STEPS // steps))
    if asked.workers <= most:
        return tuple(range(asked.workers))
    chance = Chance(scenario, asked.workers)
    chosen = dict.fromkeys(int(rank) for rank in chance.stragglers[: most // 8])
    if scenario.deaths_per_hour:
        everybody = chance.everybody
        lives = chance.life_s(everybody, everybody * 0)
        chosen |= dict.fromkeys(int(rank) for rank in lives.argsort(kind="stable")[: most // 4])
    left = most - len(chosen)
    evenly = (number * asked.workers // left for number in range(left))
    for rank in (*evenly, *range(asked.workers)):
        if len(chosen) < most:
            chosen.setdefault(rank)
    return tuple(sorted(chosen))


def _bill(request: Request, asked: Configuration, outcome: Simulated) -> Bill:
    used = [_used(one, _memory(asked, one.rank), request.settings) for one in outcome.attempts]
    settings = request.settings
    facts = request.facts()
    priced = facts if facts is not None and facts.usd_per_put is not None else None
    moved = {f"worker-{rank}": _moved(row) for rank, row in enumerate(outcome.moved.tolist())}
    return bill(used, catalogue(settings).platform(price_list(settings)), priced, moved)


def _memory(asked: Configuration, rank: int) -> int | None:
    sizes = asked.memory_mib
    return sizes[rank // asked.replicas] if len(sizes) > 1 else sizes[0]


def _used(one: Attempt, memory_mib: int | None, settings: Settings) -> Used:
    return Used(
        function=f"worker-{one.rank}",
        attempt=one.number,
        memory_mib=memory_mib,
        init_s=one.init_s,
        run_s=one.run_s,
        outcome=_OUTCOMES[one.end],
        gpu_share=settings.gpu_share,
    )


def _moved(row: Sequence[int]) -> Moved:
    puts, gets, up, down = row
    return Moved(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)


def _result(request: Request, outcome: Simulated, billed: Bill) -> Result:
    totals = _moved(outcome.moved.sum(axis=0).tolist())
    predicted = request.plan.prediction
    return Result(
        run_id=request.run_id,
        status="simulated" if outcome.status == "done" else outcome.status,
        error=outcome.error,
        epochs=len(outcome.epochs),
        steps=outcome.steps,
        workers=request.settings.workers,
        restarts=outcome.deaths,
        wall_s=outcome.run_s,
        step_s=median(outcome.step_s) if outcome.step_s else None,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        price_list=billed.price_list,
        bytes_up=totals.bytes_up,
        bytes_down=totals.bytes_down,
        requests=totals.requests,
        predicted_step_s=None if predicted is None else predicted.step_s,
        predicted_cost_usd=None if predicted is None else predicted.cost_usd,
    )


def _clear(place: Path, run_id: str) -> None:
    """Make room where this very simulation was written before."""
    if (place / RECORD).is_file():
        try:
            record = read_record(place)
        except RequestError:
            return
        if record.get("kind") == SIMULATION and record.get("run_id") == run_id:
            shutil.rmtree(place)


def _write(
    place: Path,
    request: Request,
    asked: Configuration,
    outcome: Simulated,
    result: Result,
    billed: Bill,
    shown: Sequence[int],
) -> None:
    """All files; `run.json` last, as it makes the directory a run's."""
    store = FileStore(place)
    told = place / "events"
    told.mkdir()
    _lines(told / "coordinator.jsonl", _coordinator(request, asked, outcome))
    rows, run_s = outcome.moved.tolist(), outcome.run_s
    last = {one.rank: one.number for one in outcome.attempts}
    for rank in shown:
        traffic = {
            "at": run_s,
            "kind": "traffic",
            **asdict(_moved(rows[rank])),
            "generation": outcome.generation,
            "attempt": last.get(rank, 0),
        }
        records = sorted(outcome.story.workers[rank], key=lambda record: record["at"])
        _lines(told / f"worker-{rank}.jsonl", [*records, traffic])
    others = sorted(set(range(asked.workers)) - set(shown))
    if others:
        _lines(
            told / OTHERS,
            (
                {
                    "at": run_s,
                    "kind": "traffic",
                    "function": f"worker-{rank}",
                    **asdict(_moved(rows[rank])),
                }
                for rank in others
            ),
        )
    write_json(store, "bill.json", billed.dump())
    history = {
        "epochs": [{"epoch": epoch, "ended_s": round(at_s, 6)} for epoch, at_s in outcome.epochs],
        "step_loss": [],
        "redone_steps": outcome.redone_steps,
        "rollbacks": outcome.rollbacks,
    }
    write_json(store, "history.json", history)
    record = {
        "format": FORMAT,
        "kind": SIMULATION,
        "run_id": request.run_id,
        "settings": asdict(request.settings),
        "generation": outcome.generation,
        "rollbacks": outcome.rollbacks,
        "status": result.status,
        "error": result.error,
        "began_at": ORIGIN_S,
        "wall_s": result.wall_s,
        "samples": request.plan.profile.samples,
        "job": asdict(request.wanted),
        "scenario": asdict(request.scenario),
        "scenario_words": request.scenario.words(),
        "store": billed.store,
        "shown": None if len(shown) == asked.workers else list(shown),
        "deaths": outcome.deaths,
        "hand_overs": outcome.hand_overs,
        "worst": dict(outcome.worst),
        "result": asdict(result),
    }
    write_json(store, RECORD, record)


def _coordinator(request: Request, asked: Configuration, outcome: Simulated) -> list[Record]:
    """Functions invoked and ended, and what else the coordinator notes, in order of time."""
    rows: list[tuple[float, int, Record]] = []
    for one in outcome.attempts:
        memory_mib = _memory(asked, one.rank)
        gpu_share = request.settings.gpu_share
        invoked = {
            "at": one.invoked_s,
            "kind": "invoked",
            "function": f"worker-{one.rank}",
            "attempt": one.number,
            "memory_mib": memory_mib,
            "gpu_share": gpu_share,
        }
        status = {End.DONE: "done", End.HANDED_OVER: "handed over"}.get(one.end)
        ended = {
            "at": one.end_s,
            "kind": "ended",
            "death": one.end in DEATHS,
            "error": None,
            "result": None if status is None else {"status": status, "step": one.step},
            "peak_mib": None,
            "used": asdict(_used(one, memory_mib, request.settings)),
        }
        rows += [(one.invoked_s, 2, invoked), (one.end_s, 0, ended)]
    rows += [(record["at"], 1, record) for record in outcome.story.coordinator]
    return [record for _, _, record in sorted(rows, key=lambda row: row[:2])]


def _lines(file: Path, records: Iterable[Record]) -> None:
    with file.open("w") as lines:
        for record in records:
            at = round(ORIGIN_S + record["at"], 6)
            moved = {"at": at}
            if "began" in record:
                moved["began"] = round(ORIGIN_S + record["began"], 6)
            lines.write(json.dumps({**record, **moved}) + "\n")
