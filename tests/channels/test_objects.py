"""Objects as a channel, beyond the suite: what is asked when, outages, refusals, leftovers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from benchmarks.parts.moto_server import MotoServer, moto_server

from dayfly.errors import RequestError, WaitTimeout, WireError
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SENDERS, SOON_S, put, tensor
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.channels.kinds import Objects
from dayfly.wire.channels.objects import ObjectChannel
from dayfly.wire.keys import COORDINATOR, EVERYONE, HEADER_BYTES, Key
from tests.channels.kit import kept_port
from tests.channels.store_places import ObjectPlace, s3, shared_moto, site

KEY = Key(3, "grad-part", 1, 0)
PLAN = ChannelSpec(senders=SENDERS, budget_bytes=2**26, ahead_bytes=2**18)


@pytest.fixture
def place() -> Iterator[ObjectPlace]:
    """A prefix of its own at the shared server."""
    with s3() as place:
        yield place


@pytest.fixture
def worker(place: ObjectPlace) -> Iterator[ObjectChannel]:
    """A worker's end of a channel that was made."""
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as channel:
        assert isinstance(channel, ObjectChannel)
        channel._look_at_s = math.inf  # it is never time to look whether the run is there
        yield channel


@pytest.fixture
def server() -> MotoServer:
    """The shared server."""
    return shared_moto()


def asked(server: MotoServer, since: int, word: str) -> list[str]:
    """Requests with a word in them, after so many."""
    return [line for line in server.requests()[since:] if word in line]


def test_a_wait_asks_for_its_key_and_never_lists(worker: ObjectChannel, server: MotoServer) -> None:
    begun = len(server.requests())
    with pytest.raises(WaitTimeout):
        worker.get(KEY, torch.zeros(4), 0.3)
    questions = server.requests()[begun:]
    assert questions
    assert {line.rpartition("/")[2] for line in questions} == {KEY.name}
    assert {line.split()[0] for line in questions} == {"GET"}
    assert worker.traffic.requests == len(questions)


def test_the_first_try_is_when_earlier_steps_came(
    worker: ObjectChannel, place: ObjectPlace, server: MotoServer
) -> None:
    for _ in range(8):
        worker._patience._of(KEY).note(0.0, 0.4)
    with place.open(NAMESPACE, 1) as other:
        put(other, KEY, tensor((4,)))
    begun, began_s = len(server.requests()), time.monotonic()
    # It has been there all the time, and is asked for once.
    assert worker.get(KEY, torch.zeros(4), SOON_S) >= began_s + 0.4
    assert len(asked(server, begun, KEY.name)) == len(server.requests()) - begun == 1
    # What this worker put itself is there, and asked for at once.
    mine = Key(4, "grad-part", 1, 0)
    put(worker, mine, tensor((4,)))
    assert worker._patience.wait(mine).next_s <= time.monotonic()


def test_short_calls_of_one_wait_do_not_ask_each_time(
    worker: ObjectChannel, server: MotoServer
) -> None:
    for _ in range(8):
        worker._patience._of(KEY).note(0.0, 9.0)
    begun = len(server.requests())
    for _ in range(20):
        with pytest.raises(WaitTimeout):
            worker.get(KEY, torch.zeros(4), 0.0)
    # The first call asks, as each wait does, and starts the pauses: 20 calls ask less often.
    assert 1 <= len(asked(server, begun, KEY.name)) < 20


def test_stored_asks_for_each_key_at_once(worker: ObjectChannel, server: MotoServer) -> None:
    keys = [Key(step, "a", 1, 0) for step in range(40)]
    for key in keys[::2]:
        worker.put_bytes(key, b"x")
    begun = len(server.requests())
    assert worker.stored(keys) == set(keys[::2])
    assert len(asked(server, begun, "HEAD")) == len(server.requests()) - begun == 40


def test_drops_go_together(worker: ObjectChannel, server: MotoServer) -> None:
    keys = [Key(step, "a", 1, 0) for step in range(50)]
    for key in keys:
        worker.put_bytes(key, b"x")
    begun = len(server.requests())
    worker.drop(keys)
    assert worker.stored(keys) == set()
    assert len(asked(server, begun, "?delete")) == 1


def test_a_paused_store_costs_its_time(worker: ObjectChannel, server: MotoServer) -> None:
    """Puts, gets and looks that are under way, and those that begin meanwhile."""
    keys = [Key(step, "a", 1, 0) for step in range(4)]
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(worker.get_bytes, key, SOON_S) for key in keys]
        with server.paused():
            puts = [pool.submit(worker.put_bytes, key, b"x" * 9) for key in keys[:3]]
            time.sleep(2.0)
        assert all(one.result(SOON_S) for one in puts)
        worker.put_bytes(keys[3], b"x" * 9)
        assert [one.result(SOON_S) for one in waiting] == [b"x" * 9] * 4


