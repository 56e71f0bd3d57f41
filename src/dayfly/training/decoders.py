"""Processes that make the batches of coming steps, beside the computation.

    function      ask 5, 6 | take 4, train | ask 7 | take 5, train | ...
    decoder 0     | 4   | 6   |                       pieces in turn
    decoder 1       | 5   | 7   |

They need pipes and fork alone: functions may have neither shared memory nor semaphores. Samples are
drawn with generators seeded for each, so the bits do not depend on who makes a batch, nor on the
number of processes. A decoder shares nothing that is open with its function: a Dataset is made anew
in it. It lives on a lifeline of the function, and its death is the function's.

What goes through the pipes is pickled, between a function and its own forks; tensors and arrays
travel beside it as bytes.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dayfly.closing import Closing
from dayfly.errors import DayflyError
from dayfly.lifeline import Lifeline, arm

if TYPE_CHECKING:
    from dayfly.training.order import Indices
    from dayfly.training.sources import Fetched, Source

#: Pieces under way for each decoder: one that it makes, and one that waits.
_UNDER_WAY = 2
#: A piece: its step, and its place in the worker's slice; keys are in the order of use.
Key = tuple[int, ...]


class Decoders(Closing):
    """Decoding processes of one worker. They are started by the first `ask`, in its thread.

    Args:
        source: of the samples; each process has its own (`Source.again`).
        count: number of processes, from 1.

    Attributes:
        ahead: pieces that it is of use to ask for, from the one that is taken next.
    """

    def __init__(self, source: Source, count: int) -> None:
        self._source = source
        self.ahead = _UNDER_WAY * count
        self._count = count
        self._lifeline: Lifeline | None = None
        self._processes: list[_Process] = []
        self._turn = 0
        self._coming: dict[Key, tuple[Future[Any], Callable[[], Any]]] = {}
        self._cpu_s: dict[int, float] = {}

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the processes took, as of the pieces that were taken."""
        return sum(self._cpu_s.values())

    def ask(self, key: Key, part: Fetched, indices: Indices, epoch: int) -> None:
        """Have a piece made, unless it is asked for already.

        Args:
            key: of the piece.
            part: what the source's `batch` needs of it, see `Source.part`.
            indices: its samples.
            epoch: from 0.
        """
        if key in self._coming:
            return
        if not self._processes:
            self._start()
        process = self._processes[self._turn % self._count]
        self._turn += 1
        future = process.pool.submit(self._call, process, (part, indices, epoch))
        self._coming[key] = future, lambda: _made(self._source, part, indices, epoch)

    def take(self, key: Key) -> Any:
        """Returns the batch of a piece that was asked for; waits for it.

        Raises:
            DayflyError: its process died.
            Exception: what the user's code raised, from the place where it did so.
        """
        future, here = self._coming.pop(key)
        made, batch = future.result()
        # What failed there is done again here, so that the error comes from the user's own line.
        return batch if made else here()

    def forget(self, before: Key) -> None:
        """Drops pieces that nobody takes any more."""
        for key in [key for key in self._coming if key < before]:
            self._coming.pop(key)[0].cancel()

    def _call(self, process: _Process, request: Any) -> tuple[bool, Any]:
        made, batch, self._cpu_s[process.pid] = process.call(request)
        return made, batch

    def _start(self) -> None:
        self._lifeline = lifeline = Lifeline()
        self._processes = [_Process.started(self._source, lifeline) for _ in range(self._count)]

    def close(self) -> None:
        """Ends the processes. May be called twice."""
        for process in self._processes:
            process.kill()
        self._processes = []
        self._coming.clear()
        if self._lifeline is not None:
            self._lifeline.close()


