"""Operations of torch.distributed: tensors in, reductions, and the `Work` that they return.

A tensor of any device and layout is flat CPU memory for the time of an operation:

    contiguous, on the CPU    its own memory
    other strides             a copy, and back
    on a GPU                  pinned memory: copied there and back by a stream of its own, so that
                              neither the caller nor other kernels wait
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from dayfly.errors import WaitTimeout
from dayfly.threads import guarded, show
from dayfly.wire.summation import ADD, Fold


class StagedTensor:
    """A tensor staged. Made in the caller's thread; the rest may be called in another.

    Args:
        read: whether the operation needs what the tensor holds.
        write: whether it changes it.

    Raises:
        TypeError: layouts that have no flat memory.
    """

    def __init__(self, tensor: torch.Tensor, *, read: bool = True, write: bool = True) -> None:
        if tensor.layout is not torch.strided:
            raise TypeError(
                f"a tensor of layout {tensor.layout}: only strided ones travel, and sparse_coo in "
                "all_reduce; use to_dense()"
            )
        self.tensor = tensor = _writable(tensor)
        self._read, self._write = read, write
        # Its bytes are its elements, in their order.
        self._plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
        self._flat: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        if tensor.is_cuda:
            self._stage_out(tensor)
        elif not tensor.is_cpu:
            raise TypeError(f"a tensor on {tensor.device}: only CPU and CUDA tensors travel")
        elif self._plain:
            self._flat = tensor.detach().view(-1)

    def flat(self) -> torch.Tensor:
        """The elements (P,), contiguous on the CPU; the same memory at every call."""
        if self._stream is not None:
            if self._read:
                self._stream.synchronize()
        elif self._flat is None:
            self._flat = _memory(self.tensor)
            if self._read:
                self._flat.view(self.tensor.shape).copy_(self.tensor.detach())
        assert self._flat is not None
        return self._flat

    def put_back(self) -> None:
        """Once the operation is over: the tensor holds what the flat memory does."""
        if not self._write or self._flat is None:
            return
        with torch.no_grad():
            if self._stream is not None:
                with torch.cuda.stream(self._stream):
                    self.tensor.copy_(self._flat.view(self.tensor.shape), non_blocking=True)
                self._stream.synchronize()
            elif not self._plain:
                self.tensor.copy_(self._flat.view(self.tensor.shape))

    def _stage_out(self, tensor: torch.Tensor) -> None:
        stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        # What was asked of the tensor before comes first.
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        self._flat = _memory(tensor, pinned=True)
        if self._read:
            with torch.cuda.stream(stream):
                self._flat.view(tensor.shape).copy_(tensor.detach(), non_blocking=True)
        # Its memory is not to be given to others before the stream is done with it.
        tensor.record_stream(stream)
        self._stream = stream


def _memory(like: torch.Tensor, *, pinned: bool = False) -> torch.Tensor:
    """Room for the elements of a tensor, to which other threads may write; see `_writable`."""
    with torch.inference_mode(False):
        return torch.empty(like.numel(), dtype=like.dtype, pin_memory=pinned)


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory for other threads: `torch.inference_mode` is the caller's thread's alone."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
    alias = alias.conj() if tensor.is_conj() else alias
    return alias._neg_view() if tensor.is_neg() else alias


_Type: Any = dist.ReduceOp.RedOpType
_FOLDS: dict[Any, Fold] = {
    _Type.SUM: ADD,
    _Type.AVG: ADD,
    _Type.PREMUL_SUM: ADD,
    _Type.PRODUCT: torch.mul,
    _Type.MIN: torch.minimum,
    _Type.MAX: torch.maximum,
    _Type.BAND: torch.bitwise_and,
    _Type.BOR: torch.bitwise_or,
    _Type.BXOR: torch.bitwise_xor,
}
_BITWISE = (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)
#: Types without arithmetic of their own in torch: sums, products and bits are those of the signed.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(frozen=True, slots=True)
class Reduction:
    """A way to combine the terms of all members.

    Attributes:
        name: such as SUM.
        fold: combines two terms.
        finish: applied to the result, in place.
    """

    name: str
    fold: Fold
    finish: Callable[[torch.Tensor], object]

    def check(self, dtype: torch.dtype) -> None:
        """Raise TypeError for a type that cannot be reduced so."""
        exact = not dtype.is_floating_point and not dtype.is_complex
        ordered = self.fold in (torch.minimum, torch.maximum)
        if dtype.is_floating_point and dtype.itemsize == 1:
            raise TypeError(f"{self.name} of {dtype}: it has no arithmetic; reduce in another type")
        if ordered and (dtype.is_complex or dtype in _SIGNED):
            raise TypeError(f"{self.name} of {dtype}: torch has no order for it")
        if self.fold in _BITWISE and not exact:
            raise TypeError(f"{self.name} of {dtype}: only integers and bool have bits to combine")

    def view(self, flat_P: torch.Tensor) -> torch.Tensor:
        """The same memory (P,), as a type that torch can reduce."""
        return flat_P.view(_SIGNED.get(flat_P.dtype, flat_P.dtype))


def reduction(asked: Any, size: int) -> Reduction:
    """What a `ReduceOp` means in a group of `size` members.

    PREMUL_SUM multiplies the sum instead of its terms, which is the same but for rounding.
    """
    kind, factor = asked.__getstate__()
    if kind not in _FOLDS:
        raise ValueError(f"{kind} is no reduction that dayfly knows")

    def divide(total: torch.Tensor) -> None:
        exact = total.dtype.is_floating_point or total.dtype.is_complex
        total.div_(size, rounding_mode=None if exact else "trunc")

    def multiply(total: torch.Tensor) -> None:
        total.mul_(factor)

    finish = {_Type.AVG: divide, _Type.PREMUL_SUM: multiply}.get(kind, _nothing)
    return Reduction(kind.name, _FOLDS[kind], finish)


def _nothing(total: torch.Tensor) -> None:
    return None


#: What users hang on futures runs here, never on a thread that communicates: it may wait for
#: another operation (the PowerSGD hook does). So many threads that none of them waits for one.
_MOST_CALLBACK_THREADS = 1000
_callbacks = ThreadPoolExecutor(_MOST_CALLBACK_THREADS, thread_name_prefix="dayfly-callback")


def _settle(source: torch.futures.Future[Any]) -> None:
    """Completes a future in the thread of callbacks, so that those that wait for it go on."""
    _callbacks.submit(guarded(lambda: source.set_result(None), show))


class DayflyWork(dist.Work):
    """An operation under way.

    Args:
        what: for errors.
        tensors: the future's value.
    """

    def __init__(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.what = what
        self._tensors = list(tensors)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._source: torch.futures.Future[Any] | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._sender = -1
        self._timeout: dt.timedelta | None = None

    def limit(self, timeout: dt.timedelta) -> None:
        """Let `wait` take no longer, if it is not told how long."""
        self._timeout = timeout

    def finish(self, error: BaseException | None, sender: int = -1) -> None:
        """It is over; once.

        Args:
            sender: of a receive from anybody.
        """
        self._error, self._sender = error, sender
        with self._lock:
            self._over.set()
            source = self._source
        if source is not None:
            _settle(source)

    def wait(self, timeout: dt.timedelta | None = None) -> bool:
        """Until it is over. Raises its error; WaitTimeout after `timeout`, none or 0: any time."""
        timeout = timeout or self._timeout
        limit_s = timeout.total_seconds() if timeout else None
        if not self._over.wait(limit_s):
            raise WaitTimeout(f"Timed out waiting: {self.what} was not over within {limit_s:g} s")
        if self._error is not None:
            raise self._error
        if (future := self._future) is not None:
            future.wait()  # torch's C++ side reads its value right after this
        return True

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over."""
        return self._over.is_set()

    def is_success(self) -> bool:
        """Whether it is over, without an error."""
        return self._over.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Its error, if it has one."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors."""
        return self._tensors

    def source_rank(self) -> int:
        """Of a receive from anybody: who sent it."""
        return self._sender

    def _source_rank(self) -> int:
        return self._sender

    def get_future(self) -> torch.futures.Future[Any]:
        """Its value is the tensors. An error is raised by whoever waits for it."""
        with self._lock:
            if self._future is None:
                self._source = torch.futures.Future()
                # Only what is raised within `then` makes a future that C++ sees to have failed.
                self._future = self._source.then(self._outcome)
                if self._over.is_set():
                    self._source.set_result(None)  # nobody hangs on it yet
            return self._future

    def _outcome(self, source: torch.futures.Future[Any]) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors


class SeveralWorks(DayflyWork):
    """Several operations as one: over when the last is, with the first error."""

    def __init__(
        self, works: Sequence[DayflyWork], tensors: Sequence[torch.Tensor] | None = None
    ) -> None:
        if tensors is None:
            tensors = [tensor for work in works for tensor in work.result()]
        super().__init__("several operations", tensors)
        self._works = works
        _callbacks.submit(guarded(self._wait_for_all, self.finish))

    def _wait_for_all(self) -> None:
        error: BaseException | None = None
        for work in self._works:
            try:
                work.wait()
            except BaseException as failure:
                error = error or failure
        self.finish(error)
