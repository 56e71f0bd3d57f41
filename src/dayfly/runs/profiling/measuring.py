"""`dayfly profile`: invokes functions that measure, size by size, and puts it all together.

    a few that do nothing       how long one takes to start, and what it weighs
    a worker of a run of one    parts of a step; start and end; that is where memory runs out
    two with messages           the way to the store

A size in which the worker runs out of memory is tried again with its batch in more pieces, as a
run would be, with more workers or `accumulate`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dayfly.batches import BLOCK_NUMBERS
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.platforms.base import Ended
from dayfly.life.platforms.cgroups import cpu_quota_us
from dayfly.planning.function_kinds import memory_label
from dayfly.planning.gpus import profiled_gpu, sharing
from dayfly.planning.profile import LayerBytes, Profile, SizeProfile
from dayfly.planning.ranks import in_flight
from dayfly.runs import preloads
from dayfly.runs.directory import new_run_id
from dayfly.runs.function_resources import FunctionResources, resources_of
from dayfly.runs.made_with import made_here, variables
from dayfly.runs.plans import JobSpec
from dayfly.runs.prepare import prepare
from dayfly.runs.profiling import exchange, from_catalogue, life, neighbours
from dayfly.runs.profiling.again import Effort, measured_again
from dayfly.runs.profiling.clocks import check_gpu
from dayfly.runs.profiling.figures import fit_of, pass_spread, size_profile, store_of
from dayfly.runs.profiling.measurements import Measured
from dayfly.runs.profiling.neighbours import Functions, TooSmall, invocation
from dayfly.runs.profiling.summing import FEW
from dayfly.runs.profiling.watch import MachineWatch
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped, ship
from dayfly.runs.signals import StopSignals
from dayfly.runs.task import Task
from dayfly.runs.workplace import Workplace, site_of
from dayfly.specs.functions import FunctionSpec
from dayfly.training.arrays import ArraySplit, store_arrays
from dayfly.training.streams import measured
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.shaping import Rates
from dayfly.wire.stores.files import FileStore

_LIFE = "dayfly.runs.profiling.life:main"
_NOTHING = "dayfly.runs.profiling.life:nothing"
_EXCHANGE = "dayfly.runs.profiling.exchange:main"

#: In how many pieces a batch is computed, at most, if it does not fit into memory as it is.
_MOST_PIECES = 8
#: Neighbours compute what a worker of so many would have of the batch.
_CROWD = 4
#: What messages may take in the channel.
_CHANNEL_BYTES, _AHEAD_BYTES = 512 * 2**20, 80 * 2**20


def profile(
    job: Job,
    settings: Settings,
    memory_mib: Sequence[int] = (),
    *,
    name: str = "job",
    code: Path | None = None,
    gpu: str | None = None,
    quick: bool = False,
    repeat: int = 1,
    told: Callable[[str], None] = lambda text: None,
    note: Callable[[str], None] = lambda text: None,
    heard: Callable[[Ended], None] = lambda ended: None,
) -> Profile:
    """Measure a job by functions of each memory size; none: that of the settings.

    gpu: this machine's type. quick: less often. repeat: times as often. told: what is measured.
    note: what is to be known. heard: told of each function that ended.
    Raises RequestError for what cannot be, RunFailed if functions fail.
    """
    began, effort = time.monotonic(), Effort.of(quick=quick, repeat=repeat)
    sizes: Sequence[int | None] = sorted(set(memory_mib)) or [settings.memory_mib]
    each = [replace(settings, memory_mib=size, workers=1) for size in sizes]
    for one in each:
        resources_of(one)  # before anything is made
    check_gpu(gpu)
    job, made = measured(job, note).job, made_here()
    with (
        StopSignals() as signals,
        Workplace.open(None, preloads.PROFILE, signals, variables(made), settings) as workplace,
    ):
        bench = _Bench(job, each[0], workplace, name, code, effort, heard)
        found: list[SizeProfile] = []
        measures: list[Callable[[], SizeProfile]] = []
        failed: list[str] = []
        for one in each:
            told(f"functions of {memory_label(one.memory_mib)}")
            measure = partial(bench.measure, one, told, note)
            try:
                found.append(measure())
                measures.append(measure)
            except TooSmall as error:
                failed.append(str(error))
                if len(each) > 1:
                    note(f"{error}: left out")
        if not found:
            raise RequestError(f"{failed[-1]}: give more --memory, or a smaller batch")
        found = measured_again(
            found,
            measures,
            cores=os.cpu_count() or 1,
            most=effort.attempts,
            note=note,
        )
    facts = bench.facts
    layers = tuple(
        LayerBytes(**{**layer, "tensors": tuple(layer["tensors"])}) for layer in facts["layers"]
    )
    trained = sum(layer.trained for layer in layers)
    return Profile(
        job=name,
        platform=settings.platform,
        imitate=settings.imitate,
        channel=settings.channel or "file:///",
        listed=facts["listed"],
        samples=facts["samples"],
        validation_samples=facts["validation_samples"],
        sample_bytes=facts["sample_bytes"],
        state_per_trained_byte=facts["state_bytes"] / max(1, trained),
        layers=layers,
        sizes=tuple(found),
        fit=fit_of(found, trained),
        how="measured",
        took_s=time.monotonic() - began,
        flops=from_catalogue.counted_flops(job, len(layers)),
        gpu=profiled_gpu(facts["gpu"], gpu),
        measures=BLOCK_NUMBERS + len(job.metrics),
        store=store_of(bench.served),
        machine={**made, "cores": len(os.sched_getaffinity(0))},
        **asdict(JobSpec.of(job)),
    )


class _Bench:
    """A job, ready to be measured at a workplace. facts: what is known of it since."""

    def __init__(
        self,
        job: Job,
        settings: Settings,
        workplace: Workplace,
        name: str,
        code: Path | None,
        effort: Effort,
        heard: Callable[[Ended], None],
    ) -> None:
        self._functions = Functions(workplace.platform, heard)
        self._workplace, self._job, self._effort = workplace, job, effort
        self._store = store = FileStore(workplace.directory)
        self._run = new_run_id(name)
        self._generation = 0
        self._shipped: Shipped = ship(job, code, store, run=workplace.directory)
        if len(job.phases) > 1:
            raise RequestError("profiles are of jobs with one optimizer: train without a plan")
        prepared = prepare(job, settings)
        self._parts: tuple[ArraySplit, ...] = ()
        self.served: list[tuple[int, float]] = []
        self.facts: Mapping[str, Any] = {}
        if prepared.arrays is not None:
            self._parts = store_arrays(prepared.arrays, store, job.seed)
        self._samples = self._parts[0].samples if self._parts else prepared.training_samples
        self._weighting = prepared.weighting
        written = checkpoints.write_stages(store, 0, prepared.states)
        self._checkpoint: Checkpoint = checkpoints.commit(store, 0, written)

    def measure(
        self, settings: Settings, told: Callable[[str], None], note: Callable[[str], None]
    ) -> SizeProfile:
        """Functions of this size. Raises TooSmall."""
        resources = resources_of(settings)
        # Neither is of a step: both are added where they count.
        spec = replace(resources.spec, lifetime_s=None, cold_start_s=0.0, payload_bytes=None)
        size, memory_mib = memory_label(settings.memory_mib), spec.memory_mib
        least_mib = self._workplace.platform.least_memory_mib() if memory_mib is not None else 0
        if memory_mib is not None and memory_mib < least_mib:
            raise TooSmall(
                f"functions of {size} are too small: one with PyTorch in it needs {least_mib} MiB "
                "here"
            )
        for said in self._workplace.platform.check([spec] * (1 if spec.gpu_share else 2)):
            note(said)
        resources = FunctionResources(spec, resources.rates)
        watch = MachineWatch(times=self._effort.paces)
        with self._channel(settings, senders=1) as channel:
            told(f"{size}: starting functions")
            idle = self._idle(spec, channel)
            told(f"{size}: layers and steps")
            ended, self.facts, samples = self._live(settings, resources, channel, note)
        facts = self.facts
        watch.before_messages()
        told(f"{size}: messages")
        lead, follow = self._exchange(settings, resources, samples)
        period_us, quota_us = (0, 0) if spec.cpu_cores is None else cpu_quota_us(spec.cpu_cores)
        part_of_core = spec.cpu_cores is not None and spec.cpu_cores < 1
        assert ended.result is not None
        kind = channel_kind(self._url(settings))
        measured = Measured(
            memory_mib=settings.memory_mib,
            cpu_cores=spec.cpu_cores,
            period_s=period_us / 1e6,
            at_once_s=quota_us / 1e6 if part_of_core else None,
            samples=samples,
            step_samples=min(self._job.batch_size, self._samples),
            trained_bytes=sum(layer["trained"] for layer in facts["layers"]),
            inits_s=tuple(one.init_s for one in idle),
            bases_mib=tuple(one.peak_mib or 0.0 for one in idle),
            life=facts,
            run_s=ended.run_s,
            last_s=ended.result["last_s"],
            lead=lead,
            follow=follow,
            collective=replace(settings, workers=2).reducing,
            few=FEW,
            neighbours=self._neighbours(settings, spec),
            in_flight=in_flight(kind, limited=resources.rates is not None),
        )
        here = self._workplace.platform.on_this_machine
        return replace(
            sharing(size_profile(measured), spec.gpu_share),
            rates=resources.rates,
            conditions=watch.conditions(pass_spread(measured)) if here else None,
        )

    def _idle(self, spec: FunctionSpec, channel: Channel) -> list[Ended]:
        """Functions that do nothing, one after another."""
        return [
            self._functions.call([invocation(f"idle-{number}", _NOTHING, {}, spec)], channel)[0]
            for number in range(self._effort.idle)
        ]

    def _live(
        self,
        settings: Settings,
        resources: FunctionResources,
        channel: Channel,
        note: Callable[[str], None],
    ) -> tuple[Ended, Mapping[str, Any], tuple[int, ...]]:
        """The worker; in as many pieces as its memory wants."""
        pieces = settings.micro_batches or self._job.accumulate
        whole = min(self._job.batch_size, self._samples)
        for more in (1, 2, 4, _MOST_PIECES):
            most = -(-whole // (pieces * more))
            # Of one sample some models cannot learn, and nobody would have them.
            least = min(2, most)
            samples = tuple(dict.fromkeys(max(least, most // part) for part in (1, 2, 4, 8)))
            few = -(-whole // _CROWD)
            request = life.TimingRequest(
                samples=samples,
                each=next((count for count in samples if count <= few), samples[-1]),
                budget_s=self._effort.life_s,
                name="measured/life",
                neighbours=self._neighbours(settings, resources.spec),
            )
            task = self._task(settings, resources.rates, 0, 1, pieces * more)
            payload = {"task": task.dump(), "request": asdict(request)}
            try:
                watched = invocation("profiled", _LIFE, payload, resources.spec)
                with self._functions.beside(self._store, task, request, resources.spec):
                    (ended,) = self._functions.call([watched], channel)
            except TooSmall:
                if more == _MOST_PIECES or most == 1:
                    raise
                continue
            if more > 1:
                note(
                    f"functions of {memory_label(settings.memory_mib)} have no room for {whole} "
                    f"samples at once: measured up to {most}"
                )
            return ended, self._measured(request.name), samples
        raise AssertionError("the loop returns or raises")

    def _exchange(
        self, settings: Settings, resources: FunctionResources, samples: Sequence[int]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Two functions that send each other messages; smaller ones, if memory is short."""
        cores = resources.spec.cpu_cores
        at_once_s = None if cores is None or cores >= 1 else cpu_quota_us(cores)[1] / 1e6
        known = self._effort.messages
        for sizes in (known, known[:-2]):
            request = exchange.ExchangeRequest(
                sizes=sizes,
                rows=self._effort.rows,
                sums=self._effort.sums,
                at_once_s=at_once_s,
                samples=samples[0],
                few=samples[-1],
                cuts=bool(self.facts["parts"].get("staged")),
                budget_s=self._effort.beside_s,
                name="measured/exchange",
            )
            pair = replace(settings, workers=2)
            with self._channel(pair, senders=2) as channel:
                calls = [
                    invocation(
                        f"end-{rank}",
                        _EXCHANGE,
                        {
                            "task": self._task(pair, resources.rates, rank, 2, 1).dump(),
                            "request": asdict(request),
                        },
                        replace(resources.spec, gpu_share=None),
                    )
                    for rank in range(2)
                ]
                try:
                    self._functions.call(calls, channel)
                except TooSmall:
                    if sizes is not known:
                        raise
                    continue
            ends = self._measured(f"{request.name}-0"), self._measured(f"{request.name}-1")
            self.served += [row for end in ends for row in end["served"]]
            return ends
        raise AssertionError("the loop returns or raises")

    def _neighbours(self, settings: Settings, spec: FunctionSpec) -> int:
        """Returns the number of neighbours; only functions of this machine can have some."""
        if not self._workplace.platform.on_this_machine or spec.gpu_share is not None:
            return 0
        return neighbours.count_beside(spec.cpu_cores, len(os.sched_getaffinity(0)))

    @contextmanager
    def _channel(self, settings: Settings, senders: int) -> Iterator[Channel]:
        """Opens a channel of a new generation; tasks have its URL, run and generation."""
        self._generation += 1
        url = self._url(settings)
        site = site_of(url, self._store, self._run, self._generation, self._workplace.token)
        plan = ChannelSpec(senders=senders, budget_bytes=_CHANNEL_BYTES, ahead_bytes=_AHEAD_BYTES)
        with self._workplace.fresh_channel(site, plan) as channel:
            yield channel

    def _url(self, settings: Settings) -> str:
        return settings.channel or self._workplace.own_channel

    def _measured(self, name: str) -> Mapping[str, Any]:
        measured: Mapping[str, Any] = json.loads(self._store.get(name))
        self._store.delete([name])
        return measured

    def _task(
        self, settings: Settings, rates: Rates | None, rank: int, world_size: int, pieces: int
    ) -> Task:
        return Task(
            run=self._run,
            token=self._workplace.token,
            generation=self._generation,
            rank=rank,
            attempt=0,
            stage_rank=StageRank(0, rank),
            world_size=world_size,
            store=self._store.url,
            channel=self._url(settings),
            shipped=self._shipped,
            parts=self._parts,
            weighting=self._weighting,
            samples=self._samples,
            steps=10**8,  # it ends when all is measured
            sync="bsp",
            k=1,
            collective=settings.algorithm,
            aggregators=settings.aggregators,
            compress="none",
            decides=False,
            ended=False,
            log_rounds=None,
            replays=True,
            checkpoint_every_s=settings.checkpoint_every_s,
            wait_timeout_s=settings.wait_timeout_s,
            scratch=str(self._workplace.session.root / "scratch"),
            checkpoint=self._checkpoint,
            trimmed_step=0,
            checkpoint_age_s=0.0,
            faults=(),
            pieces=pieces,
            rates=rates,
        )
