"""The course of a simulated run, from a profile and a configuration.

What a round takes when nothing happens is predicted (`planning.predict`): for few workers its
schedules in virtual time, for many their closed forms. What a scenario changes follows from the
phases of a round (`rounds`, `staged`). These differ a little from the prediction when nothing
happens; every round is made longer or shorter by that difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dayfly.batches import Batches, validates
from dayfly.batches import Rounds as RoundsOfSteps
from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning import data_parallel, staged
from dayfly.planning.checks import check_configuration
from dayfly.planning.configuration import (
    Configuration,
    end_s,
    flat,
    kept_bytes,
    stage_layers,
    stage_range,
    stage_size,
    start_s,
)
from dayfly.planning.decline import left_of_bandwidth
from dayfly.planning.epochs import round_of, validation_of
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.renewal import renews
from dayfly.planning.simulation.hybrid import Hybrid, RoleSums
from dayfly.planning.simulation.passes import Passes, data_s, kinds_of
from dayfly.planning.simulation.rounds import Bucket, LocalSteps, Rounds, Work, shares
from dayfly.planning.simulation.scenario import Floats, Scenario
from dayfly.planning.simulation.staged import Lane, Staged, Stages, lanes_of
from dayfly.planning.simulation.synchronous import Synchronous
from dayfly.planning.simulation.turns import Course, TrafficRows, Turn
from dayfly.specs.pace import LOOK_FOR_STOP_S
from dayfly.wire.collectives import SMALL_SUM, collective
from dayfly.wire.collectives.cost import AllReduce, Phase
from dayfly.wire.collectives.k_reduce import hybrid_costs
from dayfly.wire.collectives.link import LinkModel
from dayfly.wire.collectives.virtual_cost import cost_of
from dayfly.wire.pipelines.orders import ORDERS


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of round, and what each worker moves in it."""

    rounds: Rounds
    moved: TrafficRows


def course(
    profile: Profile,
    configuration: Configuration,
    scenario: Scenario,
    *,
    replays: bool,
    hears_s: float | None = LOOK_FOR_STOP_S,
    store_bytes_per_s: float | None = None,
) -> Course:
    """The course of a run of this configuration under this scenario.

    Args:
        replays: whether a worker that starts again catches up alone.
        hears_s: seconds until a worker hears that it is to end; None: successors start only once
            lifetimes have ended.
        store_bytes_per_s: of the whole store, each way, unless the scenario says; None: not
            limited.

    Raises:
        RequestError: for what cannot be run, or what the profile does not have.
    """
    check_configuration(profile, configuration)
    builder = _Builder(profile, configuration, scenario, store_bytes_per_s)
    return builder.course(
        replays=replays, hears_s=hears_s if renews(profile, configuration) else None
    )


