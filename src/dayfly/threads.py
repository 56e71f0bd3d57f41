"""Threads that do not end in silence: an exception nobody expected fails what waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Told the exception that ended a thread; from then on whoever waits for the thread must raise.
Failed = Callable[[BaseException], None]


def start_thread(run: Callable[[], None], *, name: str, failed: Failed) -> threading.Thread:
    """Starts a daemon thread that runs `run`, guarded.

    Args:
        run: what it does.
        name: of the thread.
        failed: see `guarded`.

    Raises:
        RuntimeError: the system gives no thread.
    """
    thread = threading.Thread(target=guarded(run, failed), name=name, daemon=True)
    thread.start()
    return thread


def guarded(run: Callable[[], None], failed: Failed) -> Callable[[], None]:
    """Returns `run` for a thread, such that an exception is shown with its traceback and told.

    Args:
        run: what the thread does.
        failed: told the exception, in the thread that it ended.
    """

    def run_guarded() -> None:
        try:
            run()
        except BaseException as error:
            try:
                show(error)
            finally:
                failed(error)

    return run_guarded


def show(error: BaseException) -> None:
    """Shows an exception with its traceback, as those that end a thread are shown."""
    thread = threading.current_thread()
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
    )
