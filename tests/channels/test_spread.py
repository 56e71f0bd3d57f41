"""Several servers as one channel: which one has a message, and what is said of a dead one."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch

from dayfly.errors import RequestError, WireError
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, TOKEN, put
from dayfly.wire.channels.kind import Site
from dayfly.wire.channels.kinds import ParameterServer, Redis
from dayfly.wire.channels.parameter_server import ParameterServerChannel
from dayfly.wire.channels.spread import SpreadChannel, server_of
from dayfly.wire.keys import EVERYONE, SERVER, Key
from dayfly.wire.redis import connection
from dayfly.wire.stores.files import FileStore
from tests.channels.kit import part, plan, push, site
from tests.channels.redis_place import redis_server


@pytest.mark.parametrize("servers", [2, 3, 5])
def test_chunks_go_to_the_servers_in_turn(servers: int) -> None:
    for step, source in ((0, 0), (3, 7), (3, SERVER)):
        keys = [Key(step, f"grad-sum-{chunk}", source, EVERYONE) for chunk in range(10 * servers)]
        each = [server_of(key, servers) for key in keys]
        assert Counter(each) == dict.fromkeys(range(servers), 10)
        assert [(one + 1) % servers for one in each[:-1]] == each[1:]
    # What is no chunk is spread by hash alone: reports of many steps are not all at one.
    reports = {server_of(Key(step, "report", 0, -2), servers) for step in range(50)}
    assert reports == set(range(servers))


def test_where_a_message_is_does_not_depend_on_the_process() -> None:
    """These numbers must not change: workers of one run have to agree."""
    keys = [Key(step, "grad-part-0", 1, 2) for step in range(6)]
    assert [server_of(key, 4) for key in keys] == [2, 2, 3, 3, 1, 1]


def test_a_contribution_is_where_its_sum_is() -> None:
    for chunk in range(8):
        (at,) = {server_of(part(rank, 5, chunk), 3) for rank in range(4)}
        assert at == server_of(Key(5, f"grad-sum-{chunk}", SERVER, EVERYONE), 3)


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("redis://a:1,b:2/3", ("redis://a:1/3", "redis://b:2/3")),
        ("rediss://me@a,b:2?ca=/c", ("rediss://me@a?ca=/c", "rediss://me@b:2?ca=/c")),
        ("ps://10.0.0.5,10.0.0.6", ("ps://10.0.0.5", "ps://10.0.0.6")),
        ("ps://[::1]:7,h", ("ps://[::1]:7", "ps://h")),
        ("ps://", ("ps://",)),
    ],
)
def test_a_url_of_several_servers(url: str, each: tuple[str, ...]) -> None:
    assert channel_kind(url).servers(url) == each


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://a,,b", "a host is missing beside a comma"),
        ("redis://a,b,", "a host is missing beside a comma"),
        ("redis://a:6379,a", "it names a server twice"),
        ("ps://h:7,h:7", "it names a port twice"),
        ("redis://a,b:x", "its host or port is none"),
    ],
)
def test_what_names_no_servers(url: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        channel_kind(url)


def test_a_dead_redis_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 0.0)
    nowhere = FileStore(Path("/nonexistent"))
    with redis_server() as one, redis_server() as other:
        url = f"redis://{one.host}:{one.port},{other.host}:{other.port}/0"
        at = Site(url=url, namespace=NAMESPACE, rendezvous=nowhere, token=TOKEN)
        keys = {server_of(key, 2): key for key in (Key(0, f"a-{n}", 0, 1) for n in range(2))}
        with Redis().create(at, plan(2)) as channel:
            other.kill()
            put(channel, keys[0], torch.ones(3))
            with pytest.raises(WireError, match=rf"redis at 127\.0\.0\.1:{other.port}\b"):
                put(channel, keys[1], torch.ones(3))
            other.start()


@pytest.mark.long
def test_sums_of_a_dead_parameter_server_are_not_those_of_the_others(tmp_path: Path) -> None:
    at = site(tmp_path, "ps://127.0.0.1,127.0.0.1")
    with (
        ParameterServer().create(at, plan(1)) as coordinators,
        ParameterServer().open(at, 0) as channel,
    ):
        assert isinstance(coordinators, SpreadChannel)
        second = coordinators._channels[1]
        assert isinstance(second, ParameterServerChannel)
        assert second._process is not None
        os.kill(second._process.pid, signal.SIGKILL)
        second._process._process.wait()
        alive = {server_of(part(0, step), 2): step for step in range(8)}
        assert push(channel, 0, torch.ones(3), alive[0])
        got = torch.zeros(3)
        channel.get(Key(alive[0], "grad-sum-0", SERVER, EVERYONE), got, SOON_S)
        assert got.tolist() == [1.0, 1.0, 1.0]
        with pytest.raises(WireError, match=rf"parameter server .*:{second._process.port}\b"):
            push(channel, 0, torch.ones(3), alive[1])
