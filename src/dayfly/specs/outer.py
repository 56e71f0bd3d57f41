"""Outer optimizers: what replicas that trained apart become, by name and settings, without torch.

    theta_0                parameters at the start of a round, equal at all workers
    theta_i                those of worker i after its k inner steps, with its own inner optimizer
    w_i                    its share of the round's samples; the sum of all is 1

    average      theta = sum of w_i theta_i, and likewise the optimizer's state (KubeML 3.5)
    the others   g     = sum of w_i (theta_0 - theta_i)            the outer gradient
                 theta = outer optimizer's step from theta_0, with g as its gradient
                 m     = momentum m + g
                 theta = theta_0 - lr m                            momentum
                 theta = theta_0 - lr (g + momentum m)             nesterov

DiLoCo (arXiv 2311.08105, algorithm 1) is `nesterov`, with the learning rate and momentum that it
found best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dayfly.specs.streaming import Streaming

#: Replicas become their mean; there is no outer optimizer.
AVERAGE = "average"
#: torch's SGD as outer optimizer, with Nesterov's momentum, and with the plain one.
NESTEROV, MOMENTUM = "nesterov", "momentum"
#: The outer optimizer is the job's own.
OF_JOB = "job"
_NAMES = (AVERAGE, NESTEROV, MOMENTUM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """An outer optimizer.

    Args:
        name: `nesterov`, `momentum`, or `job` for the job's own.
        lr: its learning rate.
        momentum: its momentum.
        streaming: how outer gradients are streamed; None: all are exchanged at a round's end.
    """

    name: str = NESTEROV
    lr: float = 0.7
    momentum: float = 0.9
    streaming: Streaming | None = None

    @property
    def words(self) -> str:
        """All of it as flags."""
        said = f"--outer {self.name} --outer-lr {self.lr:g} --outer-momentum {self.momentum:g}"
        if (streaming := self.streaming) is None:
            return said
        return f"{said} --fragments {streaming.fragments} --overlap {streaming.overlap}"

    @classmethod
    def of(
        cls,
        name: str | None,
        lr: float | None,
        momentum: float | None,
        streaming: Streaming | None = None,
    ) -> Outer | None:
        """Returns what was asked for; None: no outer optimizer.

        Args:
            name: of `--outer`; None: not given.
            lr: of `--outer-lr`; None: the usual one.
            momentum: of `--outer-momentum`; None: the usual one.
            streaming: of `--fragments` and `--overlap`.
        """
        if name is None or name == AVERAGE:
            return None
        usual = cls(name=name, streaming=streaming)
        return replace(
            usual,
            lr=usual.lr if lr is None else lr,
            momentum=usual.momentum if momentum is None else momentum,
        )


def refuses(name: str | None, lr: float | None, momentum: float | None) -> str | None:
    """Why there is no such outer optimizer, and what to do; None: there is one.

    Args:
        name: of `--outer`; None: not given.
        lr: of `--outer-lr`; None: not given.
        momentum: of `--outer-momentum`; None: not given.
    """
    if name is not None and name not in (*_NAMES, OF_JOB):
        return f"--outer {name}: give one of {', '.join(_NAMES)}"
    for flag, value in (("--outer-lr", lr), ("--outer-momentum", momentum)):
        if value is not None and name not in (NESTEROV, MOMENTUM):
            return f"{flag} {value:g} is for --outer {NESTEROV} and {MOMENTUM}: add one of them"
    if lr is not None and not 0 < lr < math.inf:
        return f"--outer-lr {lr:g}: give a number above 0, such as 0.7"
    if momentum is not None and not 0 < momentum < 1:
        return f"--outer-momentum {momentum:g}: give a number between 0 and 1, such as 0.9"
    return None
