"""How the workers of a run take steps together, described without torch.

Requests are checked, memory and time are predicted, and runs are simulated by a description; only
workers import what carries it out. A new protocol is a line in `PROTOCOLS` and its class in
`dayfly.runs.protocols`, or an entry point of another package, whose value is a
`ProtocolDescription`:

    [project.entry-points."dayfly.protocols"]
    mine = "my_package.my_module:MINE"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dayfly.registry import Registry
from dayfly.specs.compression import compression
from dayfly.specs.outer import AVERAGE, NESTEROV
from dayfly.specs.streaming import Streaming


class Part(Enum):
    """A part of a replica."""

    GRADIENTS = "gradients"
    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDescription:
    """A sum over all workers, or over all replicas of a stage.

    Args:
        parts: of the model that are summed, in one buffer.
        every_step: at the end of each step, in buckets that leave while the backward pass still
            runs, and as `--compress` says. Else once a round, after its steps, as it is.
    """

    parts: frozenset[Part]
    every_step: bool = False


#: The mean of the gradients, and what buffers moved by.
OF_GRADIENTS = ExchangeDescription(parts=frozenset({Part.GRADIENTS, Part.BUFFERS}), every_step=True)
#: The mean of the replicas, which were trained apart since the last one.
OF_REPLICAS = ExchangeDescription(parts=frozenset({Part.PARAMETERS, Part.BUFFERS, Part.OPTIMIZER}))
#: The mean of what parameters moved by in a round, the outer gradient, and what buffers moved by.
OF_OUTER_GRADIENTS = ExchangeDescription(parts=frozenset({Part.PARAMETERS, Part.BUFFERS}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDescription:
    """A protocol: rounds of steps, with a sum over all workers at the end of each.

    Args:
        name: as `--sync` has it.
        exchanges: what is summed, and when: time, memory, requests and bytes of predictions follow
            from it. Exactly one: of every step, or of a round.
        holds: parts of which a worker holds one more beside all that, such as the parameters of the
            last round. A part that is named twice is held twice.
        keeps: those of them that are in a run checkpoint, equal at all workers.
        own: parts that differ between workers even after an exchange: a run checkpoint has each
            worker's, and one that catches up computes its rounds again.
        compresses: what `--compress` may be, so that the exchange of a round travels by it; what
            follows a colon is any.
        outer: what it is with an outer optimizer; None: it takes none.
        streamed: what it is if the exchange of a round is streamed in fragments; None: it cannot.
        streaming: how that is done; None: the exchange is at the end of the round.
        cuts: whether a model may be cut into stages.
        leaves: whether a worker may compute several leaves of a batch apart, for virtual workers.
        weighs: whether workers may have unequal shares of each batch.
        staleness: steps by which some workers lag behind those that sum. They are the workers from
            number K on, and sums are made by k-reduce. 0: all take each sum at once.
        hands_over_within: whether a worker may hand over to its successor within a round, keeping
            its own state.
        step: of another package, `package.module:Class`, what carries it out: a subclass of
            `dayfly.runs.protocols.base.WholeModel`, which workers import. Of dayfly's own, what
            `dayfly.runs.protocols` calls it; empty: by its name.
    """

    name: str
    exchanges: tuple[ExchangeDescription, ...] = (OF_GRADIENTS,)
    holds: tuple[Part, ...] = ()
    keeps: tuple[Part, ...] = ()
    own: tuple[Part, ...] = ()
    compresses: tuple[str, ...] = ()
    outer: ProtocolDescription | None = None
    streamed: ProtocolDescription | None = None
    streaming: Streaming | None = None
    cuts: bool = False
    leaves: bool = False
    weighs: bool = False
    staleness: int = 0
    hands_over_within: bool = False
    step: str = ""

    def by(self, outer: str | None, streaming: Streaming | None = None) -> ProtocolDescription:
        """Returns what it is with this outer optimizer, or without one.

        Args:
            outer: of `--outer`, known by `specs.outer`; None: not given.
            streaming: of `--fragments` and `--overlap`; None: not given.
        """
        found = self if outer in (None, AVERAGE) or self.outer is None else self.outer
        if streaming is None or found.streamed is None:
            return found
        return replace(found.streamed, streaming=streaming)

    def refuses_outer(self, outer: str | None) -> str | None:
        """Why it cannot have this outer optimizer, and what to do; None: it can.

        Args:
            outer: of `--outer`, known by `specs.outer`; None: not given.
        """
        if outer is None or self.outer is not None or (self.averages and outer == AVERAGE):
            return None
        return (
            f"--sync {self.name} takes no --outer, and --outer {outer} was given: give "
            "--sync local-sgd --k N, too, or leave it out"
        )

    @property
    def ahead(self) -> int:
        """Rounds by which a worker may be ahead of a sum: what is wished for in a round is granted
        so many rounds later."""
        overlaps = self.streaming is not None and self.streaming.overlap > 0
        return max(self.staleness, int(overlaps))

    @property
    def of_round(self) -> ExchangeDescription | None:
        """The exchange at the end of a round; None: each step sums its gradients."""
        return next((one for one in self.exchanges if not one.every_step), None)

    @property
    def averages(self) -> bool:
        """Whether replicas are trained apart between two exchanges."""
        return self.of_round is not None

    def steps(self, k: int | None) -> int | None:
        """Returns the steps of a round.

        Args:
            k: what was asked for; None: an epoch's.
        """
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
        methods = {"none", *(one.partition(":")[0] for one in self.compresses)}
        if self.averages and compress.partition(":")[0] not in methods:
            if self.compresses:
                return (
                    f"--sync {self.name} with an outer optimizer cannot have --compress "
                    f"{compress}: give one of {', '.join(self.compresses)}, or leave it out"
                )
            outer = f" (--outer {NESTEROV} sends what may be)" if self.outer is not None else ""
            return (
                f"--sync {self.name} cannot have --compress {compress}, which is for gradients: it "
                f"averages the models themselves, whose weights must not be rounded{outer}"
            )
        if cut and not self.cuts:
            return f"--sync {self.name} cannot have --cut: its workers hold the whole model"
        return None

    def refuses_sums(
        self, *, workers: int, aggregators: int | None, collective: str | None, compress: str
    ) -> str | None:
        """Why its workers cannot sum so, and what to do; None: they can.

        Args:
            workers: how many.
            aggregators: K, of `--aggregators`; None: not given.
            collective: of `--collective`; None: not given.
            compress: of `--compress`, checked.
        """
        if not self.staleness:
            return None
        which = f"--sync {self.name}"
        if workers < 2:
            return f"{which} needs workers that lag behind others: give --workers 2 or more, or bsp"
        if collective not in (None, "k-reduce"):
            return (
                f"{which} sums by k-reduce, and --collective {collective} was given: leave it out"
            )
        if aggregators is None:
            return f"{which} needs --aggregators: how many of the workers sum, 1 to {workers - 1}"
        if aggregators == workers:
            return (
                f"{which} --aggregators {aggregators} of {workers} workers leaves none that lags "
                f"behind: that is --sync bsp --collective k-reduce --aggregators {aggregators}"
            )
        if not 1 <= aggregators < workers:
            return f"{which} --aggregators {aggregators}: give 1 to {workers - 1}"
        if compression(compress).method == "significance":
            return (
                f"{which} cannot have --compress {compress}, which goes by learning rates, and "
                "workers that lag have those of another step: give another, such as topk:0.01"
            )
        if compression(compress).method == "powersgd":
            return (
                f"{which} cannot have --compress {compress}, whose second sum needs the first one "
                "of its step at all workers: give another, such as int8"
            )
        return None


def refuses_idle(shares: Sequence[int], aggregators: int | None) -> str | None:
    """Why workers without a share of the batches cannot be, and what to do; None: they can.

    An aggregator without a share is standalone: it sums, and trains nothing.

    Args:
        shares: of the batches, one a worker; empty: they are equal.
        aggregators: workers that sum, the first so many; None: all do.
    """
    idle = [rank for rank, share in enumerate(shares) if not share]
    if not idle:
        return None
    given = f"--shares {','.join(map(str, shares))}"
    if len(idle) == len(shares):
        return f"{given} leaves nobody to train: give a worker a share from 1"
    if aggregators is None or idle[-1] >= aggregators:
        return (
            f"{given}: worker {idle[-1]} would train nothing and sum nothing for others: give it a "
            f"share from 1, or make it an aggregator by --sync hap --aggregators {idle[-1] + 1}"
        )
    return None


#: Streaming DiLoCo (arXiv 2501.18512). A run checkpoint has the outer parameters as its model, and
#: of each worker its own, from which it goes on.
_STREAMED = ProtocolDescription(
    name="local-sgd",
    exchanges=(OF_OUTER_GRADIENTS,),
    holds=(Part.PARAMETERS, Part.PARAMETERS),
    keeps=(Part.PARAMETERS,),
    own=(Part.PARAMETERS, Part.BUFFERS, Part.OPTIMIZER),
    compresses=("bf16", "int8", "int4", "topk:FRACTION"),
    step="streaming",
)
#: DiLoCo (arXiv 2311.08105). Held beside: the parameters of the round's start, and the outer
#: momentum, as large, which alone is in a run checkpoint, as between rounds the other is the model.
OUTER = ProtocolDescription(
    name="local-sgd",
    exchanges=(OF_OUTER_GRADIENTS,),
    holds=(Part.PARAMETERS, Part.PARAMETERS),
    keeps=(Part.PARAMETERS,),
    own=(Part.OPTIMIZER,),
    compresses=("bf16", "int8", "int4", "topk:FRACTION"),
    streamed=_STREAMED,
    hands_over_within=True,
    step="outer",
)

PROTOCOLS: Registry[ProtocolDescription] = Registry(
    "protocol",
    "dayfly.protocols",
    {
        "bsp": ProtocolDescription(name="bsp", cuts=True, leaves=True, weighs=True),
        "hap": ProtocolDescription(name="hap", weighs=True, staleness=1),
        "local-sgd": ProtocolDescription(
            name="local-sgd", exchanges=(OF_REPLICAS,), outer=OUTER, hands_over_within=True
        ),
    },
)
