"""In which order a stage computes the passes of its micro-batches.

4 micro-batches on 3 stages; n is the forward pass of micro-batch n, n' its backward pass, which
here takes as long, and nothing is the bubble:

    fill-drain
    stage 0 |0 |1 |2 |3 |  |  |  |  |0'|1'|2'|3'|
    stage 1 |  |0 |1 |2 |3 |  |  |0'|1'|2'|3'|  |
    stage 2 |  |  |0 |1 |2 |3 |0'|1'|2'|3'|  |  |

    1F1B
    stage 0 |0 |1 |2 |  |  |0'|3 |1'|  |2'|  |3'|
    stage 1 |  |0 |1 |  |0'|2 |1'|3 |2'|  |3'|  |
    stage 2 |  |  |0 |0'|1 |1'|2 |2'|3 |3'|  |  |

A stage holds the activations of all micro-batches by fill-drain, and by 1F1B of as many as there
are stages from it on. Both take as long here, where sending takes no time. Where it does, 1F1B pays
for the way to the next stage and back with every few micro-batches, and fill-drain once.

Backward passes are in the order of micro-batches in both, so that gradients are added in one order
and have the same bits. (torchgpipe goes through them from the last to the first.)

Sources: fill-drain is GPipe's (Huang et al. 2019) and FuncPipe's (section 3). 1F1B with a flush
after each step is PipeDream-Flush (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN
Training"), which Megatron-LM took over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from dayfly.wire.schedule import Work, check_rank

#: What a stage computes of a micro-batch, in `Work.what`.
FORWARD, BACKWARD = "forward", "backward"
#: Names of the orders of training, in `--schedule`.
FILL_DRAIN, ONE_F_ONE_B = "fill-drain", "1f1b"


class MakeOrder(Protocol):
    """The passes that one of so many stages computes, in their order.

    Args:
        micro_batches: their numbers, such as `range(4)`, in the order in which they are to be
            computed.

    Raises:
        ValueError: there is no such stage.
    """

    def __call__(
        self, stage: int, stages: int, micro_batches: Sequence[int]
    ) -> tuple[Work, ...]: ...


def fill_drain(stage: int, stages: int, micro_batches: Sequence[int]) -> tuple[Work, ...]:
    """All forward passes, then all backward passes; see `MakeOrder`."""
    check_rank(stage, stages)
    return (*_passes(FORWARD, micro_batches), *_passes(BACKWARD, micro_batches))


def one_f_one_b(stage: int, stages: int, micro_batches: Sequence[int]) -> tuple[Work, ...]:
    """As many forward passes as stages follow, then one forward, one backward; see `MakeOrder`."""
    check_rank(stage, stages)
    warm_up = min(stages - 1 - stage, len(micro_batches))
    forwards, backwards = _passes(FORWARD, micro_batches), _passes(BACKWARD, micro_batches)
    steady = zip(forwards[warm_up:], backwards, strict=False)
    paired = len(forwards) - warm_up
    return (*forwards[:warm_up], *chain.from_iterable(steady), *backwards[paired:])


def forward_only(stage: int, stages: int, micro_batches: Sequence[int]) -> tuple[Work, ...]:
    """The forward passes alone, as for validation; see `MakeOrder`."""
    check_rank(stage, stages)
    return _passes(FORWARD, micro_batches)


def in_waves(
    make: MakeOrder, stage: int, stages: int, waves: Sequence[Sequence[int]]
) -> tuple[Work, ...]:
    """Returns an order of waves, each of them as the passes of its micro-batches one by one.

    Args:
        make: the order in which waves are computed, as if each were a micro-batch.
        waves: numbers of the micro-batches of each.
    """
    order = make(stage, stages, range(len(waves)))
    return tuple(Work(one.what, number) for one in order for number in waves[one.micro_batch])


#: Orders of training, by the name in `--schedule`.
ORDERS: dict[str, MakeOrder] = {FILL_DRAIN: fill_drain, ONE_F_ONE_B: one_f_one_b}


def most_held(schedule: str, micro_batches: int, stages_on: int) -> int:
    """Returns the micro-batches whose forward pass is done and backward pass is not, at most.

    Args:
        schedule: a name of `ORDERS`.
        micro_batches: of a step and a replica.
        stages_on: stages from this one to the last, both included.
    """
    return min(micro_batches, stages_on) if schedule == ONE_F_ONE_B else micro_batches


def most_of_wave(most: int, replicas: int) -> int:
    """Returns the micro-batches of a wave that one replica of a stage has, at most (`routes`).

    Args:
        most: replicas of the stage that has the most.
        replicas: of the stage.
    """
    return -(-most // replicas) + (most % replicas > 0)


def _passes(what: str, micro_batches: Sequence[int]) -> tuple[Work, ...]:
    return tuple(Work(what, number) for number in micro_batches)
