"""What an operation of a group returns: a `torch.distributed.Work`, with a future."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from dayfly.errors import WaitTimeout
from dayfly.threads import guarded, show

#: What users hang on futures runs here, never on a thread that communicates: it may wait for
#: another operation (the PowerSGD hook does). So many threads that none of them waits for one.
_MOST_CALLBACK_THREADS = 1000
_callbacks = ThreadPoolExecutor(_MOST_CALLBACK_THREADS, thread_name_prefix="dayfly-callback")


def _settle(source: torch.futures.Future[Any]) -> None:
    """Let the futures that hang on this one go on."""
    _callbacks.submit(guarded(lambda: source.set_result(None), show))


class DayflyWork(dist.Work):
    """An operation under way. what: for errors. tensors: the future's value."""

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

    def finish(self, error: BaseException | None, sender: int = -1) -> None:
        """It is over; once. sender: of a receive from anybody."""
        self._error, self._sender = error, sender
        with self._lock:
            self._over.set()
            source = self._source
        if source is not None:
            _settle(source)

    def wait(self, timeout: dt.timedelta | None = None) -> bool:
        """Until it is over. Raises its error; WaitTimeout after `timeout`, none or 0: any time."""
        limit_s = timeout.total_seconds() if timeout else None
        if not self._over.wait(limit_s):
            raise WaitTimeout(f"{self.what} was not over within {limit_s:g} s")
        if self._error is not None:
            raise self._error
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
                    _settle(self._source)
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
