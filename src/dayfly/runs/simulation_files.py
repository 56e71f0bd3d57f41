"""What is simulated of a plan, and the files of the simulated run (see `runs.simulation`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dayfly.catalogue.metering import Bill, MeteredInvocation, StoreTraffic
from dayfly.catalogue.store import StoreFacts
from dayfly.dataclass_json import read
from dayfly.errors import RequestError
from dayfly.planning.choose.front import counted
from dayfly.planning.configuration import Configuration, stage_memory_mib
from dayfly.planning.plan import Plan
from dayfly.planning.simulation.fleet import DEATHS, Attempt, End
from dayfly.planning.simulation.outcome import Record, Simulated
from dayfly.planning.simulation.scenario import Scenario
from dayfly.runs.events import OTHERS, worker_files
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.functions import catalogue
from dayfly.runs.plans import JobSpec, configuration, settings_of
from dayfly.runs.record_kinds import SimulationRecord, Slowest
from dayfly.runs.result import Result, write_json
from dayfly.runs.settings import Settings
from dayfly.wire.stores.files import FileStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What is to be simulated.

    Attributes:
        name: part of the run's id.
        store: of the catalogue, by name, whose cap and prices count; None: the profile's, if its
            channel names one.
    """

    plan: Plan
    settings: Settings
    wanted: JobSpec
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
        of_the_job: Mapping[str, Any],
        store: str | None = None,
    ) -> SimulationRequest:
        """Of a plan, with changes of its settings and of what it says of its job.

        Raises RequestError for what cannot be.
        """
        for asked, value in of_the_job.items():
            if value < 1:
                flag = f"--{asked.replace('_', '-')}"
                raise RequestError(f"{flag} {value}: give a number from 1")
        settings = settings_of(plan, place, **changes)
        if scenario.stragglers > settings.workers:
            workers = counted(settings.workers, "worker")
            raise RequestError(f"--stragglers {scenario.stragglers} of {workers}: give fewer")
        wanted = replace(JobSpec.by(plan), **of_the_job)
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
        """Returns what the catalogue has of the store; None: it has nothing of such a channel.

        Raises:
            RequestError: the catalogue has no store of that name.
        """
        known = catalogue(self.settings)
        named = self.plan.profile.channel.partition("://")[0]
        name = self.store or (named if known.has_store(named) else None)
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


#: When simulated runs begin, in Unix seconds: 2000-01-01 00:00:00 UTC, which the page does not say.
ORIGIN_S = 946_684_800.0
_OUTCOMES = {
    End.DONE: "returned",
    End.HANDED_OVER: "returned",
    End.KILLED: "killed",
    End.LIFETIME: "lifetime",
    End.CANCELLED: "cancelled",
}


def memory_of(asked: Configuration, rank: int) -> int | None:
    """Of a worker's functions, in MiB."""
    return stage_memory_mib(asked, asked.kind_of(rank))


def used_by(one: Attempt, memory_mib: int | None, settings: Settings) -> MeteredInvocation:
    """What an invocation used, as it would have been metered."""
    return MeteredInvocation(
        function=f"worker-{one.rank}",
        attempt=one.number,
        memory_mib=memory_mib,
        init_s=one.init_s,
        run_s=one.run_s,
        outcome=_OUTCOMES[one.end],
        gpu_share=settings.gpu_share,
        vcpus=vcpus_sold(settings),
    )


def moved_by(row: Sequence[int]) -> StoreTraffic:
    """From puts, gets, bytes up and bytes down."""
    puts, gets, up, down = row
    return StoreTraffic(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)


def write_files(
    place: Path,
    request: SimulationRequest,
    asked: Configuration,
    outcome: Simulated,
    result: Result,
    billed: Bill,
    moved: Sequence[StoreTraffic],
    shown: Sequence[int],
) -> None:
    """All files; `run.json` last, as it makes the directory a run's."""
    store = FileStore(place)
    told = place / "events"
    told.mkdir(exist_ok=True)
    for old in (*worker_files(told).values(), told / OTHERS):
        old.unlink(missing_ok=True)
    _lines(told / "coordinator.jsonl", _coordinator(request, asked, outcome))
    run_s = outcome.run_s
    last = {one.rank: one.number for one in outcome.attempts}
    for rank in shown:
        traffic = {
            "at": run_s,
            "kind": "traffic",
            **asdict(moved[rank]),
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
                    **asdict(moved[rank]),
                }
                for rank in others
            ),
        )
    write_json(store, "bill.json", billed.dump())
    history = {
        "epochs": [
            {"epoch": epoch + 1, "ended_s": round(at_s, 6)} for epoch, at_s in outcome.epochs
        ],
        "step_loss": [],
        "redone_steps": outcome.redone_steps,
        "rollbacks": outcome.rollbacks,
    }
    write_json(store, "history.json", history)
    SimulationRecord(
        run_id=request.run_id,
        settings=request.settings,
        generation=outcome.generation,
        rollbacks=outcome.rollbacks,
        status="failed" if outcome.status == "failed" else "simulated",
        error=result.error,
        began_at=ORIGIN_S,
        wall_s=result.total_s,
        result=result,
        samples=request.plan.profile.samples,
        job=request.wanted,
        scenario=asdict(request.scenario),
        scenario_words=request.scenario.words(),
        store=billed.store,
        shown=None if len(shown) == asked.workers else tuple(shown),
        deaths=outcome.deaths,
        hand_overs=outcome.hand_overs,
        worst=read(Slowest, outcome.worst, "the simulation") if outcome.worst else None,
    ).save(store)


def _coordinator(
    request: SimulationRequest, asked: Configuration, outcome: Simulated
) -> list[Record]:
    """Functions invoked and ended, and what else the coordinator notes, in order of time."""
    rows: list[tuple[float, int, Record]] = []
    for one in outcome.attempts:
        memory_mib = memory_of(asked, one.rank)
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
            "used": asdict(used_by(one, memory_mib, request.settings)),
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
