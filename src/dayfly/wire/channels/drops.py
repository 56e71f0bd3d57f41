"""Messages that are removed beside the work, as many with one request as there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dayfly.closing import Closing
from dayfly.wire.keys import Key


class Drops(Closing):
    """What is to be removed. delete: removes messages at the store, in a thread of its own.

    While one request is on its way, the next one's messages come together.
    """

    def __init__(self, delete: Callable[[Sequence[Key]], None]) -> None:
        self._delete = delete
        self._changed = threading.Condition()
        self._pending: dict[Key, None] = {}
        self._busy = False
        self._error: BaseException | None = None
        self._pool: ThreadPoolExecutor | None = None

    def add(self, keys: Iterable[Key]) -> None:
        """Remove these soon. Raises what hindered an earlier removal."""
        with self._changed:
            self._raise()
            self._pending.update(dict.fromkeys(keys))
            if self._pending and not self._busy:
                self._busy = True
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, thread_name_prefix="dayfly-drops")
                self._pool.submit(self._sweep)

    def settle(self, keys: Iterable[Key] | None = None) -> None:
        """Wait until these are removed, or all; a moment's work where none is pending."""
        if not self._pending and self._error is None:
            return
        wanted = None if keys is None else list(keys)

        def settled() -> bool:
            if wanted is None:
                return not self._pending
            return not any(key in self._pending for key in wanted)

        with self._changed:
            self._changed.wait_for(settled)
            self._raise()

    def close(self) -> None:
        """Wait for the removals that are under way, and end the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _sweep(self) -> None:
        while True:
            with self._changed:
                batch = list(self._pending)
                if not batch:
                    self._busy = False
                    return
            try:
                self._delete(batch)
            except BaseException as error:
                with self._changed:
                    self._error = error
            with self._changed:
                for key in batch:
                    self._pending.pop(key, None)
                self._changed.notify_all()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