class _Builder:
    def __init__(
        self,
        profile: Profile,
        configuration: Configuration,
        scenario: Scenario,
        store_bytes_per_s: float | None,
    ) -> None:
        c = self._c = configuration
        self._profile = profile
        self._means = ChannelModel.of(profile)
        self._each = [c.members_of(kind) for kind in range(len(c.kinds))]
        self._batches = Batches(profile.samples, c.batch_size)
        self._rounds = RoundsOfSteps(self._batches, c.round_steps)
        self._sizes = [stage_size(profile, c, kind) for kind in range(len(c.kinds))]
        part = left_of_bandwidth(scenario.decline, c.workers)
        whole = scenario.store_bytes_per_s or store_bytes_per_s
        self._usual = [self._means.link(size) for size in self._sizes]
        self._links = [self._means.link(size, part, whole) for size in self._sizes]
        self._works = [self._work(kind) for kind in range(len(c.kinds))]
        self._kinds: dict[object, _Kind] = {}
        self._message_bytes = self._means.message_bytes(self._sizes)
        validation = validation_of(profile, c, self._means) if profile.validation_samples else None
        self._validation = validation
        self._validating_N = self._validating() if validation is not None else None

    def course(self, *, replays: bool, hears_s: float | None) -> Course:
        c, sizes, kinds = self._c, self._sizes, range(len(self._c.kinds))
        parts = [self._part_s(kind, members) for kind, members in enumerate(self._each)]
        return Course(
            workers=c.workers,
            steps=self._batches.steps * c.epochs,
            turn=self._turn,
            init_N=self._by_kind([size.init_s.value + c.cold_start_s for size in sizes]),
            start_N=self._by_kind([start_s(self._profile, c, kind) for kind in kinds]),
            end_N=np.full(c.workers, max(end_s(self._profile, c, kind) for kind in kinds)),
            lifetime_s=math.inf if c.lifetime_s is None else c.lifetime_s,
            hears_s=hears_s,
            replays=replays and c.workers > 1,
            log_N=self._by_kind([self._log_s(kind) for kind in kinds]),
            recomputes_N=self._by_kind([self._recomputes(kind) for kind in kinds]) > 0,
            stage_N=np.repeat(np.arange(c.stages), c.layout.each),
            keeps_within=c.protocol.hands_over_within,
            keep_s=self._part_s(0, 1) if c.protocol.hands_over_within else 0.0,
            part_N=self._by_kind(parts),
            checkpoint_every_s=c.checkpoint_every_s,
            log_moved=self._log_moved(),
            validation_moved=_rows([] if self._validation is None else self._validation.moved, c),
        )

    def _by_kind(self, values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)[kinds_of(self._c)]

    def _recomputes(self, stage: int) -> bool:
        """A stage of one replica sums with nobody, so its inputs alone are in the log."""
        return (bool(self._c.cut) and self._each[stage] == 1) or bool(self._c.protocol.own)

    def _work(self, stage: int) -> Work:
        layers = stage_layers(self._profile, self._c, stage)
        first = stage_range(self._profile, self._c, stage).start
        if self._c.cut:
            buffer = flat(layers, tail=0)
        else:
            buffer = data_parallel.flat_of(self._profile, self._c)
        size, c = self._sizes[stage], self._c
        return Work.of(size, layers, first, buffer, c.compress, self._each[stage])

    # Rounds.

    def _turn(self, first: int) -> Turn:
        steps = self._rounds.steps(first)
        begins, ends = self._batches.begins_epoch(first), self._batches.ends_epoch(steps[-1])
        batches = tuple(len(self._batches.batch(step)) for step in steps)
        kind = self._kind(batches, begins=begins, ends=ends)
        if not ends:
            return Turn(first, kind.rounds, kind.moved)
        epoch = self._batches.epoch(steps[-1])
        if not validates(epoch, self._c.epochs, self._c.validate_every):
            return Turn(first, kind.rounds, kind.moved, epoch)
        sum_s = 0.0
        if self._validation is not None and self._validating_N is not None:
            sum_s = self._validation.seconds - float(self._validating_N.max())
        return Turn(first, kind.rounds, kind.moved, epoch, self._validating_N, sum_s)

    def _kind(self, batches: tuple[int, ...], *, begins: bool, ends: bool) -> _Kind:
        if self._c.protocol.staleness:
            return self._hybrid_kind(batches, begins=begins, ends=ends)
        closes = ends and self._c.streaming is not None  # what is streamed is waited for then
        kind = self._kinds.get((batches, closes))
        if kind is None:
            predicted, moved = round_of(self._profile, self._c, self._means, batches, closes=closes)
            usual = self._round(batches, self._usual, 0.0)
            began_N = np.zeros(self._c.workers)
            taken = usual.take(began_N, np.ones((self._c.workers, usual.steps)), began_N)
            over_s = predicted.step_s - float(taken.ended_N[0])
            kind = _Kind(self._round(batches, self._links, over_s), _rows(moved, self._c))
            self._kinds[batches, closes] = kind
        return kind

    def _hybrid_kind(self, batches: tuple[int, ...], *, begins: bool, ends: bool) -> _Kind:
        kind = self._kinds.get((batches, begins, ends))
        if kind is None:
            predicted, moved = round_of(self._profile, self._c, self._means, batches)
            usual, now = (self._hybrid(batches[0], one) for one in (self._usual, self._links))
            same, rows = now.as_predicted(usual, predicted), _rows(moved, self._c)
            for first, last in product((False, True), repeat=2):
                one = _Kind(replace(same, begins=first, ends=last), rows)
                self._kinds[batches, first, last] = one
            kind = self._kinds[batches, begins, ends]
        return kind

    def _hybrid(self, batch: int, links: list[LinkModel]) -> Hybrid:
        c = self._c
        k, each = c.aggregators or 0, [links[kind] for kind in kinds_of(c)]
        # The slowest link of both roles: what differs from the prediction is made up for.
        slowest = max(each, key=lambda link: link.up.occupied_s(1e6) + link.down.occupied_s(1e6))
        costs = [
            hybrid_costs(self._asked(0, bucket, [slowest]), aggregators=k)
            for bucket in self._works[0].buckets
        ]
        return Hybrid(passes=self._passes(batch), sums=RoleSums.of(costs), aggregators=k)

    def _passes(self, batch: int) -> Passes:
        return Passes.of(self._c, self._works, self._sizes, batch)

    def _round(self, batches: tuple[int, ...], links: list[LinkModel], over_s: float) -> Rounds:
        if self._c.protocol.averages:
            return self._local(batches, links, over_s)
        make = self._staged if self._c.cut else self._synchronous
        return make(batches[0], links, over_s)

    def _synchronous(self, batch: int, links: list[LinkModel], over_s: float) -> Synchronous:
        return Synchronous(self._passes(batch), self._sums(0, links), over_s)

    def _local(self, batches: tuple[int, ...], links: list[LinkModel], over_s: float) -> LocalSteps:
        size, work = self._sizes[0], self._works[0]
        own = []
        for batch in batches:
            samples_N = shares(batch, self._c.workers)
            forward_N, backward_N = work.computing_s(samples_N, self._c.micro_batches)
            beside_s = size.step_s.value + work.apply_s
            own.append(data_s(size, samples_N) + forward_N + backward_N + beside_s)
        phases: tuple[Phase, ...] = ()
        for one in data_parallel.averaged_of(self._profile, self._c, len(batches)):
            phases += self._phases(0, Bucket.of(one, self._each[0]), links)
        return LocalSteps(np.array(own), phases, 0.0, over_s)

    def _staged(self, batch: int, links: list[LinkModel], over_s: float) -> Staged:
        c = self._c
        lanes = lanes_of(c.layout, c.flow, ORDERS[c.schedule], batch)
        data = self._sizes[0].data
        tail = AllReduce(
            members=c.workers, length=staged.TAIL, itemsize=staged.TAIL_BYTES, link=links[0]
        )
        return Staged(
            self._stages(lanes, links),
            [self._sums(stage, links) for stage in range(c.stages)],
            (data.fixed, data.each),
            cost_of(SMALL_SUM[0], collective(*SMALL_SUM, c.workers), tail).seconds,
            max(size.step_s.value for size in self._sizes),
            over_s,
        )

    def _stages(self, lanes: list[Lane], links: list[LinkModel]) -> Stages:
        c, layers = self._c, self._profile.layers
        return Stages(
            works=self._works,
            links=links,
            lanes=lanes,
            outputs=[layers[at - 1].output for at in c.cut],
            gradients=[layers[at].gradient for at in c.cut],
            chunk_bytes=self._message_bytes,
        )

    def _validating(self) -> Floats:
        """Seconds of each worker before what it measured is summed; of stages, all of it."""
        c, samples = self._c, self._profile.validation_samples
        assert self._validation is not None, "nothing is validated"
        if c.cut:
            return np.full(c.workers, self._validation.seconds)
        samples_N = shares(samples, c.workers)
        each = zip(self._works, self._sizes, strict=True)
        both = [work.forward + size.data for work, size in each]
        fixed_N, each_N = (
            self._by_kind([getattr(one, name) for one in both]) for name in ("fixed", "each")
        )
        own_N = fixed_N * -(-samples_N // c.batch_size) + each_N * samples_N
        return np.minimum(own_N, self._validation.seconds)

    # Sums.

    def _phases(self, stage: int, one: Bucket, links: list[LinkModel]) -> tuple[Phase, ...]:
        c = self._c
        members = self._each[stage]
        how = collective(c.collective, c.aggregators_of(stage), members, c.virtual_workers)
        return cost_of(c.collective, how, self._asked(stage, one, links)).phases

    def _asked(self, stage: int, one: Bucket, links: list[LinkModel]) -> AllReduce:
        return AllReduce(
            members=self._each[stage],
            length=one.length,
            link=links[stage],
            travelling_bytes=one.nbytes,
            sum_bytes=one.sum_bytes,
            groups=self._c.stages,
            first=self._c.layout.rank(stage, 0),
        )

    def _sums(self, stage: int, links: list[LinkModel]) -> tuple[tuple[Phase, ...], ...]:
        """Of each bucket of a stage."""
        buckets = self._works[stage].buckets
        return tuple(self._phases(stage, one, links) for one in buckets)

    # Checkpoints and the log.

    def _part_s(self, stage: int, writers: int) -> float:
        """To write a share of what a stage keeps, and what is the writer's own."""
        link, layers = self._links[stage], stage_layers(self._profile, self._c, stage)
        shared, own = kept_bytes(self._profile, self._c, layers)
        return link.up.latency_s + link.up.occupied_s(shared / writers + own, self._c.workers)

    def _summed_bytes(self, stage: int) -> float:
        if sums := data_parallel.averaged_of(self._profile, self._c):
            return sum(Bucket.of(one, self._each[stage]).sum_bytes for one in sums)
        return sum(bucket.sum_bytes for bucket in self._works[stage].buckets)

    def _log_s(self, stage: int) -> float:
        """A round from the log: its sums are read and applied; or it is computed by itself."""
        work, link, c = self._works[stage], self._links[stage], self._c
        down_s = link.down.latency_s + link.down.occupied_s(self._summed_bytes(stage))
        if c.protocol.own:  # its own steps change what is its own
            samples_N = shares(c.batch_size, c.workers)
            data_N = data_s(self._sizes[stage], samples_N)
            passes_N = sum(work.computing_s(samples_N, c.micro_batches), data_N)
            return down_s + self._rounds.longest * (float(passes_N.max()) + work.apply_s)
        if not self._recomputes(stage):
            return down_s + work.apply_s
        forward_N, backward_N = work.computing_s(shares(c.batch_size, c.flow.most(stage)), 1)
        layers, inputs = self._profile.layers, 0.0
        if stage:
            inputs += layers[c.cut[stage - 1] - 1].output * c.batch_size
        if stage + 1 < c.stages:
            inputs += layers[c.cut[stage]].gradient * c.batch_size
        computing_s = float(forward_N.sum() + backward_N.sum())
        return max(computing_s, link.down.occupied_s(inputs)) + work.apply_s

    def _log_moved(self) -> TrafficRows:
        """Puts, gets, bytes up and down of a round that is taken from the log."""
        rows = np.zeros((self._c.workers, 4), dtype=np.int64)
        for kind, ranks in enumerate(self._c.kinds):
            rows[list(ranks), 1] = self._each[kind]
            rows[list(ranks), 3] = round(self._summed_bytes(kind))
        return rows


def _rows(moved: Sequence[StoreTraffic], c: Configuration) -> TrafficRows:
    rows = [(one.puts, one.gets, one.bytes_up, one.bytes_down) for one in moved]
    return np.array(rows, dtype=np.int64) if rows else np.zeros((c.workers, 4), dtype=np.int64)
