"""Runs a program in this process as the interpreter would that was started with it."""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NoReturn

#: Names of our own threads begin so.
_OWN_THREADS = "dayfly"


def run_as_main(
    source: bytes, file: str, module: str | None, args: Sequence[str], cwd: Path
) -> None:
    """Run a program until its threads and its exit functions are through.

    module: its full name if it is run by that, as by `python -m`; its package is imported first.
    Raises what the program raises, but not SystemExit that stands for success. A process that the
    program forked, and that comes to its end here, too, ends.
    """
    __tracebackhide__ = True
    os.chdir(cwd)
    sys.argv[:] = [file, *args]
    sys.path.insert(0, str(cwd if module is not None else Path(file).resolve().parent))
    importlib.invalidate_caches()
    main = _main_module(file, module)
    others, own = set(threading.enumerate()), os.getpid()
    sys.modules["__main__"] = main
    try:
        _run(source, file, main, others)
    except BaseException as error:
        if os.getpid() != own:
            _end_fork(error)
        raise
    if os.getpid() != own:
        _end_fork(None)


def _run(source: bytes, file: str, main: ModuleType, others: set[threading.Thread]) -> None:
    __tracebackhide__ = True
    try:
        try:
            exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)
        except SystemExit as exit:
            if exit.code is not None and exit.code != 0:
                raise
        _wait_for_threads(others)
    finally:
        # A function's process ends without them otherwise.
        atexit._run_exitfuncs()


def _end_fork(error: BaseException | None) -> NoReturn:
    """As the interpreter ends: what comes after the program is its parent's to do."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        code = error.code & 0xFF
    elif isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _main_module(file: str, module: str | None) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__dict__["__builtins__"] = builtins
    main.__dict__["__cached__"] = None
    if module is None:
        main.__package__ = None
        return main
    package = module.rpartition(".")[0]
    main.__package__ = package
    main.__spec__ = spec_from_file_location(module, file)
    if package:
        importlib.import_module(package)
    return main


def _wait_for_threads(others: set[threading.Thread]) -> None:
    """As the interpreter does: work that waits in pools is done, and threads come to their end.

    Ours, and the threads of our pools, end when they are told to, and are still at work.
    """
    for pool in [one for one in gc.get_objects() if isinstance(one, ThreadPoolExecutor)]:
        if not getattr(pool, "_thread_name_prefix", _OWN_THREADS).startswith(_OWN_THREADS):
            pool.shutdown(wait=True)
    for thread in set(threading.enumerate()) - others - {threading.current_thread()}:
        if not (thread.daemon or thread.name.startswith(_OWN_THREADS)):
            thread.join()
