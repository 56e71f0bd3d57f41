"""How a job is to be run: what the command line's flags say, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from dayfly.callbacks.loggers import check_named
from dayfly.callbacks.monitor import Monitor
from dayfly.errors import RequestError
from dayfly.runs.exchange_checks import check_compression, check_fp16, check_k
from dayfly.runs.functions import FunctionSettings, among
from dayfly.runs.stage_checks import (
    DEFAULT_SCHEDULE,
    Replicas,
    check_stage_memory,
    check_staged,
    check_uncut,
    workforce,
)
from dayfly.runs.unequal import (
    check_alone,
    check_kept,
    check_unequal,
    numbers_of,
    workers_of,
)
from dayfly.specs import outer as outers
from dayfly.specs import streaming
from dayfly.specs.compression import compression
from dayfly.specs.outer import Outer
from dayfly.specs.pace import SPARE_S
from dayfly.specs.protocols import PROTOCOLS, ProtocolDescription
from dayfly.specs.streaming import Streaming
from dayfly.training.precisions import BF16, FP16, FP32
from dayfly.wire.collectives import K_REDUCE, Collective, collective, default_collective
from dayfly.wire.pipelines.orders import ORDERS
from dayfly.wire.pipelines.step import Layout, layout_of

#: What a run does when its loss, or its weights, become NaN or infinite: fail, or say it and go on.
STOP_ON_NAN, WARN_OF_NAN = "stop", "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(FunctionSettings):
    """How a job is run: options beside those of its functions.

    Args:
        sync: protocol, `bsp`, `hap` or `local-sgd`.
        k: steps between two averages of local SGD, or "epoch".
        outer: what then becomes of the replicas: `average`, or an outer optimizer's step,
            `nesterov` or `momentum`; `job` stands for the job's own. None: the job's own if it has
            one, else `average`.
        outer_lr: the outer optimizer's learning rate; None: 0.7.
        outer_momentum: the outer optimizer's momentum; None: 0.9.
        fragments: in which an outer gradient is exchanged, one after another beside the round's
            steps; None: 1, or all at the round's end if there is no `overlap` either.
        overlap: inner steps after which the sum of a fragment is applied; None: 1.
        collective: all-reduce algorithm; None: what suits the channel, see `algorithm`.
        aggregators: workers that sum, of k-reduce and hap.
        compress: form in which gradients travel: none, bf16, int8, int4, powersgd, powersgd:RANK,
            topk:FRACTION, topk:FRACTION:exact or significance:V.
        virtual_workers: leaves of each batch, V: weights and history have the same bits at any
            number of workers from 1 to V. None: they depend on the workers.
        precision: of forward passes and losses: fp32, or mixed with bf16 or fp16.
        target_accuracy: end early once the validation accuracy is at least this.
        target_loss: end early once the validation loss is at most this.
        keep: "best": the weights of the best epoch are kept as `best.safetensors`; None: the last
            step's alone.
        monitor: value of the history by which an epoch is the best, and for `patience`; None:
            `val_loss`.
        mode: `min` or `max`; None: that of a loss or of `val_accuracy`.
        patience: end early once so many validations brought no improvement; None: never.
        log: loggers, as `--log` names them: `csv`, `jsonl`, `tensorboard`, `mlflow` or `wandb`,
            with `:PLACE` after it if need be.
        checkpoint_every_s: longest time between run checkpoints (of local SGD, between a worker's
            own, too).
        micro_batches: pieces in which a worker computes its share of a batch, one after another;
            None: the job's `accumulate`.
        on_nan: "stop": a loss that becomes NaN or infinite fails the run, whose last finite
            checkpoint stays; "warn": it is said, and the run goes on.
        cut: numbers of the layers that begin a stage, but for the first; empty: the model is not
            cut. `workers` are stages times replicas then, whichever is given.
        replicas: functions of each stage: one number for all, or each stage's.
        schedule: order of the micro-batches, `fill-drain` or `1f1b`.
        stage_memory_mib: memory of each stage's functions; empty: `memory_mib`.
        each_memory_mib: memory of each worker's function; empty: `memory_mib`. `workers` are as
            many, if they are not given.
        shares: each worker's share of a batch, in relation to the others; 0: an aggregator that
            trains nothing; empty: by the CPU that each one's function has; "auto": by a profile,
            for hap.

    Raises:
        RequestError: options that cannot be, or do not go together.
    """

    sync: str = "bsp"
    k: int | Literal["epoch"] | None = None
    outer: str | None = None
    outer_lr: float | None = None
    outer_momentum: float | None = None
    fragments: int | None = None
    overlap: int | None = None
    collective: str | None = None
    aggregators: int | None = None
    compress: str = "none"
    virtual_workers: int | None = None
    precision: str = FP32
    target_accuracy: float | None = None
    target_loss: float | None = None
    keep: str | None = None
    monitor: str | None = None
    mode: str | None = None
    patience: int | None = None
    log: tuple[str, ...] = ()
    checkpoint_every_s: float = 60.0
    micro_batches: int | None = None
    on_nan: str = STOP_ON_NAN
    cut: tuple[int, ...] = ()
    replicas: Replicas | None = None
    schedule: str = DEFAULT_SCHEDULE
    stage_memory_mib: tuple[int, ...] = ()
    each_memory_mib: tuple[int, ...] = ()
    shares: tuple[int, ...] | Literal["auto"] = ()

    positive: ClassVar[Mapping[str, tuple[str, str]]] = {
        **FunctionSettings.positive,
        "checkpoint_every_s": ("--checkpoint-every", "s"),
    }

    def __post_init__(self) -> None:
        numbers_of(self.shares)
        lists = ("cut", "stage_memory_mib", "log", "each_memory_mib", "shares")
        for name in lists:  # by way of JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.replicas, list):
            object.__setattr__(self, "replicas", tuple(self.replicas))
        if self.cut:
            self._check_cut()
        else:
            check_uncut(self.replicas, self.schedule, self.stage_memory_mib)
        each = {"--memory": self.each_memory_mib, "--shares": numbers_of(self.shares)}
        object.__setattr__(self, "workers", workers_of(self.workers, each))
        FunctionSettings.__post_init__(self)  # super() does not know a class with slots
        PROTOCOLS.check(self.sync, "--sync")
        among("on-nan", self.on_nan, (STOP_ON_NAN, WARN_OF_NAN))
        if self.micro_batches is not None and self.micro_batches < 1:
            raise RequestError(f"--micro-batches {self.micro_batches}: give a number from 1")
        if self.lifetime_s is not None and self.lifetime_s <= SPARE_S:
            raise RequestError(
                f"--lifetime {self.lifetime_s:g} s: give more than {SPARE_S:g} s, which a worker "
                "alone needs to end in order and hand over"
            )
        check_k(self.k)
        compression(self.compress)  # whether there is such a one
        among("precision", self.precision, (FP32, BF16, FP16))
        check_fp16(self.precision, self.compress, self.protocol)
        refused = (
            outers.refuses(self.outer, self.outer_lr, self.outer_momentum)
            or streaming.refuses(self.fragments, self.overlap, self.k)
            or PROTOCOLS[self.sync].refuses_outer(self.outer)
            or self.protocol.refuses(k=self.k, compress=self.compress, cut=bool(self.cut))
        )
        if refused is not None:
            raise RequestError(refused)
        check_unequal(self)
        self._check_virtual()
        refused = self.protocol.refuses_sums(
            workers=self.workers,
            aggregators=self.aggregators,
            collective=self.collective,
            compress=self.compress,
        )
        if refused is not None:
            raise RequestError(refused)
        self._check_collective()
        stores = bool(self.reducing.sums(2, 1, 1))
        check_compression(self.compress, self.algorithm, stores=stores)
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise RequestError(
                f"--target-accuracy {self.target_accuracy:g}: give a share of 1, such as 0.97"
            )
        if self.target_loss is not None and not math.isfinite(self.target_loss):
            raise RequestError(f"--target-loss {self.target_loss:g}: give a number, such as 0.1")
        self._check_watched()

    @property
    def stages(self) -> int:
        """Of the model; one if it is not cut."""
        return len(self.cut) + 1

    @property
    def layout(self) -> Layout:
        """Which worker is which replica of which stage."""
        return layout_of(self.stages, self.replicas or self.workers)

    @property
    def members(self) -> int:
        """Workers that hold the same parameters, and sum their gradients; of the stage that has
        the most of them."""
        return max(self.layout.each)

    @property
    def leaves(self) -> int:
        """Parts of a batch whose gradients are computed apart: virtual workers, or workers."""
        return self.virtual_workers or self.members

    def pieces(self, accumulate: int) -> int:
        """In which a leaf is computed, one after another; of a cut model each is a micro-batch.

        Args:
            accumulate: the job's, for want of another number.
        """
        if self.cut and self.virtual_workers is not None:
            return 1  # leaves are the micro-batches
        return self.micro_batches or accumulate

    def micro_batches_of_worker(self, accumulate: int) -> int:
        """Returns the most pieces that a worker computes in a step: of a cut model those of all its
        leaves, of a whole one those of a leaf; see `pieces`."""
        leaves = -(-self.leaves // self.members) if self.cut else 1
        return leaves * self.pieces(accumulate)

    @property
    def kinds(self) -> tuple[Self, ...]:
        """A kind for each stage, or for each worker if these have memory of their own."""
        alike: dict[str, Any] = {"stage_memory_mib": (), "each_memory_mib": ()}
        each = {one: replace(self, memory_mib=one, **alike) for one in set(self.sizes_mib)}
        return tuple(each[size] for size in self.sizes_mib)

    @property
    def sizes_mib(self) -> tuple[int | None, ...]:
        """Memory of the functions of each of `kinds`; None: not limited."""
        own = self.each_memory_mib or self.stage_memory_mib
        return own or (self.memory_mib,) * self.stages

    def kind_of(self, rank: int) -> int:
        """The worker's own kind, or its stage's."""
        return rank if self.each_memory_mib else self.stage_of(rank)

    def stage_of(self, rank: int) -> int:
        """The worker's stage."""
        return self.layout.stage_rank(rank).stage

    def lags(self, rank: int) -> bool:
        """Whether the worker takes each step's sum a step later than those that sum."""
        return bool(self.protocol.staleness) and rank >= (self.aggregators or 0)

    @property
    def protocol(self) -> ProtocolDescription:
        """What the protocol is, with its outer optimizer."""
        return PROTOCOLS[self.sync].by(self.outer, Streaming.of(self.fragments, self.overlap))

    @property
    def outer_optimizer(self) -> Outer | None:
        """What the outer optimizer is; None: there is none."""
        streaming = Streaming.of(self.fragments, self.overlap)
        return Outer.of(self.outer, self.outer_lr, self.outer_momentum, streaming)

    @property
    def round_steps(self) -> int | None:
        """Steps after which replicas are equal; None: an epoch's."""
        return 1 if self.k is None else None if self.k == "epoch" else self.k

    @property
    def algorithm(self) -> str:
        """The name of the all-reduce algorithm: the one asked for, or what suits the channel best.

        That is push-pull where the channel sums, and ring where workers reach each other; over a
        store, overlapped, but for files without a limited way to them scatter-reduce: there is no
        link to keep busy, and it has the fewest messages that every worker has a share in.
        """
        if self.collective is not None:
            return self.collective
        if self.protocol.staleness:
            return K_REDUCE
        kind = self._channel_kind()
        ways = (self.uplink_mb_per_s, self.downlink_mb_per_s, self.latency_ms, self.imitate)
        return default_collective(
            sums=kind.abilities.sums,
            direct=kind.abilities.direct,
            immediate=kind.immediate and all(way is None for way in ways),
            along_tree=self.virtual_workers is not None,
        )

    @property
    def reducing(self) -> Collective:
        """The all-reduce algorithm."""
        return collective(self.algorithm, self.aggregators, self.members, self.virtual_workers)

    def changed(self, **changes: Any) -> Self:
        """Returns them with these changes, and with what follows from the changes.

        Raises:
            RequestError: they cannot be combined.
        """
        check_alone(changes)
        changed = dict(changes)
        if changed.get("collective", K_REDUCE) != K_REDUCE:
            changed.setdefault("aggregators", None)  # those so far are of no use to it
        if changed.get("platform", self.platform) != self.platform:
            changed.setdefault("platform_options", {})
        if (sync := changed.get("sync", self.sync)) != self.sync:
            changed = {"k": None, "outer": None, **changed}
            if self.protocol.staleness or (sync in PROTOCOLS and PROTOCOLS[sync].staleness):
                changed = {"collective": None, "aggregators": None, **changed}
        if changed.get("outer", self.outer) != self.outer:
            alone = ("outer_lr", "outer_momentum", "fragments", "overlap")
            changed = {**dict.fromkeys(alone), **changed}
        if changed.get("memory_mib") is not None:
            changed |= {"stage_memory_mib": (), "each_memory_mib": ()} | changed
        if changed.get("stage_memory_mib") or changed.get("each_memory_mib"):
            changed.setdefault("memory_mib", None)
        if each := changed.get("each_memory_mib") or changed.get("shares"):
            changed.setdefault("workers", len(each))
        check_kept(self, changed)
        # Workers are stages times replicas: whichever is given decides; else there are as many
        # replicas as before.
        if changed.get("cut") and "workers" not in changed:
            changed.setdefault("replicas", self.replicas)
        if changed.keys() & {"cut", "replicas"}:
            changed.setdefault("workers", 1)
        if "workers" in changed:
            changed.setdefault("replicas", None)
        if changed.get("cut", self.cut) != self.cut:
            changed.setdefault("stage_memory_mib", ())
        return replace(self, **changed)

    def _check_cut(self) -> None:
        workers, replicas = workforce(self.cut, self.workers, self.replicas)
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "replicas", replicas)
        among("schedule", self.schedule, tuple(ORDERS))
        check_staged(self.compress, sums=self._channel_kind().abilities.sums)
        check_stage_memory(self.stage_memory_mib, self.stages, self.memory_mib)

    def _check_watched(self) -> None:
        if self.keep is not None:
            among("keep", self.keep, ("best",))
        if self.patience is not None and self.patience < 1:
            raise RequestError(f"--patience {self.patience}: give a number of validations from 1")
        if self.keep is None and self.patience is None:
            for name in ("monitor", "mode"):
                if (given := getattr(self, name)) is not None:
                    raise RequestError(
                        f"--{name} {given} is for --keep best and --patience: add one of them"
                    )
        elif self.mode is not None:
            among("mode", self.mode, ("min", "max"))
        Monitor.of(self.monitor, self.mode)
        for text in self.log:
            check_named(text)

    def _check_collective(self) -> None:
        kind = self._channel_kind()
        if self.reducing.server and not kind.abilities.sums:
            raise RequestError(
                f"--collective {self.algorithm} needs a channel that sums, and {kind.usage} only "
                "keeps messages: give --channel ps://HOST:PORT, or another --collective"
            )

    def _check_virtual(self) -> None:
        """Leaves are summed as they are, along one tree, by workers that hold the whole model."""
        if (count := self.virtual_workers) is None:
            return
        if count < 1:
            raise RequestError(f"--virtual-workers {count}: give a number from 1")
        alone, sums = not self.protocol.leaves, self._channel_kind().abilities.sums
        wrong = (
            (alone, f"--sync {self.sync}, which knows no leaves of a batch"),
            (self.compress != "none", f"--compress {self.compress}, which rounds by worker"),
            (
                bool(self.cut and self.micro_batches),
                "--micro-batches of a cut model, whose micro-batches are the virtual workers",
            ),
            (sums, f"{self._channel_kind().usage}, whose server adds in an order of its own"),
        )
        for given, what in wrong:
            if given:
                raise RequestError(
                    f"--virtual-workers cannot be with {what}: leave out one of them"
                )
