"""From a profile and a configuration to the course of a run: what there is to be simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dayfly.batches import Batches
from dayfly.batches import Rounds as RoundsOfSteps
from dayfly.errors import RequestError
from dayfly.plan.configuration import Configuration
from dayfly.plan.profile import Profile
from dayfly.plan.scenario import Scenario
from dayfly.plan.simulation.chance import Floats, Ints
from dayfly.plan.simulation.course import Course, Moved, Turn, nothing_moved
from dayfly.plan.simulation.phases import Phase, Summing, length_s
from dayfly.plan.simulation.rounds import LocalSteps, Rounds, Synchronous
from dayfly.plan.simulation.staged import Staged, Stages
from dayfly.plan.simulation.ways import Way, left_of_bandwidth
from dayfly.plan.simulation.work import Bucket, Work, shares
from dayfly.wire.pipelines.orders import ORDERS, forward_only

#: What is left of gradients on the wire. int8: a byte an element, and a scale a block.
_COMPRESSED = {"none": 1.0, "bf16": 0.5, "int8": 0.25}
#: Bytes of the sums of a validation and of the tail: messages whose latency alone counts.
_SMALL_BYTES = 32.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What workers talk through. replays: whether one that starts again catches up alone.

    chunk_bytes: what is worth a message of a sum; message_bytes: of what stages pass on.
    store_bytes_per_s: of the whole store, each way; None: not limited.
    """

    replays: bool
    chunk_bytes: float
    message_bytes: float
    store_bytes_per_s: float | None = None


def course(
    profile: Profile,
    configuration: Configuration,
    scenario: Scenario,
    means: Means,
    over: Callable[[Rounds], float] | None = None,
) -> Course:
    """The course of a run of this configuration under this scenario.

    over: how much longer a round's sums take than closed forms say; None: no longer. Raises
    RequestError for what cannot be simulated, or what the profile does not have.
    """
    return _Builder(profile, configuration, scenario, means).course()


