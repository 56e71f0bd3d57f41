"""Checks what a run's workers exchange: the steps between exchanges, precision, compression."""

from __future__ import annotations

from dayfly.errors import RequestError
from dayfly.specs.compression import compression
from dayfly.specs.protocols import ProtocolDescription
from dayfly.training.precisions import FP16


def check_k(k: int | str | None) -> None:
    """Raise RequestError unless k is a number of steps, an epoch, or not given."""
    whole = isinstance(k, int) and not isinstance(k, bool) and k >= 1
    if k is not None and k != "epoch" and not whole:
        raise RequestError(f"--k {k}: give a number of steps from 1, or epoch")


def check_fp16(precision: str, compress: str, protocol: ProtocolDescription) -> None:
    """Raise RequestError for fp16 where overflow is not seen: in the exact sum of a step's
    gradients.

    Args:
        precision: of `--precision`.
        compress: of `--compress`, checked.
        protocol: of the run.
    """
    if precision != FP16:
        return
    other = f"--precision {FP16} cannot be with"
    if protocol.averages:
        raise RequestError(
            f"{other} --sync {protocol.name}, whose steps sum no gradients, in which all workers "
            "would see the same overflow: give --precision bf16"
        )
    if protocol.staleness:
        raise RequestError(
            f"{other} --sync {protocol.name}, whose workers may scale the losses of one step "
            "differently: give --precision bf16"
        )
    if compression(compress).method not in ("none", "bf16"):
        raise RequestError(
            f"{other} --compress {compress}, which hides overflow: give --precision bf16, "
            "or --compress bf16"
        )


def check_compression(compress: str, collective: str, *, stores: bool) -> None:
    """Raise RequestError if gradients cannot be compressed so, with this collective.

    A codec needs that, so that all read the same: a ring adds to what it decoded again and again,
    and a server adds up what it does not know.

    Args:
        compress: of `--compress`, checked.
        collective: its name.
        stores: whether the collective stores its sums.
    """
    asked = compression(compress)
    if asked.codec and not stores:
        raise RequestError(
            f"--compress {compress} needs a collective that stores its sums, which {collective} "
            "does not: give another --collective, such as scatter-reduce, or --compress powersgd"
        )
