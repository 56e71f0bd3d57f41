"""A function that runs a script as `python script.py` would, at one end of the wire."""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import torch.distributed as dist

from dayfly.closing import Closing
from dayfly.errors import DayflyError, RunFailed
from dayfly.life.faults import Faults
from dayfly.life.heartbeats import Heartbeats
from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import DONE, KEPT_BY_RUN, Reporter
from dayfly.runs.made_with import check_function
from dayfly.runs.scripts.environment import ScriptTask, prepare
from dayfly.runs.scripts.process import Leave, ScriptProcess, running
from dayfly.runs.scripts.record import digest_of
from dayfly.runs.workplace import site_of
from dayfly.threads import start_thread
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.process_group.endpoint import Endpoint, join, leave
from dayfly.wire.shaped import shaped_channel, shaped_store
from dayfly.wire.shaping import ShapedLink
from dayfly.wire.stores import open_store

#: When a function first tells what it moved, in seconds: of one that is killed, what it has told is
#: all that is known.
_TELL_FIRST_S = 0.05


def main(payload: Json, context: Context) -> Json:
    """The handler of a function that runs a script.

    Raises what the script raises, SystemExit too unless it stands for success, and RunFailed if the
    script's file is another one by now, or this machine computes otherwise than the run.
    """
    __tracebackhide__ = True
    began = time.monotonic()
    task = ScriptTask.load(payload)
    store = open_store(task.store)
    faults = Faults(task.faults, task.rank, store)
    faults.at(task.generation, "start")
    source = _source(task)
    other = check_function(task.made_with, allow_other=task.allow_other_cpu)
    site = site_of(task.channel, store, task.run, task.generation, task.token)
    way = ShapedLink(task.rates) if task.rates is not None else None
    channel = shaped_channel(channel_kind(task.channel).open(site, task.rank), way)
    traffic = _TrafficReporter(channel, task, context, began, other)
    who, beat_s = (task.rank, context.attempt, task.world_size), task.pace.heartbeat_s
    heartbeats = Heartbeats(channel, traffic.reporter, *who, beat_s, over=_end_process)
    channel = heartbeats.channel
    join(
        Endpoint(
            channel=channel,
            rank=task.rank,
            world_size=task.world_size,
            wait_timeout_s=task.wait_timeout_s,
        )
    )
    process = ScriptProcess(
        task=task,
        channel=channel,
        store=shaped_store(store, way),
        context=context,
        faults=faults,
        reporter=traffic.reporter,
        heartbeats=heartbeats,
        began=began,
    )
    result: Json = {"status": DONE}
    try:
        with prepare(task, channel=channel, context=context), running(process):
            try:
                run_as_main(source, task.script, task.module, task.args, Path(task.cwd))
            except Leave as end:
                kept = KEPT_BY_RUN if end.kept else None
                result = {"status": end.status, "step": end.step, "kept": kept, "error": None}
            process.close()
            if dist.is_initialized():
                dist.destroy_process_group()
    except BaseException:
        # The process ends at once, so nothing else has to be let go of: to close the channel may
        # take as long as the peers need to read what is in it.
        with suppress(DayflyError):  # the first error is the one that counts
            heartbeats.close()
            traffic.close()
        raise
    leave()
    faults.at(task.generation, "end")
    heartbeats.close()
    traffic.close()
    channel.close()
    return result


def _end_process(why: str) -> NoReturn:
    """Ends an attempt that is of no use any more, whatever its script does: what that writes would
    lie among the files of the attempt that follows."""
    print(f"dayfly: this attempt of the script ends: {why}", flush=True)
    os._exit(1)


def _source(task: ScriptTask) -> bytes:
    source = Path(task.script).read_bytes()
    if digest_of(source) != task.digest:
        raise RunFailed(
            f"{task.script} has changed since the run began: put it back and go on with --resume, "
            "or begin a new run"
        )
    return source


def telling_pauses_s(most_s: float) -> Iterator[float]:
    """Seconds between two looks at what was moved: twice as long each time, up to `most_s`.

    So what is known of a function that is killed early is about half of what it moved, not nothing.
    """
    pause_s = _TELL_FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, most_s)


class _TrafficReporter(Closing):
    """Tells the coordinator that this function began, and now and then what it moved.

    other: what to say of a machine that is another than the run's.
    """

    def __init__(
        self,
        channel: Channel,
        task: ScriptTask,
        context: Context,
        began: float,
        other: str | None,
    ) -> None:
        self._traffic = channel.traffic
        self.reporter = Reporter(channel, task.rank, context.attempt)
        self._every_s = task.report_s
        self._closing = threading.Event()
        if other is not None:
            self.reporter.add("other cpu", text=other)
        self.reporter.add("start", urgent=True, step=0, seconds=time.monotonic() - began)
        self._failure: BaseException | None = None
        self._pid = os.getpid()
        self._thread = start_thread(self._run, name="dayfly-traffic", failed=self._failed)

    def _run(self) -> None:
        told = self._traffic.counters()
        pauses_s = telling_pauses_s(self._every_s)
        while not self._closing.wait(next(pauses_s)):
            if self._traffic.counters() == told:
                continue
            try:
                self.reporter.add("alive", urgent=True)
            except DayflyError as error:  # what the script itself asks of the channel fails, too
                print(
                    "dayfly: what this worker moves from here on is not in the run's traffic, as "
                    f"the channel does not take it: {error}",
                    flush=True,
                )
                return
            told = self._traffic.counters()

    def _failed(self, error: BaseException) -> None:
        self._failure = error

    def close(self) -> None:
        """Tell the rest, if this is the process that began. Raises what ended its thread."""
        if os.getpid() != self._pid:
            return
        self._closing.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self.reporter.add("end")
        self.reporter.close()


#: Names of our own threads begin so.
_OWN_THREADS = "dayfly"


def run_as_main(
    source: bytes, file: str, module: str | None, args: Sequence[str], cwd: Path
) -> None:
    """Run a program until its threads and its exit functions are through.

    Raises what the program raises, but not SystemExit that stands for success. A process that the
    program forked, and that comes to its end here, too, ends.

    Args:
        module: its full name if it is run by that, as by `python -m`; its package is imported
            first.
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
