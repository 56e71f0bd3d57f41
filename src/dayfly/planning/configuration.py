"""One way to run a job: what is predicted, simulated, and chosen among."""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.specs.protocols import PROTOCOLS, ProtocolDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How many functions, of which memory, doing what.

    workers: of all stages. memory_mib: of each stage's functions, one entry if the model is not
    cut; None: not limited. cut: numbers of the layers that begin a stage, but for the first.
    replicas: of each stage, `workers` if it is not cut. micro_batches: of a replica. schedule:
    fill-drain or 1f1b. sync: the protocol. k: steps of a round, if
    its rounds have several; None: an epoch's.
    collective: a name of `wire.collectives`. aggregators: of k-reduce. compress: as `--compress`.
    batch_size: samples of a step, all workers'. epochs: of the run. validate_every: epochs.
    lifetime_s: of a function. cold_start_s: added to each start. checkpoint_every_s: as
    `--checkpoint-every`. clips: whether the job clips gradients.
    """

    workers: int
    memory_mib: tuple[int | None, ...] = (None,)
    cut: tuple[int, ...] = ()
    replicas: int = 1
    micro_batches: int = 1
    schedule: str = "fill-drain"
    sync: str = "bsp"
    k: int | None = 1
    collective: str = "overlapped"
    aggregators: int | None = None
    compress: str = "none"
    batch_size: int
    epochs: int = 1
    validate_every: int = 1
    lifetime_s: float | None = None
    cold_start_s: float = 0.0
    checkpoint_every_s: float = 60.0
    clips: bool = False

    @property
    def protocol(self) -> ProtocolDescription:
        """The description of `sync`. Raises RequestError if it is not known."""
        PROTOCOLS.check(self.sync, "sync")
        return PROTOCOLS[self.sync]

    @property
    def round_steps(self) -> int | None:
        """Steps of a round; None: an epoch's."""
        return self.protocol.steps(self.k)

    @property
    def stages(self) -> int:
        """Of the model; one if it is not cut."""
        return len(self.cut) + 1
