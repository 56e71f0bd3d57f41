"""A stranger who can write to a run's Redis can end the run, which says why; he cannot steer it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import redis
from benchmarks.parts.redis_server import RedisServer

import dayfly
from dayfly.errors import Forged, RunFailed, WireError, named
from dayfly.life.failure import Failure, Origin
from dayfly.life.platforms.gpus import is_gpu_memory_error
from tests.runs import small

#: Steps between a message and the key under which the stranger repeats it.
_LATER = 8


class Stranger(threading.Thread):
    """Asks the run to stop, without its token; then repeats a message of it under a later key.

    forged: that key, once it is there.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.forged: list[str] = []

    def run(self) -> None:
        with redis.Redis.from_url(self.url, decode_responses=False) as client:
            until = time.monotonic() + 40
            while not self.forged and time.monotonic() < until:
                names = [one.decode() for one in client.keys("dayfly:*:to-[0-9]*:0*")]
                for name in names:
                    if client.type(name) == b"stream" and "report" not in name:
                        self._forge(client, name)
                        break
                time.sleep(0.005)

    def _forge(self, client: redis.Redis, name: str) -> None:
        life, _, message = name.rpartition(":")
        run = life.rpartition(":")[0]
        stop = f"{run}:to-everyone:999999999.stop.coordinator"
        entries = client.xrange(name)
        client.xadd(stop, entries[0][1], "1-999999")
        step, operation, source = message.split(".")
        later = f"{life}:{int(step) + _LATER:09d}.{operation}.{source}"
        for number, fields in entries:
            client.xadd(later, fields, number)
        self.forged.append(later)


@pytest.mark.long
def test_a_forged_message_ends_a_run_with_its_cause_and_a_forged_stop_ends_nothing(
    data: Path, tmp_path: Path
) -> None:
    with RedisServer() as server:
        stranger = Stranger(server.url)
        stranger.start()
        # It is not stopped; and it ends, though nothing but the third death of one cause ends it.
        with pytest.raises(RunFailed, match=r"of step .*: the message is not authentic"):
            dayfly.train(
                small.job(data),
                workers=2,
                run_dir=tmp_path,
                channel=server.url,
                collective="scatter-reduce",
                **small.SETTINGS,
            )
        stranger.join()
    assert stranger.forged


def test_it_is_no_error_that_another_worker_explains() -> None:
    assert Failure.of(WireError("gone"), None).origin is Origin.WIRE
    assert Failure.of(Forged("not authentic"), None).origin is Origin.DAYFLY


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = Forged("not authentic")
    error.__cause__ = error
    assert not is_gpu_memory_error(error)
    fresh = named("get", error)
    assert fresh is not error
    assert str(fresh) == "get: not authentic"
    assert named("get", fresh) is not fresh
    assert str(named("get", fresh)) == str(fresh)