class _Builder:
    def __init__(
        self, profile: Profile, configuration: Configuration, scenario: Scenario, means: Means
    ) -> None:
        c = configuration
        if c.sync not in ("bsp", "local-sgd"):
            raise RequestError(f"sync {c.sync!r} is not simulated: give bsp or local-sgd")
        if c.compress not in _COMPRESSED:
            raise RequestError(
                f"compress {c.compress!r} is not simulated: give {', '.join(_COMPRESSED)}"
            )
        if c.cut and not profile.listed:
            raise RequestError(
                f"the model of {profile.job} is no list of layers, so it cannot be cut"
            )
        self._profile = profile
        self._c = c
        self._means = means
        self._members = c.replicas if c.cut else c.workers
        self._batches = Batches(profile.samples, c.batch_size)
        self._rounds = RoundsOfSteps(self._batches, c.k if c.sync == "local-sgd" else 1)
        memory = c.memory_mib if len(c.memory_mib) > 1 else c.memory_mib * c.stages
        self._sizes = tuple(profile.size(one) for one in memory)
        self._memory = memory
        part = left_of_bandwidth(scenario.decline, c.workers)
        whole = scenario.store_bytes_per_s or means.store_bytes_per_s
        self._ways = tuple(Way.of(size, part, whole) for size in self._sizes)
        ends = (0, *c.cut, len(profile.layers))
        factor = _COMPRESSED[c.compress]
        self._works = tuple(
            Work.of(size, profile.layers[first:stop], first, factor)
            for size, first, stop in zip(self._sizes, ends, ends[1:], strict=False)
        )
        self._made: dict[tuple[int, ...], Rounds] = {}

    def course(self) -> Course:
        c, sizes = self._c, self._sizes
        steps = self._batches.steps * c.epochs
        return Course(
            workers=c.workers,
            steps=steps,
            turn=self._turn,
            init_N=self._by_stage([size.init_s.value + c.cold_start_s for size in sizes]),
            start_N=self._by_stage([size.start_s.value for size in sizes]),
            end_N=self._by_stage([size.end_s.value for size in sizes]),
            memory_of=lambda rank: self._memory[rank // self._members],
            lifetime_s=float("inf") if c.lifetime_s is None else c.lifetime_s,
            replays=self._means.replays and c.workers > 1,
            log_N=self._by_stage([self._log_s(stage) for stage in range(c.stages)]),
            recomputes=self._recomputes,
            keeps_within=c.sync == "local-sgd",
            keep_s=self._part_s(0, 1) if c.sync == "local-sgd" else 0.0,
            part_N=self._by_stage([self._part_s(s, self._members) for s in range(c.stages)]),
            checkpoint_every_s=c.checkpoint_every_s,
            moved=self._moved(),
            log_moved=self._log_moved(),
            validation_moved=nothing_moved(c.workers),
        )

    def _by_stage(self, values: list[float]) -> Floats:
        return np.repeat(np.array(values, dtype=np.float64), self._members)

    @property
    def _recomputes(self) -> bool:
        """A stage of one replica sums with nobody, so its inputs alone are in the log."""
        return bool(self._c.cut) and self._members == 1

    # Rounds.

    def _turn(self, first: int) -> Turn:
        steps = self._rounds.steps(first)
        batches = tuple(len(self._batches.batch(step)) for step in steps)
        made = self._made.get(batches)
        if made is None:
            made = self._made[batches] = self._round(batches)
        if not self._batches.ends_epoch(steps[-1]):
            return Turn(first, made)
        epoch = self._batches.epoch(steps[-1])
        every = self._c.validate_every
        last = epoch + 1 == self._c.epochs
        if not (last or (epoch + 1) % every == 0) or not self._profile.validation_samples:
            return Turn(first, made, epoch)
        own_N, sum_s = self._validation()
        return Turn(first, made, epoch, own_N, sum_s)

    def _round(self, batches: tuple[int, ...]) -> Rounds:
        if self._c.sync == "local-sgd":
            return self._local(batches)
        return self._staged(batches[0]) if self._c.cut else self._synchronous(batches[0])

    def _synchronous(self, batch: int) -> Synchronous:
        size, work = self._sizes[0], self._works[0]
        samples_N = shares(batch, self._c.workers)
        return Synchronous(
            work,
            samples_N,
            self._c.micro_batches,
            self._data_N(samples_N),
            self._sums(0),
            size.step_s.value,
        )

    def _local(self, batches: tuple[int, ...]) -> LocalSteps:
        size, work = self._sizes[0], self._works[0]
        own = []
        for batch in batches:
            samples_N = shares(batch, self._c.workers)
            forward_N, backward_N = work.computing_s(samples_N, self._c.micro_batches)
            beside_s = size.step_s.value + work.apply_s
            own.append(self._data_N(samples_N) + forward_N + backward_N + beside_s)
        nbytes = work.trained * (1 + self._profile.state_per_trained_byte) + work.buffers
        return LocalSteps(np.array(own), self._summing(0, nbytes).phases(), work.apply_s)

    def _staged(self, batch: int) -> Staged:
        c, members = self._c, self._members
        whole_R = shares(batch, members)
        samples_RM = np.array([shares(int(one), c.micro_batches) for one in whole_R])
        data = self._sizes[0].data
        return Staged(
            self._stages(samples_RM),
            [self._sums(stage) for stage in range(c.stages)],
            (data.fixed, data.each),
            length_s(self._small()),
            max(size.step_s.value for size in self._sizes),
        )

    def _stages(self, samples_RM: Ints) -> Stages:
        c, layers = self._c, self._profile.layers
        ends = [layers[at - 1] for at in c.cut]
        return Stages(
            works=self._works,
            ways=self._ways,
            samples_RM=samples_RM,
            outputs=[layer.output for layer in ends],
            gradients=[layers[at].gradient for at in c.cut],
            order=ORDERS[c.schedule],
            chunk_bytes=self._means.message_bytes,
        )

    def _data_N(self, samples_N: Ints) -> Floats:
        data = self._sizes[0].data
        return np.where(samples_N > 0, data.fixed + data.each * samples_N, 0.0)

    # Sums.

    def _summing(self, stage: int, nbytes: float) -> Summing:
        return Summing(
            collective=self._c.collective,
            ranks=self._members,
            nbytes=nbytes,
            way=self._ways[stage],
            chunk_bytes=self._means.chunk_bytes,
            reduce_s_per_byte=self._sizes[stage].reduce_s_per_byte,
            aggregators=self._c.aggregators,
            groups=self._c.stages,
        )

    def _sums(self, stage: int) -> tuple[tuple[Phase, ...], ...]:
        """Of each bucket of a stage."""
        buckets = self._works[stage].buckets
        return tuple(self._summing(stage, bucket.nbytes).phases() for bucket in buckets)

    def _small(self) -> tuple[Phase, ...]:
        """A sum of little over all ranks; of a pipeline by one of them."""
        whole = self._summing(0, _SMALL_BYTES)
        if not self._c.cut:
            return whole.phases()
        alone = Summing(
            collective="all-reduce", ranks=self._c.workers, nbytes=_SMALL_BYTES, way=self._ways[0]
        )
        return alone.phases()

    def _validation(self) -> tuple[Floats, float]:
        """What each worker does to validate, and the sum of what it measured."""
        c, samples = self._c, self._profile.validation_samples
        if not c.cut:
            size, work = self._sizes[0], self._works[0]
            samples_N = shares(samples, c.workers)
            # As many at once as of training: each time has the fixed part anew.
            at_once = np.maximum(1, -(-shares(c.batch_size, c.workers) // c.micro_batches))
            times_N = -(-samples_N // at_once)
            both = work.forward + size.data
            return both.fixed * times_N + both.each * samples_N, length_s(self._small())
        members = self._members
        largest = -(-c.batch_size // members)
        micro = -(-largest // c.micro_batches)
        rounds = -(-(-(-samples // members)) // (micro * c.micro_batches))
        stages = self._stages(np.full((members, c.micro_batches), micro))
        shape = c.stages, members
        data = self._sizes[0].data
        passed = stages.passes(
            np.zeros(shape), np.ones(shape), (data.fixed, data.each), forward_only
        )
        round_s = max(float(one.end_R.max()) for one in passed.values())
        each_s = round_s + length_s(self._small())
        return np.full(c.workers, rounds * each_s), 0.0

    # Checkpoints and the log.

    def _part_s(self, stage: int, writers: int) -> float:
        work, way = self._works[stage], self._ways[stage]
        state = work.parameters + work.buffers
        state += work.trained * self._profile.state_per_trained_byte
        return way.up.latency_s + way.up.occupied_s(state / writers, self._c.workers)

    def _summed_bytes(self, stage: int) -> float:
        work = self._works[stage]
        if self._c.sync == "local-sgd":
            return work.trained * (1 + self._profile.state_per_trained_byte) + work.buffers
        return sum(bucket.nbytes for bucket in work.buckets)

    def _log_s(self, stage: int) -> float:
        """A round from the log: its sums are read and applied; or it is computed by itself."""
        work, way, c = self._works[stage], self._ways[stage], self._c
        if not self._recomputes:
            nbytes = self._summed_bytes(stage)
            return way.down.latency_s + way.down.occupied_s(nbytes) + work.apply_s
        samples = shares(c.batch_size, c.micro_batches)
        forward_N, backward_N = work.computing_s(samples, 1)
        inputs = 0.0
        if stage:
            inputs += self._profile.layers[c.cut[stage - 1] - 1].output * c.batch_size
        if stage + 1 < c.stages:
            inputs += self._profile.layers[c.cut[stage]].gradient * c.batch_size
        computing_s = float(forward_N.sum() + backward_N.sum())
        return max(computing_s, way.down.occupied_s(inputs)) + work.apply_s

    # Traffic.

    def _moved(self) -> Moved:
        """Of a round, as the collectives' closed forms have it."""
        c = self._c
        rows = nothing_moved(c.workers)
        for stage in range(c.stages):
            mine = slice(stage * self._members, (stage + 1) * self._members)
            rows[mine] += np.array(self._sum_moved(stage), dtype=np.int64)
            if c.cut:
                rows[mine] += np.array(self._passed_moved(stage), dtype=np.int64)
        return rows

    def _sum_moved(self, stage: int) -> tuple[int, int, int, int]:
        """Puts, gets, bytes up and down of one rank, the mean of its group."""
        n, name = self._members, self._c.collective
        if n == 1:
            return 0, 0, 0, 0
        puts = gets = up = down = 0.0
        buckets = self._works[stage].buckets
        if self._c.sync == "local-sgd":
            buckets = (Bucket(self._summed_bytes(stage), 1.0),)
        for bucket in buckets:
            summing = self._summing(stage, bucket.nbytes)
            s, chunks = bucket.nbytes, summing.chunks()
            k = {"all-reduce": 1, "k-reduce": self._c.aggregators or n}.get(name, n)
            if name == "ring":
                puts, gets = puts + 2 * (n - 1) * chunks, gets + 2 * (n - 1) * chunks
                up, down = up + 2 * (n - 1) / n * s, down + 2 * (n - 1) / n * s
            elif name == "push-pull":
                puts, gets, up, down = puts + chunks, gets + chunks, up + s, down + s
            else:
                each = chunks if name == "overlapped" else 1
                puts += k * each
                gets += 2 * k * (n - 1) / n * each
                up, down = up + s, down + 2 * (n - 1) / n * s
        return round(puts), round(gets), round(up), round(down)

    def _passed_moved(self, stage: int) -> tuple[int, int, int, int]:
        """What a replica of a stage passes to its neighbours, the mean of them."""
        c, layers = self._c, self._profile.layers
        samples = c.batch_size / self._members
        before = stage > 0
        behind = stage + 1 < c.stages
        up = down = 0.0
        if before:
            down += layers[c.cut[stage - 1] - 1].output * samples
            up += layers[c.cut[stage - 1]].gradient * samples
        if behind:
            up += layers[c.cut[stage] - 1].output * samples
            down += layers[c.cut[stage]].gradient * samples
        messages = c.micro_batches * (before + behind)
        return messages, messages, round(up), round(down)

    def _log_moved(self) -> Moved:
        rows = nothing_moved(self._c.workers)
        for stage in range(self._c.stages):
            mine = slice(stage * self._members, (stage + 1) * self._members)
            rows[mine, 1] = self._members
            rows[mine, 3] = round(self._summed_bytes(stage))
        return rows
