"""One flat buffer for all that a step's all-reduce sums, in buckets that go out one by one.

    | gradients, the last parameter first | moves of the model's buffers | used | tail |
    |  bucket 0  |  bucket 1  |  ...      |            the last bucket                 |

The backward pass reaches the last layers first, so a bucket is whole, and can be summed over the
workers, while the gradients of the layers before it are still being computed. Gradients of
parameters are views of the buffer: the wire sends them from where the optimizer reads them. Of a
model on a GPU they are views of the buffer's mirror there.

If gradients are to be compressed, the rest is a bucket of its own, as it has to be exact.

`used` counts, a parameter each, the workers whose backward pass reached it: one that none reached
has no gradient, as in plain PyTorch, and the optimizer leaves it alone. The tail carries the loss
and the workers' wishes, so that every worker learns them in the same step, now and when it replays
the step from the message log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial, reduce

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from dayfly.errors import DayflyError
from dayfly.training.devices import device_of
from dayfly.training.moves import Moves
from dayfly.wire.schedule import BUCKET_BYTES, FIRST_BUCKET_BYTES, Span, bucket_ends, bucket_spans


class Mirror:
    """Memory that both share. here (P,): what the wire reads and writes. there (P,): the device's.

    Spans that go out are numbered from 0, anew after `begin`.
    """

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.here = self.there = torch.zeros(size, dtype=dtype)

    def begin(self) -> None:
        """All that went out was waited for."""
        return None

    def out(self, span: Span) -> None:
        """Begin to copy a span to the CPU, as it is once what the device was asked for is done."""
        return None

    def arrived(self, number: int) -> bool:
        """Whether a span that went out is whole on the CPU; never waits."""
        return True

    def wait(self, number: int) -> None:
        """Wait until a span that went out is whole on the CPU."""
        return None

    def back(self) -> None:
        """Copy the whole to the device. When this returns, the wire may write again."""
        return None


class Apart(Mirror):
    """On any device that is not the CPU; whoever sends a span out waits until it was copied."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(size, dtype)
        self.there = torch.zeros(size, dtype=dtype, device=device)

    def out(self, span: Span) -> None:
        self.here[span.start : span.stop].copy_(self.there[span.start : span.stop])

    def back(self) -> None:
        self.there.copy_(self.here)