def test_a_store_that_is_too_busy_is_asked_again(worker: ObjectChannel, server: MotoServer) -> None:
    begun = len(server.requests())
    with ThreadPoolExecutor(2) as pool:
        with server.broken("refuses"):
            stored = pool.submit(worker.put_bytes, KEY, b"x")
            got = pool.submit(worker.get_bytes, KEY, SOON_S)
            while len(asked(server, begun, "PUT")) < 3 or len(asked(server, begun, "GET")) < 3:
                time.sleep(0.01)
        assert stored.result(SOON_S) is True
        assert got.result(SOON_S) == b"x"


def test_a_put_whose_answer_was_lost_finds_itself(
    worker: ObjectChannel, server: MotoServer
) -> None:
    begun = len(server.requests())
    with ThreadPoolExecutor(1) as pool:
        with server.broken("mute"):
            stored = pool.submit(worker.put_bytes, KEY, b"mine")
            while len(asked(server, begun, "PUT")) < 1:
                time.sleep(0.01)
        assert stored.result(SOON_S) in (True, False)
    assert worker.get_bytes(KEY, SOON_S) == b"mine"


def test_an_outage_that_lasts_ends_the_run(worker: ObjectChannel, server: MotoServer) -> None:
    worker._retry.outage.most_s = 0.2
    with server.broken("refuses"):
        with pytest.raises(WireError, match=rf"^{KEY}: s3://.* for 0.2 s: .*SlowDown"):
            worker.put_bytes(KEY, b"x")
        with pytest.raises(WireError, match=rf"^{KEY}: s3://.* for 0.2 s: .*SlowDown"):
            worker.get_bytes(KEY, SOON_S)


def test_a_timeout_in_an_outage_says_so(worker: ObjectChannel, server: MotoServer) -> None:
    with server.broken("refuses"), pytest.raises(WaitTimeout, match=f"{KEY} .*SlowDown"):
        worker.get_bytes(KEY, 0.1)


def test_others_are_told_that_the_run_is_over(place: ObjectPlace) -> None:
    """What was put since the last look is removed by who put it."""
    with place.make(NAMESPACE) as coordinator, place.open(NAMESPACE, 1) as zombie:
        assert isinstance(zombie, ObjectChannel)
        zombie._look_at_s = math.inf  # it is not time to look yet
        coordinator.destroy()
        zombie.put_bytes(KEY, b"too late")
        assert zombie.stored([KEY]) == {KEY}
        zombie._look_at_s = 0.0  # now it is
        with pytest.raises(WireError, match=f"{Key(4, 'a', 1, 0)}: .*were removed"):
            zombie.put_bytes(Key(4, "a", 1, 0), b"too late")
        assert zombie.stored([KEY, Key(4, "a", 1, 0)]) == set()
        with pytest.raises(WireError, match="were removed"):
            zombie.get_bytes(Key(5, "a", 1, 0), SOON_S)


def test_who_waits_is_told_that_the_run_is_over(place: ObjectPlace) -> None:
    with place.make(NAMESPACE) as coordinator, place.open(NAMESPACE, 1) as zombie:
        assert isinstance(zombie, ObjectChannel)
        coordinator.destroy()
        zombie._look_at_s = 0.0
        with pytest.raises(WireError, match=f"{KEY}: .*were removed"):
            zombie.get(KEY, torch.zeros(4), SOON_S)


def test_what_a_late_worker_put_goes_when_it_ends(place: ObjectPlace) -> None:
    with place.make(NAMESPACE) as coordinator, place.open(NAMESPACE, 1) as zombie:
        assert isinstance(zombie, ObjectChannel)
        zombie._look_at_s = math.inf  # nor has it looked
        coordinator.destroy()
        zombie.put_bytes(KEY, b"too late")
    with place.make(NAMESPACE) as again:
        assert again.stored([KEY]) == set()


def test_a_channel_that_was_not_made_is_not_opened(place: ObjectPlace) -> None:
    with pytest.raises(WireError, match=r"no channel at s3://.*/run/000000"):
        place.open(NAMESPACE, 0)


def test_a_channel_is_made_once(place: ObjectPlace) -> None:
    with place.make(NAMESPACE), pytest.raises(WireError, match="is there already"):
        place.make(NAMESPACE)


def test_what_a_killed_coordinator_left_is_removed(place: ObjectPlace) -> None:
    for generation in (0, 1):
        with place.make(Namespace("run", generation)) as channel:
            channel.put_bytes(KEY, b"left")
    with place.make(Namespace("run-2", 0)) as other:
        other.put_bytes(KEY, b"another's")
        kind = channel_kind(place.url)
        kind.remove(site(place.url))
        kind.remove(site(place.url))
        assert other.stored([KEY]) == {KEY}
    with place.make(NAMESPACE) as again:
        assert again.size_bytes() == 0


