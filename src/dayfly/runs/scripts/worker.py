"""A function that runs a script, as `python script.py` would, at one end of the wire."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from dayfly.closing import Closing
from dayfly.errors import DayflyError, RunFailed
from dayfly.life.faults import Faults
from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import Reporter
from dayfly.runs.made_with import check_function
from dayfly.runs.scripts.environment import prepare
from dayfly.runs.scripts.interpreter import run_as_main
from dayfly.runs.scripts.source import digest_of
from dayfly.runs.scripts.task import ScriptTask
from dayfly.runs.workplace import site_of
from dayfly.threads import start_thread
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.process_group.endpoint import Endpoint, join, leave
from dayfly.wire.shaped import shaped_channel
from dayfly.wire.shaping import Way
from dayfly.wire.stores import open_store

#: When a function first tells what it moved, and how often at last, in seconds: of one that is
#: killed, what it has told is all that is known.
_TELL_FIRST_S = 0.05
_TELL_EVERY_S = 1.0


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
    way = Way(task.rates) if task.rates is not None else None
    channel = shaped_channel(channel_kind(task.channel).open(site, task.rank), way)
    join(
        Endpoint(
            channel=channel,
            rank=task.rank,
            world_size=task.world_size,
            wait_timeout_s=task.wait_timeout_s,
        )
    )
    telling = _Telling(channel, task, context, began, other)
    try:
        found = prepare(
            task.member, channel=channel, context=context, wait_timeout_s=task.wait_timeout_s
        )
        with found:
            run_as_main(source, task.script, task.module, task.args, Path(task.cwd))
            if dist.is_initialized():
                dist.destroy_process_group()
    except BaseException:
        # The process ends at once, so nothing else has to be let go of: to close the channel may
        # take as long as the peers need to read what is in it.
        with suppress(DayflyError):  # the first error is the one that counts
            telling.close()
        raise
    leave()
    faults.at(task.generation, "end")
    telling.close()
    channel.close()
    return {"status": "done"}


def _source(task: ScriptTask) -> bytes:
    source = Path(task.script).read_bytes()
    if digest_of(source) != task.digest:
        raise RunFailed(
            f"{task.script} has changed since the run began: put it back and go on with --resume, "
            "or begin a new run"
        )
    return source


def telling_pauses_s() -> Iterator[float]:
    """Seconds between two looks at what was moved: twice as long each time, up to a second.

    So what is known of a function that is killed early is about half of what it moved, not nothing.
    """
    pause_s = _TELL_FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _TELL_EVERY_S)


class _Telling(Closing):
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
        self._reporter = Reporter(channel, task.rank, context.attempt)
        self._closing = threading.Event()
        if other is not None:
            self._reporter.add("other cpu", text=other)
        self._reporter.add("start", urgent=True, step=0, seconds=time.monotonic() - began)
        self._failure: BaseException | None = None
        self._pid = os.getpid()
        self._thread = start_thread(self._run, name="dayfly-telling", failed=self._failed)

    def _run(self) -> None:
        told = self._traffic.counters()
        pauses_s = telling_pauses_s()
        while not self._closing.wait(next(pauses_s)):
            if self._traffic.counters() == told:
                continue
            try:
                self._reporter.add("alive", urgent=True)
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
        self._reporter.add("end")
        self._reporter.close()
