"""What configurations can be run, and be predicted from a profile."""

from __future__ import annotations

from dayfly.batches import share
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.profile import Profile
from dayfly.specs.compression import compression
from dayfly.specs.outer import OF_JOB
from dayfly.specs.protocols import refuses_idle
from dayfly.specs.streaming import refuses as refuses_streaming
from dayfly.wire.collectives import collective

_NOT_STREAMED = (
    "--fragments and --overlap are for an outer optimizer: give --sync local-sgd --k N "
    "--outer nesterov, too, or leave them out"
)


def check_configuration(profile: Profile, configuration: Configuration) -> None:
    """Raise RequestError for what cannot be run, or not be predicted."""
    c, layers = configuration, len(profile.layers)
    if c.workers < 1 or c.batch_size < 1 or c.micro_batches < 1 or c.epochs < 1:
        raise RequestError(
            f"workers {c.workers}, batch_size {c.batch_size}, micro_batches {c.micro_batches}, "
            f"epochs {c.epochs}: give numbers from 1"
        )
    if c.cut and not profile.listed:
        raise RequestError(
            f"the model of {profile.job} is no list of layers, so it cannot be cut: leave cut out"
        )
    if list(c.cut) != sorted(set(c.cut)) or any(not 0 < at < layers for at in c.cut):
        raise RequestError(
            f"cut {list(c.cut)}: give rising numbers of layers from 1 to {layers - 1}"
        )
    if c.cut:
        each = (c.replicas,) * c.stages if isinstance(c.replicas, int) else c.replicas
        if len(each) != c.stages or min(each) < 1:
            raise RequestError(
                f"replicas {list(each)} of {c.stages} stages: give each a number from 1"
            )
        if sum(each) != c.workers:
            raise RequestError(
                f"{c.workers} workers are not {c.stages} stages in {c.layout.in_words} replicas: "
                f"give {sum(each)}"
            )
    several, what = (c.stages, "stage") if c.cut else (c.workers, "worker")
    if len(c.memory_mib) not in (1, several):
        raise RequestError(
            f"{len(c.memory_mib)} memory sizes for {several} {what}s: give one, or one a {what}"
        )
    collective(c.collective, c.aggregators, c.members, c.virtual_workers)
    if c.batch_size < c.leaves - c.shares.count(0):
        who = "workers" if c.virtual_workers is None else "virtual workers"
        raise RequestError(
            f"a batch of {c.batch_size} cannot be shared by {c.leaves} {who}: raise batch_size"
        )
    if c.cut and not c.protocol.cuts:
        raise RequestError(
            f"sync {c.sync!r} of a cut model is not run, so its steps cannot be predicted: give "
            "bsp, or leave out the cut"
        )
    if c.outer == OF_JOB:
        raise RequestError(
            "an outer optimizer of the job's own cannot be predicted, as no profile says what it "
            "keeps: give nesterov or momentum"
        )
    if c.streaming is not None:
        refused: str | None = _NOT_STREAMED
        if c.protocol.streaming is not None:
            refused = refuses_streaming(c.streaming.fragments, c.streaming.overlap, c.k)
        if refused is not None:
            raise RequestError(refused)
    refused = c.protocol.refuses_sums(
        workers=c.workers,
        aggregators=c.aggregators,
        collective=c.collective,
        compress=c.compress,
    )
    if refused is not None:
        raise RequestError(refused)
    _check_unequal(profile, c)
    asked = compression(c.compress)
    if not asked.known_bytes or (asked.method != "none" and c.cut):
        raise RequestError(
            f"compress {c.compress!r} {'of a cut model ' if c.cut else ''}cannot be predicted: "
            "give none, or bf16, int8, int4 or topk of a model that is not cut"
        )


def _check_unequal(profile: Profile, c: Configuration) -> None:
    if not c.shares and (c.cut or len(c.memory_mib) == 1):
        return
    if c.cut or c.virtual_workers is not None or not c.protocol.weighs:
        raise RequestError(
            "shares or memory of each worker are for bsp and hap of a model that is not cut, "
            "without virtual workers: leave them out"
        )
    if not c.shares:
        return
    if len(c.shares) != c.workers:
        raise RequestError(f"{len(c.shares)} shares for {c.workers} workers: give one a worker")
    if (refused := refuses_idle(c.shares, c.aggregators)) is not None:
        raise RequestError(refused)
    batch = min(c.batch_size, profile.samples)
    training = [rank for rank in range(c.workers) if c.shares[rank]]
    if not all(len(share(batch, rank, c.workers, c.shares)) for rank in training):
        raise RequestError(
            f"a batch of {batch} in shares of {','.join(map(str, c.shares))} leaves a worker no "
            "sample: raise batch_size, or give shares nearer to each other"
        )