@pytest.mark.slow
def test_more_messages_than_a_listing_has(worker: ObjectChannel, server: MotoServer) -> None:
    keys = [Key(step, "a", 1, COORDINATOR) for step in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: worker.put_bytes(key, b"x"), keys))
    assert list(worker.waiting(COORDINATOR)) == keys
    assert worker.size_bytes() == 1100 * (HEADER_BYTES + 1)


def refusal(url: str) -> str:
    """The one sentence with which a channel is refused."""
    with pytest.raises(WireError) as refused:
        channel_kind(url).create(site(url), PLAN)
    said = str(refused.value)
    assert "\n" not in said
    assert refused.value.__cause__ is None
    shown = None if refused.value.__suppress_context__ else refused.value.__context__
    assert shown is None, "the store's own words would be shown"
    return said


def test_a_wrong_bucket_is_refused(place: ObjectPlace) -> None:
    said = refusal("s3://no-such-bucket/prefix")
    assert "there is no such bucket (NoSuchBucket): make it, or name another" in said


def test_wrong_credentials_are_refused_without_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "wJalrXUtnFEMI-and-so-on"
    with moto_server(INITIAL_NO_AUTH_ACTION_COUNT="0") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        said = refusal("s3://bucket/prefix")
        assert "access is denied (InvalidAccessKeyId): check the credentials" in said
        assert secret not in said
        assert "AKIA" not in said


@pytest.mark.long
def test_a_closed_port_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shared_moto().environment.items():
        monkeypatch.setenv(name, value)
    with kept_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        said = refusal("s3://bucket/prefix")
    assert "has not answered for 3 s: it does not answer (Connection refused)" in said


def test_a_store_without_conditional_puts_is_refused(
    place: ObjectPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    real = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *given, mode, **more: real(*given, **more))
    assert "needs conditional puts (If-None-Match), so give another store" in refusal(place.url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://", "give a bucket"),
        ("s3:///prefix", "give a bucket"),
        ("s3://bucket/a//b", "no prefix"),
        ("s3://bucket/a/../b", "no prefix"),
        ("gs://bucket/a?x=1", "no prefix"),
        ("az://a b/c", "give a bucket"),
        ("dir://relative", "absolute path"),
    ],
)
def test_a_wrong_url_is_refused(url: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        channel_kind(url)


@pytest.mark.parametrize(
    "url", ["s3://b", "s3://bucket/a/b/", "gs://b_1/x", "az://c/p", "dir:///p"]
)
def test_a_right_url_is_not(url: str) -> None:
    assert isinstance(channel_kind(url), Objects)


def test_without_obstore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dayfly.wire.stores.object_urls.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install obstore"):
        channel_kind("s3://bucket/prefix")


@pytest.mark.long
def test_clients_are_imported_where_they_are_used() -> None:
    """Functions are forked from a process that has all this imported: it may have no threads."""
    code = (
        "import dayfly.runs.worker, os, sys\n"
        "from dayfly.wire.channels import channel_kind\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "channel_kind('s3://bucket/prefix'), channel_kind('dynamodb://table')\n"
        "print(*sorted({'obstore', 'boto3', 'botocore'} & set(sys.modules)))\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_a_tensor_may_change_after_it_was_put(worker: ObjectChannel) -> None:
    sent = tensor((300_000,))
    assert put(worker, KEY, sent)
    before = sent.clone()
    sent.zero_()
    got = torch.empty_like(sent)
    worker.get(KEY, got, SOON_S)
    assert torch.equal(got, before)


def test_a_directory_is_empty_after_a_run(tmp_path: Path) -> None:
    url = f"dir://{tmp_path}"
    kind = channel_kind(url)
    assert kind.directory(url) == tmp_path
    with kind.create(site(url), PLAN) as channel:
        channel.put_bytes(KEY, b"x")
        assert any(tmp_path.rglob(KEY.name))
        channel.destroy()
    assert list(tmp_path.iterdir()) == []


def test_many_threads_use_one_channel(worker: ObjectChannel) -> None:
    """Sixteen puts and gets at once, as the engine has in flight."""
    begin = threading.Barrier(16)

    def exchange(number: int) -> bool:
        begin.wait(SOON_S)
        sent, got = tensor((50_000 + number,)), torch.empty(50_000 + number)
        put(worker, Key(number, "a", number, EVERYONE), sent)
        worker.get(Key(number, "a", number, EVERYONE), got, SOON_S)
        return torch.equal(sent, got)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(exchange, range(16)))


def test_the_environment_of_this_process_is_left_alone(place: ObjectPlace) -> None:
    before = dict(os.environ)
    channel: Channel = place.make(NAMESPACE)
    channel.close()
    assert dict(os.environ) == before
