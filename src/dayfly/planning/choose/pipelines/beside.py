"""What a function of a stage holds beside what FuncPipe's equation 3b has.

Equation 3b has mu a + copies s + s_0. A worker holds more in the middle of a step
(`planning.memory.Holding` says where):

    t       the largest gradient of one parameter, before it is added to the others
    p       what a layer gets and passes on, of the layer of which that is most
    o, g    messages: each output that was sent, until its gradient comes, and those that come in
            and go out ahead of their passes
    w       contributions of the sums that are under way, if there are replicas: of the collective
            that holds most, as a plan may have either

Of a large layer that is more than all the rest of a stage. Room for it in every stage, needed or
not, would leave out the best plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dayfly.planning.choose.arrays import Array

#: Messages that come in, and that go out, ahead of a pass (`planning.memory`).
_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """In bytes; arrays are (L, L), by the last and the first layer of a stage.

    Attributes:
        once: t and p, and what does not depend on layers.
        summed: of buffers that are summed at once.
        outputs, gradients: (L,), o and g of each layer and micro-batch.
        shares: by replicas of a stage, w for each byte that is summed at once.
    """

    once: Array
    summed: Array
    outputs: Array
    gradients: Array
    shares: Array


def held_beside(
    beside: Beside | None, last: Any, first: Any, mu: Any, replicas: Any
) -> tuple[Any, Any]:
    """Returns bytes of stages for each micro-batch that they hold, and beside these; elementwise.

    Args:
        beside: of the problem; None: equation 3b is all there is.
        last, first: layers of the stages.
        mu: micro-batches of a step and a replica.
        replicas: of the stages.
    """
    if beside is None:
        return 0.0, 0.0
    sent = np.where(last < len(beside.outputs) - 1, beside.outputs[last], 0.0)
    back = np.where(first > 0, beside.gradients[first], 0.0)
    ahead = 2 * np.minimum(_AHEAD, mu - 1) * np.maximum(sent, back)
    summed = beside.shares[replicas] * beside.summed[last, first]
    return sent, beside.once[last, first] + ahead + summed
