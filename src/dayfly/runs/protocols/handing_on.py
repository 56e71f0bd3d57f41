"""What state workers load where the checkpoint was written under another protocol.

    who wrote it          all workers have alike              each worker has its own
    bsp, hap, averaging   the whole replica                   residual of gradients
    an outer optimizer    model, outer optimizer              inner optimizer, residual of outer
                                                              gradients
    the same, streamed    outer model, outer optimizer,       the same, parameters and buffers
                          sums that wait to be applied

    who goes on           replica                                       residual
    equal replicas        outer model; the inner optimizer of worker 0  none of outer gradients
    an outer optimizer    its own inner optimizer, or the one that all  none of gradients
                          have; the outer optimizer's state, if any
    another streaming     the same, and its own parameters, if any      the same

Sums that wait are applied first, as at an epoch's end, unless they are streamed as before. That all
go on with worker 0's is what becomes of a run that goes on with one worker, and then with more.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dayfly.life import checkpoints
from dayfly.runs.protocols.base import WorkerContext
from dayfly.specs.outer import OF_JOB, Outer
from dayfly.specs.streaming import Streaming
from dayfly.training.outer import joined, outer_optimizer
from dayfly.training.replica import AVERAGE
from dayfly.training.state import Tensors
from dayfly.training.streaming import StreamedGradients

#: In the tree of a replica's state: the outer optimizer's, how outer gradients are streamed, and
#: exchanges whose sums wait to be applied: number, first step of the round, step after which.
OUTER, STREAMED, WAITING = "outer", "streamed", "waiting"


def alike(here: WorkerContext, tree: Any, tensors: Tensors) -> tuple[Any, Tensors]:
    """Returns the state of a run checkpoint as the worker's protocol takes it.

    That is as it is, unless replicas had inner optimizers of their own, and are to be equal.

    Args:
        here: the worker; its replica may change.
        tree: of the checkpoint's replica.
        tensors: of which it speaks.
    """
    if OUTER not in tree or here.task.outer is not None:
        return tree, tensors
    whole, tensors = joined(*settled(here, tree, tensors, own_of(here, 0)))
    beside = (OUTER, STREAMED, WAITING)
    return {name: one for name, one in whole.items() if name not in beside}, tensors


def own_of(here: WorkerContext, rank: int) -> Tensors:
    """Returns what a rank has of its own in the worker's checkpoint, or the rank whose part it
    begins with if there are more now; empty: none has."""
    checkpoint = here.task.checkpoint
    if not (known := checkpoints.owners(checkpoint)):
        return {}
    (own,) = checkpoints.read_own(here.store, checkpoint, rank % known, known)
    return own


def streamed(outer: Outer | None) -> Any:
    """Returns how an outer optimizer's gradients are streamed, as a checkpoint's tree says it."""
    return None if outer is None or outer.streaming is None else asdict(outer.streaming)


def waiting_in(tree: Any, streaming: Streaming) -> list[tuple[int, int, int]]:
    """Returns the exchanges whose sums wait in a run checkpoint.

    Earlier versions had one more than fragments where these are compressed: what belongs to none,
    which was taken with the last one and is applied with it.

    Args:
        tree: of the checkpoint's replica.
        streaming: by which it was written.
    """
    every = tree.get(WAITING) or []
    return [(n, first, due) for n, first, due in every if n < streaming.fragments]


def settled(
    here: WorkerContext, tree: Any, tensors: Tensors, own: Tensors
) -> tuple[Any, Tensors, Tensors]:
    """Returns the state of a run checkpoint with the sums that wait in it applied.

    Args:
        here: the worker, whose replica is used for it.
        tree: of the checkpoint's replica.
        tensors: of which it speaks.
        own: of a worker.

    Raises:
        CheckpointError: it does not say how they are streamed.
    """
    if not tree.get(WAITING):
        return tree, tensors, own
    if STREAMED not in tree:
        raise checkpoints.CheckpointError(
            "sums wait in the run checkpoint, which does not say how they are streamed, as earlier "
            "versions wrote it: go on with the run's own --fragments and --overlap, and change "
            "them or --sync at the next checkpoint"
        )
    job, replica, streaming = here.job, here.replica, Streaming(**tree[STREAMED])
    waiting = waiting_in(tree, streaming)
    replica.load_state(*joined(tree, tensors, own))
    outer = Outer() if job.outer_optimizer is None else Outer(name=OF_JOB)
    optimizer = outer_optimizer(outer, job, replica.model)
    sums = StreamedGradients(replica, 0, optimizer, streaming=streaming)
    sums.load_shared(tree[OUTER], tensors)
    sums.begin_from(own, tensors, [number for number, _, _ in waiting])
    for number, first, due in waiting:
        sums.apply(number, streaming.steps(first, due))
    state, more = sums.shared()
    average = {n: one for n, one in replica.state()[1].items() if n.startswith(AVERAGE)}
    mine = {name: one.clone() for name, one in sums.own().items()}  # it is to be loaded anew
    return (
        {**tree, OUTER: state, WAITING: []},
        {**tensors, **average, **more, **sums.shared_model()},
        {**own, **mine},
    )
