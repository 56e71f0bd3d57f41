"""FuncPipe's memory, time and price of a step (section 3.4 and appendix B), and equations 1 and 2.

A model of L layers is cut behind some of them. Each stage runs on d functions, its replicas.

    i          layer, 1 to L; here 0 to L-1
    x_i        1: the model is cut behind layer i        `starts`: the layers that begin a stage
    d          replicas of each stage                    `replicas`
    M, mu      micro-batches of a step; of a replica, M/d (d divides M)       `micro_batches` is M
    s_i        parameter bytes of a layer
    a_i        activation bytes of a layer and micro-batch
    o_i, g_i   bytes of its output, and of the gradient that it sends to the layer before
    T_fc, T_bc seconds of its forward and backward pass of a micro-batch, with its stage's memory
    m_i, W     memory of a stage's functions, and bytes a second, each way
    beta       by how much computing slows down while something is transferred, 1 at least
    t_lat      latency of the store, which every transfer pays
    H          the last layers of the stages

Layers go forward from 1 to L, and the layer nearest the input is a stage's lowest.

Each lane takes its latency here as time in which it carries nothing else. dayfly has requests
overlap, so its schedules are never slower, and as fast where there is no latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from benchmarks.parts.papers.formulas.collectives import pipelined_s, scatter_reduce_s
from dayfly.planning.choose.formulas import gamma_and_delta

#: Equations 1 and 2: seconds in which n functions sum s bytes.
PLAIN_S, PIPELINED_S = scatter_reduce_s, pipelined_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """s_i, a_i, o_i, g_i in bytes and T_fc, T_bc in seconds; all but s_i of a micro-batch."""

    parameter_bytes: float
    activation_bytes: float
    output_bytes: float
    gradient_bytes: float
    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A model, how it is cut, and on what; see above.

    starts: layers that begin a stage, but for the first. bytes_per_s: of each stage's functions.
    pipelined: which scatter-reduce sums up. Raises ValueError unless all fit each other.
    """

    layers: tuple[Layer, ...]
    starts: tuple[int, ...] = ()
    replicas: int = 1
    micro_batches: int = 1
    bytes_per_s: tuple[float, ...]
    latency_s: float = 0.0
    beta: float = 1.0
    pipelined: bool = True

    def __post_init__(self) -> None:
        if list(self.starts) != sorted({*self.starts} & {*range(1, len(self.layers))}):
            raise ValueError(f"stages begin at {self.starts}: give layers 1 to the last, rising")
        if len(self.bytes_per_s) != len(self.starts) + 1:
            raise ValueError(f"{len(self.bytes_per_s)} rates for {len(self.starts) + 1} stages")
        if self.replicas < 1 or self.micro_batches < 1 or self.micro_batches % self.replicas:
            raise ValueError(f"{self.micro_batches} micro-batches for {self.replicas} replicas")
        if self.beta < 1:
            raise ValueError(f"beta is {self.beta}: computing is not faster beside transfers")

    @property
    def mu(self) -> int:
        """Micro-batches of a replica."""
        return self.micro_batches // self.replicas

    @property
    def cut_behind(self) -> tuple[bool, ...]:
        """x_1 to x_L; x_L is not a decision, but the model's end."""
        count = len(self.layers)
        return tuple(layer + 1 in self.starts or layer + 1 == count for layer in range(count))

    @property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each layer, from 0."""
        return tuple(accumulate(int(layer in self.starts) for layer in range(len(self.layers))))


def hat(values: Sequence[float], cut_behind: Sequence[bool]) -> tuple[float, ...]:
    """Equation 4: u^_1 = u_1, u^_i = u_i + u^_(i-1) (1 - x_(i-1)). A stage's sum at its last."""
    sums: list[float] = []
    for layer, value in enumerate(values):
        begins = layer == 0 or cut_behind[layer - 1]
        sums.append(value + (0 if begins else sums[-1]))
    return tuple(sums)


def tilde(values: Sequence[float], cut_behind: Sequence[bool]) -> tuple[float, ...]:
    """Equation 10: the same backwards. A stage's sum at its first layer."""
    sums: list[float] = []
    for layer in reversed(range(len(values))):
        begins = layer == len(values) - 1 or cut_behind[layer]
        sums.append(values[layer] + (0 if begins else sums[-1]))
    return tuple(reversed(sums))