class OnCuda(Apart):
    """On a GPU: spans go to pinned memory by a stream of their own, beside the computation."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(size, dtype, device)
        self.here = self.here.pin_memory()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._events: list[torch.cuda.Event] = []

    def begin(self) -> None:
        self._events.clear()

    def out(self, span: Span) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self.there.device))
        with torch.cuda.stream(self._stream):
            self.here[span.start : span.stop].copy_(
                self.there[span.start : span.stop], non_blocking=True
            )
            # Who waits is to sleep: several functions share the cores.
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(self._stream)
        self._events.append(event)

    def arrived(self, number: int) -> bool:
        return bool(self._events[number].query())  # type: ignore[no-untyped-call]

    def wait(self, number: int) -> None:
        self._events[number].synchronize()


def mirror(size: int, dtype: torch.dtype, device: torch.device) -> Mirror:
    """For a buffer (size,) of a model on this device; zeros."""
    if device.type == "cpu":
        return Mirror(size, dtype)
    return (OnCuda if device.type == "cuda" else Apart)(size, dtype, device)


class FlatBuffer:
    """The buffer of a model, (G + M + U + tail,): G gradient and M buffer elements, U parameters.

    Its dtype is the widest of the trainable parameters' (without any: of the buffers'), at least
    float32; gradients of another dtype are converted.

    Args:
        bucket_bytes: most bytes of the first bucket and of the others; a parameter is never cut.
        apart: let the last bucket be all that is no gradient.
        of: parameters whose gradients it has; None: all that are trained.

    Attributes:
        data: the buffer, on the CPU wherever the model is.
        buckets: its spans, in the order in which they go out.
        gradients: its views of them, in the model's order.
        reached: by this worker's backward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        tail: int,
        bucket_bytes: tuple[int, int] = (FIRST_BUCKET_BYTES, BUCKET_BYTES),
        *,
        apart: bool = False,
        of: Collection[nn.Parameter] | None = None,
    ) -> None:
        chosen = None if of is None else {id(parameter) for parameter in of}
        self.parameters = [
            p for p in model.parameters() if p.requires_grad and (chosen is None or id(p) in chosen)
        ]
        self._buffer_moves = Moves(model)
        # Of a stage that learns nothing, the statistics move nevertheless.
        dtypes = [p.dtype for p in self.parameters] or real_dtypes(model.buffers())
        dtype = reduce(torch.promote_types, dtypes, torch.float32)
        sizes = [p.numel() for p in reversed(self.parameters)]
        used = len(self.parameters)
        moving = self._buffer_moves.sizes
        whole = [*sizes, *moving, used, tail]
        self._mirror = mirror(sum(whole), dtype, device_of(model))
        self.data = self._mirror.here
        *views, self._used, self.tail = torch.split(self.data, whole)
        self.gradients = views[:used][::-1]
        # Where the device has them: the same tensors, if that is the CPU.
        views = list(torch.split(self._mirror.there, whole))
        self._gradients_there = views[:used][::-1]
        self._moves_there = views[used:-2]
        ends = bucket_ends([size * dtype.itemsize for size in sizes], *bucket_bytes)
        going_out, self.buckets = bucket_spans(sizes, ends, len(self.data), apart=apart)
        self._bucket_of = going_out[::-1]  # in the model's order
        self._missing: list[set[int]] = []
        self._sent = self._next = 0  # buckets that are whole, and that were announced
        self.reached = [False] * used
        self._ready: Callable[[int], None] | None = None
        self._hooks: list[RemovableHandle] = []

    def begin(self) -> None:
        """Before the forward pass: no gradients; where the model's buffers are is noted."""
        self._buffer_moves.begin()
        self._mirror.begin()
        self.reached = [False] * len(self.parameters)
        self._ready = None
        self._sent = self._next = 0
        for parameter in self.parameters:
            parameter.grad = None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._take, number))  # type: ignore[no-untyped-call]
            for number, parameter in enumerate(self.parameters)
        ]

    def announce(self, ready: Callable[[int], None]) -> None:
        """Before the last backward pass: call `ready(b)` as soon as bucket b is whole.

        Buckets are announced in their order, and the last one never: it is whole after `end`.
        """
        self._missing = [set() for _ in self.buckets]
        for number, bucket in enumerate(self._bucket_of):
            self._missing[bucket].add(number)
        self._ready = ready

    def lend_buffers(self) -> None:
        """Before a forward pass whose backward pass comes after others' forward passes."""
        self._buffer_moves.lend()

    def moved(self, weight: float) -> list[torch.Tensor]:
        """After that forward pass: `weight` times what each buffer moved by. They are as before."""
        moves = [torch.empty_like(one) for one in self._moves_there]
        self._buffer_moves.measure(moves, weight)
        self._buffer_moves.take_back()
        return moves

    def end(self, weight: float, moves: Sequence[torch.Tensor] | None = None) -> None:
        """After the last backward pass, of a slice that is `weight` of the batch.

        All is in `data` then. The slice's loss was weighted; a buffer moves by the weighted mean
        of its moves. Buckets with parameters that had no gradient are announced now.

        Args:
            moves: what `moved` gave of this slice; None: the buffers are where it left them.
        """
        for hook in self._hooks:
            hook.remove()
        for flag, gradient in zip(self.reached, self._gradients_there, strict=True):
            if not flag:
                gradient.zero_()
        if moves is None:
            self._buffer_moves.measure(self._moves_there, weight)
        else:
            for into, move in zip(self._moves_there, moves, strict=True):
                into.copy_(move)
        self._buffer_moves.rewind()
        self._send(len(self.buckets))
        while self._next < len(self.buckets):
            self._mirror.wait(self._next)
            self._announce_next()
        # On the CPU now: what came from the device has overwritten what was there.
        self._used.copy_(torch.tensor(self.reached))

    def spread(self) -> None:
        """After the all-reduce: every worker's gradients and buffers are the sums'."""
        self._mirror.back()
        used, sums = self._used.tolist(), self._gradients_there
        for parameter, gradient, users in zip(self.parameters, sums, used, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype) if users else None
        self._buffer_moves.apply(self._moves_there)

    def found(self) -> list[torch.Tensor]:
        """The gradients that the parameters have, after `spread`."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def members(self, bucket: int) -> list[int]:
        """Numbers of the parameters whose gradients a bucket has."""
        return [number for number, its in enumerate(self._bucket_of) if its == bucket]

    def unreached(self, bucket: int) -> list[Span]:
        """Where the gradients of a whole bucket are that this worker's backward pass left out."""
        missed = [
            gradient
            for gradient, reached, its in zip(
                self.gradients, self.reached, self._bucket_of, strict=True
            )
            if its == bucket and not reached
        ]
        starts = [int(gradient.storage_offset()) for gradient in missed]
        return [Span(at, at + len(one)) for at, one in zip(starts, missed, strict=True)]

    def _take(self, number: int, parameter: torch.Tensor) -> None:
        """A parameter's gradient is whole, for this backward pass: it belongs into the buffer."""
        gradient, found = self._gradients_there[number], parameter.grad
        assert found is not None
        bucket = self._bucket_of[number]
        if self._ready is not None and bucket < self._sent:
            raise DayflyError(
                f"a parameter of shape {list(parameter.shape)} got its gradient twice in one "
                "backward pass: if the model checkpoints activations, do it with "
                "use_reentrant=False"
            )
        if found.data_ptr() != gradient.data_ptr():
            gradient.copy_(found.reshape(-1))
            if found.dtype is gradient.dtype:
                parameter.grad = gradient.view_as(parameter)
        self.reached[number] = True
        if self._ready is not None:
            self._missing[bucket].discard(number)
            whole = self._sent
            while whole < len(self.buckets) - 1 and not self._missing[whole]:
                whole += 1
            self._send(whole)
            while self._next < whole and self._mirror.arrived(self._next):
                self._announce_next()

    def _send(self, until: int) -> None:
        """The buckets before this one are whole on the device: off to the CPU."""
        for bucket in self.buckets[self._sent : until]:
            self._mirror.out(bucket)
        self._sent = max(self._sent, until)

    def _announce_next(self) -> None:
        """The next bucket is whole on the CPU; the last one is never announced."""
        self._next += 1
        if self._ready is not None and self._next < len(self.buckets):
            self._ready(self._next - 1)


def real_dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    """Of those that are no whole numbers; complex ones count as pairs of real numbers."""
    return [t.dtype.to_real() for t in tensors if t.is_floating_point() or t.is_complex()]


def sparse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether any gradient is sparse, which a flat buffer cannot hold."""
    return any(p.grad is not None and p.grad.is_sparse for p in parameters)
