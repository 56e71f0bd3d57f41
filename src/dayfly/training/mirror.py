"""A flat buffer in two places: on the device, which computes in it, and on the CPU for the wire.

    device   | g g g g g | g g g |     the backward pass writes gradients, the optimizer reads sums
                  |   out    ^ back
    CPU      | g g g g g | g g g |     the wire sums over the workers

Spans go out while the backward pass goes on, and the whole comes back once it is summed. On the CPU
both are the same memory, and nothing is copied.
"""

from __future__ import annotations

import torch

from dayfly.wire.schedule import Span


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
