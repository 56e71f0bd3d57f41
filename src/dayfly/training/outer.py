"""DiLoCo (arXiv 2311.08105): after a round an outer optimizer takes a step by the outer gradient.

    begin        theta_0, equal at all workers, is noted
    steps        theta_i by the worker's own inner optimizer, whose state stays with it
    contribute   w_i (theta_0 - theta_i) + residual           | codec: what is lost is the residual
    sum          g over all workers
    adopt        theta_0 again, with g as its gradient; the outer optimizer's step

The outer optimizer's state follows from sums alone, so it is equal at all workers. A state between
rounds has it once, and of each worker its inner optimizer's state and its residual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dayfly.errors import RequestError, in_short
from dayfly.job import Job
from dayfly.specs.compression import Compression
from dayfly.specs.outer import NESTEROV, OF_JOB, Outer
from dayfly.training.averaging import RoundSum
from dayfly.training.compression.exchange import contributed, feed_back, loss, total
from dayfly.training.compression.topk import top_k
from dayfly.training.optimizers import (
    built,
    check_optimizer,
    load_optimizer_state,
    optimizer_state,
)
from dayfly.training.replica import Replica
from dayfly.training.state import Tensors
from dayfly.wire.codec import CODECS, Codec
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Schedule

_OUTER, _RESIDUAL, _FROM = "outer", "residual", "from."
#: Of a replica's state: the inner optimizer, in its tree and as its tensors' names begin.
_INNER = "optimizer"
#: Of a worker's own tensors: the inner optimizer's tree, as the bytes of JSON.
_TREE = "optimizer.json"


def hyperparameters(outer: Outer | None) -> dict[str, Any]:
    """Returns those that a run's settings give its outer optimizer; empty: the job has its own."""
    if outer is None or outer.name == OF_JOB:
        return {}
    return {"lr": outer.lr, "momentum": outer.momentum, "nesterov": outer.name == NESTEROV}


