"""Memory that a function of a stage needs and FuncPipe's equation 3b leaves out.

Equation 3b has mu a + copies s + s_0. A worker holds more in the middle of a step
(`planning.memory.Holding` says where):

    t       the largest gradient of one parameter, before it is added to the others
    p       what a pass needs beside activations: what one layer gets and passes on, or more; and
            buffers as they were before it
    o, g    messages: each output that was sent, until its gradient comes, and those that come in
            and go out ahead of their passes
    w       contributions of the sums that are under way, if there are replicas: of the collective
            that holds most, as a plan may have either
    x       samples that the first stage reads ahead

In a stage with one large layer this can be more than all else. If every stage had to keep room for
it, needed or not, the search would leave out the best plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dayfly.planning.choose.arrays import Array
from dayfly.planning.configuration import AHEAD


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtraMemory:
    """In bytes, by the last and the first layer of a stage, which are the last two axes.

    Attributes:
        once: (J, L, L), by memory option: t and p, and what does not depend on layers.
        sums: (M + 1, L, L), by replicas: w.
        samples: (M + 1,), by replicas: x.
        outputs, gradients: (L,), o and g of each layer and micro-batch.
    """

    once: Array
    sums: Array
    samples: Array
    outputs: Array
    gradients: Array


def extra_bytes(
    extra: ExtraMemory | None, last: Any, first: Any, option: Any, mu: Any, replicas: Any
) -> tuple[Any, Any]:
    """Returns extra bytes of a stage for each micro-batch that it holds, and once; elementwise.

    Args:
        extra: of the problem; None: equation 3b is all there is.
        last, first: layers of the stages.
        option: index of their functions' memory option.
        mu: micro-batches of a step and a replica.
        replicas: of the stages.
    """
    if extra is None:
        return 0.0, 0.0
    sent = np.where(last < len(extra.outputs) - 1, extra.outputs[last], 0.0)
    back = np.where(first > 0, extra.gradients[first], 0.0)
    ahead = 2 * np.minimum(AHEAD, mu - 1) * np.maximum(sent, back)
    samples = np.where(first > 0, 0.0, extra.samples[replicas])
    once = extra.once[option, last, first] + extra.sums[replicas, last, first]
    return sent, once + ahead + samples