def memory_bytes(pipeline: Pipeline, base_bytes: float) -> tuple[float, ...]:
    """Left side of 3b, for each stage: mu a^_i + s^_i (4 - 2 y_1) + s_0, i of H; y_1: d is 1.

    base_bytes: s_0, of a worker without a model. A stage's functions need so much memory each:
    parameters, gradients, and twice as much once more where replicas serialise them.
    """
    cuts, copies = pipeline.cut_behind, 2 if pipeline.replicas == 1 else 4
    activations = hat([layer.activation_bytes for layer in pipeline.layers], cuts)
    parameters = hat([layer.parameter_bytes for layer in pipeline.layers], cuts)
    return tuple(
        pipeline.mu * activations[last] + copies * parameters[last] + base_bytes
        for last, cut in enumerate(cuts)
        if cut
    )


def total_memory(replicas: int, memory: Sequence[float]) -> float:
    """Equation 5: c_mem = d sum m_i over H. memory: of each stage's functions, in any unit."""
    return replicas * sum(memory)


def iteration_usd(usd_per_unit_s: float, iteration_s: float, total_memory: float) -> float:
    """Equation 6: c_iter = P t_iter c_mem. usd_per_unit_s: P, of total_memory's unit."""
    return usd_per_unit_s * iteration_s * total_memory


def iteration_s(pipeline: Pipeline) -> float:
    """Equation 7: t_iter = t_f + max over i of (t_b^i + t_s^i)."""
    backward, sync = backward_s(pipeline), synchronisation_s(pipeline)
    return forward_s(pipeline) + max(map(sum, zip(backward, sync, strict=True)))


def forward_s(pipeline: Pipeline) -> float:
    """t_f = t_f^0 + (mu - 1) D_f, with equation 8.

    t_f^0 = sum t_fc + sum (t_fu + t_fd). D_f = max of all t^_fc, t_fu and t_fd: the time between
    two micro-batches at the end.
    """
    computed = [pipeline.beta * layer.forward_s for layer in pipeline.layers]
    ups, downs = _transfers_s(pipeline, [layer.output_bytes for layer in pipeline.layers])
    lag = max(*hat(computed, pipeline.cut_behind), *ups, *downs)
    return sum(computed) + sum(ups) + sum(downs) + (pipeline.mu - 1) * lag


def backward_s(pipeline: Pipeline) -> tuple[float, ...]:
    """Equation 11, t_b^i of each layer, from the start of the first backward pass.

    t_b^i = sum t_bc^k over k >= i, and t_bu^k + t_bd^k over k > i, and (mu - 1) D_b^i, which is the
    greatest of t~_bc of i to L and of t_bu and t_bd of i+1 to L. At the first layer of a stage:
    when the stage has computed all.
    """
    computed = [pipeline.beta * layer.backward_s for layer in pipeline.layers]
    # g of the layer behind the boundary; a stage reads it with the rate of the one before.
    gradients = [layer.gradient_bytes for layer in pipeline.layers[1:]] + [0.0]
    downs, ups = _transfers_s(pipeline, gradients)
    sums = tilde(computed, pipeline.cut_behind)
    return tuple(
        sum(computed[layer:])
        + sum(ups[layer:])
        + sum(downs[layer:])
        + (pipeline.mu - 1) * max(*sums[layer:], *ups[layer:], *downs[layer:])
        for layer in range(len(pipeline.layers))
    )


def synchronisation_s(pipeline: Pipeline) -> tuple[float, ...]:
    """Equation 9, t_s^i of each layer: (1 - y_1) (s~_i/W gamma + t_lat delta).

    Pipelined scatter-reduce has gamma = 2 and delta = 2 + d, plain scatter-reduce gamma = 3 - 2/d
    and delta = 4; the paper gives the former alone. They are equations 1 and 2 with n = d.
    """
    if pipeline.replicas == 1:
        return (0.0,) * len(pipeline.layers)
    gamma, delta = gamma_and_delta(pipeline.replicas, pipelined=pipeline.pipelined)
    sizes = tilde([layer.parameter_bytes for layer in pipeline.layers], pipeline.cut_behind)
    rates = [pipeline.bytes_per_s[stage] for stage in pipeline.stage_of]
    return tuple(
        gamma * size / rate + delta * pipeline.latency_s
        for size, rate in zip(sizes, rates, strict=True)
    )


def _transfers_s(pipeline: Pipeline, sizes: Sequence[float]) -> tuple[list[float], list[float]]:
    """Seconds of each layer's message over the boundary behind it, at its near and its far end.

    0 where there is none. That is t_fu, t_fd (equation 8); for gradients t_bd, t_bu of the layer
    behind (appendix B).
    """
    near: list[float] = []
    far: list[float] = []
    for layer, size in enumerate(sizes):
        crosses = layer + 1 in pipeline.starts
        stage = pipeline.stage_of[layer]
        for ends, rates in ((near, pipeline.bytes_per_s), (far, pipeline.bytes_per_s[1:])):
            ends.append(size / rates[stage] + pipeline.latency_s if crosses else 0.0)
    return near, far