@dataclass(frozen=True, slots=True)
class _Process:
    """A decoder, as its function sees it; `pool` has the thread that talks to it."""

    pid: int
    to: int
    back: int
    pool: ThreadPoolExecutor

    @classmethod
    def started(cls, source: Source, lifeline: Lifeline) -> _Process:
        requests, to = os.pipe()
        back, answers = os.pipe()
        held = os.dup(lifeline.read_fd)  # a plain fork lets go of its lifelines
        with warnings.catch_warnings():  # as of Python 3.12, of threads that the fork has not
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _decode(source, requests, answers, held)
        for fd in (requests, answers, held):
            os.close(fd)
        return cls(pid, to, back, ThreadPoolExecutor(1, thread_name_prefix="dayfly-decoder"))

    def call(self, request: Any) -> tuple[bool, Any, float]:
        """Has it make a batch; returns whether it could, the batch, and its CPU seconds so far."""
        try:
            _send(self.to, request)
            answer: tuple[bool, Any, float] = _receive(self.back)
        except (OSError, EOFError) as error:
            raise DayflyError(
                f"a process that decodes samples died ({error}): if it had too little memory, "
                "lower the job's num_workers or raise --memory"
            ) from error
        return answer

    def kill(self) -> None:
        """Ends it, and the thread that talks to it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.pool.shutdown(wait=True, cancel_futures=True)
        os.close(self.to)
        os.close(self.back)


def _decode(source: Source, requests: int, answers: int, held: int) -> NoReturn:
    """Makes batches until the function closes the pipe, or dies."""
    code = 1
    try:
        _close_all_but({0, 1, 2, requests, answers, held})
        arm(held)
        os.close(held)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the function decides what ends
        gc.freeze()  # what it has open was closed here: nothing of that may be finalized
        torch.set_num_threads(1)  # a fork has none of the others
        own = source.again()
        while True:
            try:
                part, indices, epoch = _receive(requests)
            except EOFError:
                break
            try:
                made, batch = True, _made(own, part, indices, epoch)
            except Exception:
                made, batch = False, None
            _send(answers, (made, batch, time.process_time()))
        code = 0
    except BrokenPipeError:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _made(source: Source, part: Fetched, indices: Indices, epoch: int) -> Any:
    return source.batch(part, indices, range(len(indices)), epoch)


def _close_all_but(kept: set[int]) -> None:
    """Closes what was open at the fork: what others hold open would seem to live on."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            with suppress(OSError):  # that of the listing itself is closed already
                os.close(fd)


class _Pickler(pickle.Pickler):
    """Tensors as bytes beside the pickle."""

    def reducer_override(self, value: Any) -> Any:
        plain = isinstance(value, torch.Tensor) and type(value) is torch.Tensor
        if not plain or value.layout is not torch.strided or value.requires_grad:
            return NotImplemented
        flat = value.contiguous().reshape(-1).view(torch.uint8)
        return _tensor, (pickle.PickleBuffer(flat.numpy()), value.dtype, tuple(value.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not len(memoryview(buffer)):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _send(fd: int, value: Any) -> None:
    """Writes a value: the number of its parts, their lengths, and they, of which the first is the
    pickle."""
    stream, buffers = BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [memoryview(stream.getbuffer()), *(one.raw() for one in buffers)]
    lengths = [len(part) for part in parts]
    _write(fd, memoryview(struct.pack(f"<Q{len(parts)}Q", len(parts), *lengths)))
    for part in parts:
        _write(fd, part)


def _write(fd: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(fd, data) :]


def _receive(fd: int) -> Any:
    """Reads what `_send` wrote. Raises EOFError if nothing more comes."""
    (count,) = struct.unpack("<Q", _read(fd, 8))
    lengths = struct.unpack(f"<{count}Q", _read(fd, 8 * count))
    data, *buffers = [_read(fd, length) for length in lengths]
    return pickle.loads(data, buffers=buffers)


def _read(fd: int, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while len(view):
        taken = os.readv(fd, [view])
        if not taken:
            raise EOFError("it sent nothing more")
        view = view[taken:]
    return data
