"""URLs of Redis servers, and which servers will do."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError, WireError
from dayfly.wire.channels import channel_kind
from dayfly.wire.keys import Key
from dayfly.wire.redis.layout import PIECE_BYTES, KeyNames
from dayfly.wire.redis.server import RedisAddress, Secret, check_server, cpu_s, read_info

HERE = RedisAddress(host="h", port=1)
MIB = 2**20


@pytest.mark.parametrize(
    ("url", "address", "name"),
    [
        ("redis://h", RedisAddress(host="h"), "redis at h:6379"),
        ("redis://h/", RedisAddress(host="h"), "redis at h:6379"),
        ("valkey://h:1/2", RedisAddress(host="h", port=1, db=2), "redis at h:1"),
        ("redis://[::1]:7", RedisAddress(host="::1", port=7), "redis at [::1]:7"),
        ("redis://me@h", RedisAddress(host="h", user="me"), "redis at h:6379"),
        ("redis://m%40e@h", RedisAddress(host="h", user="m@e"), "redis at h:6379"),
        ("rediss://h", RedisAddress(host="h", tls=True), "redis at h:6379"),
        ("valkeys://h?ca=/a/b", RedisAddress(host="h", tls=True, ca="/a/b"), "redis at h:6379"),
    ],
)
def test_urls(url: str, address: RedisAddress, name: str) -> None:
    channel_kind(url)
    assert RedisAddress.parse(url) == address
    assert str(address) == name


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("redis://", "the host is missing"),
        ("redis:///0", "the host is missing"),
        ("redis://h:x", "port"),
        ("redis://h:70000", "port"),
        ("redis://h:0", "0 is no port"),
        ("redis://[::1", "its host or port is none"),
        ("redis://h/x", "the database is no number"),
        ("redis://h/1/2", "the database is no number"),
        ("redis://h/-1", "the database is no number"),
        ("redis://h/0?db=1", "only .ca="),
        ("redis://h#x", "only .ca="),
        ("rediss://h?ca=", "only .ca="),
        ("redis://h?ca=/a", "certificates are for rediss"),
    ],
)
def test_wrong_urls_are_refused_in_a_sentence(url: str, what: str) -> None:
    with pytest.raises(RequestError, match=f"{what}.*; give redis://host:port/db"):
        channel_kind(url)


@pytest.mark.parametrize(
    "url", ["redis://:sesame@h", "redis://me:sesame@h:1/2", "redis://h/0?password=sesame"]
)
def test_a_password_in_the_url_is_refused_unrepeated(url: str) -> None:
    with pytest.raises(RequestError) as refused:
        channel_kind(url)
    assert "sesame" not in str(refused.value)


def test_a_secret_shows_where_it_is_from_alone() -> None:
    assert repr(Secret(variable="VAR", password="sesame")) == "Secret(variable='VAR')"


INFO = "# Server\r\nredis_version:7.0.15\r\n\r\nrole:master\r\nmaxmemory:0\r\nused_memory:1000\r\n"


def test_a_common_server_will_do() -> None:
    info = read_info(INFO)
    check_server(HERE, info, 10**12)
    limited = {**info, "maxmemory": str(64 * MIB), "maxmemory_policy": "noeviction"}
    check_server(HERE, limited, 63 * MIB)
    check_server(HERE, {**info, "maxmemory_policy": "allkeys-lru"}, 63 * MIB)  # never full


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ({"redis_version": "4.0.9"}, "version 4.0.9, which has no streams: use 5.0"),
        ({"redis_version": ""}, "version unknown"),
        ({"role": "slave"}, "a replica, which takes no messages: give its primary"),
        (
            {"maxmemory": str(64 * MIB), "maxmemory_policy": "volatile-lru"},
            "maxmemory-policy volatile-lru.: set it to noeviction",
        ),
        (
            {"maxmemory": str(64 * MIB), "used_memory": str(4 * MIB)},
            "60 MiB left under its maxmemory.* 64 MiB: raise maxmemory.* --log-budget",
        ),
    ],
)
def test_a_server_that_will_not_do_is_refused(found: dict[str, str], what: str) -> None:
    with pytest.raises(WireError, match=rf"^redis at h:1 .*{what}"):
        check_server(HERE, {**read_info(INFO), **found}, 64 * MIB)


def test_keys_literally() -> None:
    place = KeyNames("digits-1", 2, "5eed")
    assert place.lives == "dayfly:{digits-1}"
    assert place.mailboxes == "dayfly:{digits-1}:000002:5eed:boxes"
    assert place.stream("to-0", "000000012.sum.3") == (
        "dayfly:{digits-1}:000002:5eed:to-0:000000012.sum.3"
    )


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_message_is_split_without_a_copy(size: int) -> None:
    payload = memoryview(bytearray(size))
    put = KeyNames("r", 0, "life").put(Key(0, "a", 0, 1), bytes(128), payload, "word")
    sent = [part for part in put.parts if isinstance(part, memoryview)]
    assert len(sent) == max(1, -(-size // PIECE_BYTES))
    assert b"".join(sent) == payload
    assert all(part.obj is payload.obj for part in sent)
    assert put.size == 128 + size


def test_what_a_server_says_of_its_cpu_time() -> None:
    whole = {"used_cpu_sys": "1.5", "used_cpu_user": "2.0"}
    main = {"used_cpu_sys_main_thread": "0.5", "used_cpu_user_main_thread": "0.25"}
    assert cpu_s({**whole, **main}) == 0.75
    assert cpu_s(whole) == 3.5
    assert cpu_s({}) is None
