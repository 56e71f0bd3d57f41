"""How the workers of a run take steps together, described without torch.

Requests are checked, memory and time are predicted, and runs are simulated by a description; only
workers import what carries it out. A new protocol is a line in `PROTOCOLS`, or an entry point of
another package, whose value is a `ProtocolDescription`:

    [project.entry-points."dayfly.protocols"]
    mine = "my_package.my_module:MINE"
"""

from __future__ import annotations

from dataclasses import dataclass

from dayfly.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDescription:
    """A protocol: rounds of steps, with a sum over all workers at the end of each.

    Args:
        name: as `--sync` has it.
        averages: whether a round sums the models, which were trained apart since the last one. Else
            a round is one step, whose gradients are summed.
        cuts: whether a model may be cut into stages.
        hands_over_within: whether a worker may hand over to its successor within a round, keeping
            its own state.
        step: of another package, `package.module:Class`, what carries it out: a subclass of
            `dayfly.runs.protocols.base.WholeModel`, which workers import.
    """

    name: str
    averages: bool = False
    cuts: bool = False
    hands_over_within: bool = False
    step: str = ""

    def steps(self, k: int | None) -> int | None:
        """Steps of a round. k: what was asked for; None: an epoch's."""
        return k if self.averages else 1

    def refuses(self, *, k: int | str | None, compress: str, cut: bool) -> str | None:
        """Why it cannot be combined so, and what to do; None: it can.

        Args:
            k: of `--k`.
            compress: of `--compress`, checked.
            cut: whether the model is in stages.
        """
        if not self.averages and k is not None:
            return (
                f"--sync {self.name} takes no --k, and --k {k} was given: its replicas are equal "
                "after every step"
            )
        if self.averages and k is None:
            return f"--sync {self.name} needs --k: the steps between two averages, or epoch"
        if compress != "none" and self.averages:
            return (
                f"--sync {self.name} cannot have --compress {compress}, which is for gradients: it "
                "averages the models themselves, whose weights must not be rounded"
            )
        if cut and not self.cuts:
            return f"--sync {self.name} cannot have --cut: it averages replicas of the whole model"
        return None


PROTOCOLS: Registry[ProtocolDescription] = Registry(
    "protocol",
    "dayfly.protocols",
    {
        "bsp": ProtocolDescription(name="bsp", cuts=True),
        "local-sgd": ProtocolDescription(name="local-sgd", averages=True, hands_over_within=True),
    },
)