def outer_optimizer(outer: Outer, job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """Returns an outer optimizer over the model's trainable parameters.

    Args:
        outer: which one.
        job: that may have one of its own.
        model: of the job.

    Raises:
        RequestError: the job's own cannot be built, or is none.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    build: Any = job.outer_optimizer
    if outer.name != OF_JOB:
        # One tensor after another: what it computes with takes no memory of all together.
        build = partial(torch.optim.SGD, **hyperparameters(outer), foreach=False)
    made = built("outer_optimizer", build, parameters)
    return check_optimizer(made, parameters, "outer_optimizer")


class OuterGradients(RoundSum):
    """The mean of what parameters moved by in a round, and the outer optimizer's step.

    Args:
        replica: as of `RoundSum`.
        numbers: as of `RoundSum`.
        optimizer: the outer one, over the replica's trainable parameters.
        codec: the form of the outer gradient on the wire; None: as it is.
        feed_back: makes a contribution (P,) ready to be sent: adds what was lost before, the second
            (P,), and leaves there what is lost now; None: that is not kept.
    """

    remembers = True

    def __init__(
        self,
        replica: Replica,
        numbers: int,
        optimizer: torch.optim.Optimizer,
        codec: Codec | None = None,
        feed_back: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
    ) -> None:
        super().__init__(replica, numbers)
        self._optimizer = optimizer
        self._codec = codec
        self._feed_back = feed_back
        self._gradient_P = self.data[: sum(p.numel() for p in self._parameters)]
        self._from: list[torch.Tensor] = []
        self._residual_P = None if feed_back is None else torch.zeros_like(self._gradient_P)
        self._lost_P: torch.Tensor | None = None  # of this round, which counts from `adopt` on

    @property
    def parts(self) -> tuple[tuple[torch.Tensor, Packing | None], ...]:
        return (self._packed(0, len(self._gradient_P), len(self.data)),)

    def _packed(self, start: int, stop: int, end: int) -> tuple[torch.Tensor, Packing | None]:
        """What is summed from element `start` on: gradients up to `stop`, then exact elements."""
        if self._codec is None:
            return self.data[start:end], None
        tail = self.data[stop:end] if end > stop else None
        return self.data[start:stop], Packing(self._codec, tail)

    def begin(self) -> None:
        super().begin()
        now = [parameter.detach() for parameter in self._parameters]
        if self._from:
            torch._foreach_copy_(self._from, now)
        else:
            self._from = [parameter.clone() for parameter in now]

    def _contribute(self, weight: float) -> None:
        for parameter in self._parameters:
            parameter.grad = None  # of the last step; what follows needs as much memory
        if weight:
            rows = zip(self._from, self._parameters, self._models, strict=True)
            for start, parameter, into in rows:
                into.copy_((start - parameter.detach()).reshape(-1)).mul_(weight)
        if self._feed_back is not None and self._residual_P is not None:
            self._lost_P = self._residual_P.clone()
            self._feed_back(self._gradient_P, self._lost_P)

    def _adopt(self) -> None:
        for start, parameter, mean in zip(self._from, self._parameters, self._models, strict=True):
            parameter.copy_(start)
            parameter.grad = mean.view_as(parameter).to(parameter.device, parameter.dtype)
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None
        if self._residual_P is not None:
            self._residual_P, self._lost_P = self._lost_P, None

    def try_step(self) -> None:
        """Take a step without gradients, and look whether the state can be kept.

        Raises:
            RequestError: it cannot, or the job's own outer optimizer fails.
        """
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        try:
            self._optimizer.step()
        except Exception as error:  # of the job's code
            raise RequestError(
                f"the job's outer_optimizer fails in its first step: {in_short(error)}"
            ) from error
        for parameter in self._parameters:
            parameter.grad = None
        self.shared()

    def shared(self) -> tuple[Any, Tensors]:
        """The outer optimizer's state as JSON and tensors (not copied), equal at all workers."""
        tensors: Tensors = {}
        return optimizer_state(self._optimizer, self._replica.model, tensors, _OUTER), tensors

    def own(self) -> Tensors:
        """Beside the inner optimizer's state, what is this worker's alone between rounds."""
        return {} if self._residual_P is None else {_RESIDUAL: self._residual_P}

    def load_shared(
        self, tree: Any, tensors: Tensors, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Go on with the outer optimizer's state that `shared` gave.

        Args:
            tree: None: it is as at the beginning.
            tensors: of which the tree speaks, among others.
            settings: hyperparameters in place of those in the state; None: they stay.
        """
        if tree is None:
            return
        load_optimizer_state(self._optimizer, self._replica.model, tree, tensors)
        for group in self._optimizer.param_groups:
            group.update(settings or {})

    def load_own(self, own: Sequence[Tensors]) -> None:
        """Go on with what `own` gave, at this worker or at those whose part it takes over."""
        if self._residual_P is not None:
            total([one for one in own if _RESIDUAL in one], _RESIDUAL, self._residual_P)

    def state(self) -> tuple[Any, Tensors]:
        _, before = super().state()
        tree, outer = self.shared()
        start = {f"{_FROM}{number}": tensor for number, tensor in enumerate(self._from)}
        return tree, {**before, **outer, **start, **self.own()}

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        super().load_state(tree, tensors)
        self.load_shared(tree, tensors)
        self.load_own([tensors])
        self._from = [
            tensors[f"{_FROM}{number}"].to(parameter.device)
            for number, parameter in enumerate(self._parameters)
        ]


def travelling(
    asked: Compression, schedule: Callable[[torch.Tensor], Schedule]
) -> tuple[Codec | None, Callable[[torch.Tensor, torch.Tensor], None] | None]:
    """Returns codec and `feed_back` of `OuterGradients`.

    Args:
        asked: how outer gradients are made smaller; not powersgd.
        schedule: as of `rounding`.
    """
    if asked.codec is None:
        return None, None
    codec = CODECS[asked.codec]()
    if asked.method == "topk":
        select = partial(top_k, fraction=asked.fraction, exact=asked.exact)
        return codec, partial(feed_back, select=select)
    return codec, rounding(codec, schedule) if asked.feeds_back else None


def rounding(
    codec: Codec, schedule: Callable[[torch.Tensor], Schedule]
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Returns how a contribution is sent by a codec with error feedback; see `OuterGradients`.

    Args:
        codec: without state.
        schedule: this rank's, to sum buffers like the one given; what a rank sums up itself is not
            rounded.
    """

    def send(own_P: torch.Tensor, residual_P: torch.Tensor) -> None:
        own_P.add_(residual_P)
        residual_P.zero_()
        for span in contributed(schedule(own_P)):
            part = slice(span.start, span.stop)
            loss(codec, own_P[part], span, residual_P[part])

    return send


def parted(tree: Any, tensors: Tensors) -> tuple[Any, Tensors, Tensors]:
    """Returns a replica's state without the inner optimizer's, and that as a worker's own tensors.

    Args:
        tree: of `Replica.state`.
        tensors: of `Replica.state`; nothing is copied.
    """
    inner = tree.get(_INNER)
    if inner is None:  # nothing to train
        return tree, tensors, {}
    nothing: Any = {"$dict": []}
    shared_inner = {**inner, "state": {}, "common": nothing, "rest": nothing}
    own = {name: one for name, one in tensors.items() if name.startswith(f"{_INNER}.")}
    groups = {name for name in own if name.startswith(f"{_INNER}.groups.")}
    shared = {name: one for name, one in tensors.items() if name not in own or name in groups}
    text = bytearray(json.dumps(inner).encode())
    own[_TREE] = torch.frombuffer(text, dtype=torch.uint8)
    return {**tree, _INNER: shared_inner}, shared, own


def of_outer(own: Tensors) -> bool:
    """Returns whether a worker's own tensors are of one with an outer optimizer."""
    return _TREE in own


def joined(tree: Any, tensors: Tensors, own: Tensors) -> tuple[Any, Tensors]:
    """Returns the whole state of a replica, of what `parted` gave.

    Args:
        tree: of what is shared.
        tensors: shared ones.
        own: a worker's; empty: the optimizer is as in the tree.
    """
    if _TREE not in own:
        return tree, tensors
    inner = json.loads(own[_TREE].numpy().tobytes())
    return {**tree, _INNER: inner}, {**tensors, **own}
