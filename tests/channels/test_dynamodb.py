"""DynamoDB as a channel, beyond the suite: parts, what is refused, throttling, what expires."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from benchmarks.parts.moto_server import MotoServer

from dayfly.errors import RequestError, WaitTimeout, WireError
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.conformance import NAMESPACE, SENDERS, SOON_S, put, tensor
from dayfly.wire.channels.dynamodb import MARKER_S, MESSAGE_S, DynamoChannel
from dayfly.wire.channels.dynamodb_table import ITEM_BYTES, Item, Write, create_command
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.channels.kinds import LARGEST_ROUND_BYTES
from dayfly.wire.keys import HEADER_BYTES, Key
from tests.channels.kit import kept_port
from tests.channels.store_places import DynamoPlace, dynamodb, shared_moto, site

KEY = Key(3, "grad-part", 1, 0)
PLAN = ChannelSpec(senders=SENDERS, budget_bytes=2**26, ahead_bytes=2**18)
LARGE = 12 * ITEM_BYTES + 17  # parts of two requests, and a short one


@pytest.fixture
def place() -> Iterator[DynamoPlace]:
    """A table of its own at the shared server."""
    with dynamodb() as place:
        yield place


@pytest.fixture
def worker(place: DynamoPlace) -> Iterator[DynamoChannel]:
    """A worker's end of a channel that was made."""
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as channel:
        assert isinstance(channel, DynamoChannel)
        channel._look_at_s = math.inf  # it is never time to look whether the run is there
        yield channel


@pytest.fixture
def server() -> MotoServer:
    """The shared server."""
    return shared_moto()


def items(channel: DynamoChannel) -> list[Item]:
    """All that is in the table."""
    found: list[Item] = []
    pages = channel._table._client.get_paginator("scan").paginate(TableName=channel._table.name)
    for page in pages:
        found += page["Items"]
    return found


@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1, ITEM_BYTES, ITEM_BYTES + 1, LARGE])
@pytest.mark.long
def test_any_size_arrives_and_goes(worker: DynamoChannel, size: int) -> None:
    sent = tensor((size,), torch.uint8)
    assert put(worker, KEY, sent)
    cost = channel_kind("dynamodb://table").cost(size)
    assert len(items(worker)) == 1 + cost.puts, "the marker, and what it says that it costs"
    assert worker.traffic.puts == cost.puts
    assert worker.size_bytes() == HEADER_BYTES + size == cost.bytes_up
    got = torch.zeros_like(sent)
    worker.get(KEY, got, SOON_S)
    assert torch.equal(got, sent)
    assert worker.traffic.gets == cost.gets
    assert worker.traffic.bytes_down == cost.bytes_down
    worker.drop([KEY])
    assert worker.stored([KEY]) == set()
    assert len(items(worker)) == 1


def test_who_comes_second_leaves_nothing(worker: DynamoChannel) -> None:
    assert put(worker, KEY, tensor((300_000,)))
    before = len(items(worker))
    assert not put(worker, KEY, torch.zeros(400_000))
    assert len(items(worker)) == before
    got = torch.zeros(300_000)
    worker.get(KEY, got, SOON_S)
    assert torch.equal(got, tensor((300_000,)))


@pytest.mark.parametrize(
    ("size", "name", "value"),
    [
        (10, "data", None),
        (10, "data", {"S": "text"}),
        (10, "parts", {"N": "1.5"}),
        (300_000, "nonce", None),
        (300_000, "bytes", {"S": "many"}),
        (300_000, "parts", {"N": "-1"}),
    ],
)
def test_an_item_that_no_channel_wrote_is_named(
    worker: DynamoChannel, size: int, name: str, value: dict[str, str] | None
) -> None:
    put(worker, KEY, tensor((size,), torch.uint8))
    (item,) = (one for one in items(worker) if "parts" in one)
    others = {key: kept for key, kept in item.items() if key != name}
    worker._table.put(others if value is None else {**others, name: value})
    at = f"table {worker._table.name}: the item {item['box']['S']}/{KEY.name}"
    with pytest.raises(WireError, match=f"{re.escape(at)} has no {name} as dayfly writes it: "):
        worker.get(KEY, torch.zeros(size, dtype=torch.uint8), SOON_S)


class Killed(BaseException):
    """The worker is gone at once."""


@pytest.mark.long
def test_a_put_that_was_killed_half_way_is_not_seen(
    place: DynamoPlace, worker: DynamoChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor puts the message anew, and reads its own."""
    write, asked = worker._table.write, []

    def one_request(requests: Sequence[Write]) -> list[Write]:
        if asked:
            raise Killed
        asked.append(requests)
        return write(requests)

    monkeypatch.setattr(worker._table, "write", one_request)
    with pytest.raises(Killed):
        put(worker, KEY, tensor((LARGE,), torch.uint8))
    assert len(items(worker)) == 1 + 10
    with place.open(NAMESPACE, 1) as successor:
        assert successor.stored([KEY]) == set()
        assert list(successor.waiting(KEY.destination)) == []
        with pytest.raises(WaitTimeout):
            successor.get(KEY, torch.zeros(LARGE, dtype=torch.uint8), 0)
        again = torch.ones(LARGE, dtype=torch.uint8)
        assert put(successor, KEY, again)
        got = torch.zeros_like(again)
        successor.get(KEY, got, SOON_S)
        assert torch.equal(got, again)


@pytest.mark.long
def test_parts_that_are_gone_make_a_message_that_is_not_there(worker: DynamoChannel) -> None:
    """As a reader finds it that comes while the message is being dropped."""
    assert put(worker, KEY, tensor((LARGE,), torch.uint8))
    (item,) = [one for one in items(worker) if "parts" in one]
    worker._erase([worker._part(worker._address(KEY), item["nonce"]["S"], 12)])
    with pytest.raises(WaitTimeout, match=str(KEY)):
        worker.get(KEY, torch.zeros(LARGE, dtype=torch.uint8), 0.05)


def test_a_put_whose_answer_was_lost_is_known_again(
    worker: DynamoChannel, server: MotoServer
) -> None:
    begun = len(server.requests())
    with ThreadPoolExecutor(1) as pool:
        with server.broken("mute"):
            stored = pool.submit(worker.put_bytes, KEY, b"mine")
            while "POST PutItem" not in server.requests()[begun:]:
                time.sleep(0.01)
        assert stored.result(SOON_S) is True
    assert worker.get_bytes(KEY, SOON_S) == b"mine"


def test_only_what_is_left_is_asked_for_again(
    worker: DynamoChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without the capacity takes and gives some of a request's items."""
    write, get_all = worker._table.write, worker._table.get_all
    wrote, read = [], []

    def three(requests: Sequence[Write]) -> list[Write]:
        wrote.append(len(requests))
        return [*write(requests[:3]), *requests[3:]]

    def four(at: Sequence[tuple[str, str]], fields: Sequence[str] = ()) -> object:
        read.append(len(at))
        found, left = get_all(at[:4], fields)
        return found, [*left, *at[4:]]

    monkeypatch.setattr("dayfly.wire.channels.dynamodb.pause", lambda tries=1: None)
    monkeypatch.setattr(worker._table, "write", three)
    monkeypatch.setattr(worker._table, "get_all", four)
    sent = tensor((LARGE,), torch.uint8)
    assert put(worker, KEY, sent)
    assert wrote == [10, 7, 4, 1, 3]
    got = torch.zeros_like(sent)
    worker.get(KEY, got, SOON_S)
    assert read == [10, 6, 2, 3]
    assert torch.equal(got, sent)


def test_a_table_that_takes_nothing_for_long_ends_the_run(
    worker: DynamoChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker._retry.outage.most_s = 0.1
    monkeypatch.setattr(worker._table, "write", lambda requests: list(requests))
    with pytest.raises(WireError, match=rf"^{KEY}: dynamodb://.* for 0.1 s: .*too much to do"):
        put(worker, KEY, tensor((LARGE,), torch.uint8))


def test_a_paused_table_costs_its_time(worker: DynamoChannel, server: MotoServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(worker.get_bytes, KEY, SOON_S)
        with server.paused():
            stored = pool.submit(worker.put_bytes, KEY, b"x")
            time.sleep(2.0)
        assert stored.result(SOON_S) is True
        assert waiting.result(SOON_S) == b"x"


def test_a_wait_asks_for_its_key_and_never_queries(
    worker: DynamoChannel, server: MotoServer
) -> None:
    begun = len(server.requests())
    with pytest.raises(WaitTimeout):
        worker.get(KEY, torch.zeros(4), 0.3)
    assert set(server.requests()[begun:]) == {"POST GetItem"}


def test_everything_expires(place: DynamoPlace) -> None:
    """Read by DynamoDB alone, which removes items some time after that second."""
    with place.make(NAMESPACE):
        before_s = time.time()
        with DynamoChannel(site(f"dynamodb://{place.table}")) as worker:
            worker.put_bytes(Key(1, "a", 1, 0), b"x")
            put(worker, KEY, tensor((LARGE,), torch.uint8))
            kept_s = {round(float(item["expires"]["N"]) - before_s, -2) for item in items(worker)}
            assert kept_s == {MESSAGE_S, MARKER_S}


def test_a_trim_keeps_the_marker_young(place: DynamoPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.make(NAMESPACE) as coordinator:
        assert isinstance(coordinator, DynamoChannel)
        later_s = time.time() + 10 * 24 * 3600
        monkeypatch.setattr(
            "dayfly.wire.channels.dynamodb.time", SimpleNamespace(time=lambda: later_s)
        )
        coordinator.trim(1)
        (marker,) = items(coordinator)
        assert int(marker["expires"]["N"]) == int(later_s) + MARKER_S
        with place.open(NAMESPACE, 0):
            pass


@pytest.mark.long
def test_a_run_leaves_nothing(place: DynamoPlace) -> None:
    with place.make(NAMESPACE) as coordinator, place.open(NAMESPACE, 1) as zombie:
        assert isinstance(zombie, DynamoChannel)
        put(zombie, KEY, tensor((LARGE,), torch.uint8))
        coordinator.destroy()
        assert items(zombie) == []
        zombie._look_at_s = 0.0
        with pytest.raises(WireError, match=f"{KEY}: .*were removed"):
            put(zombie, KEY, tensor((LARGE,), torch.uint8))
        assert items(zombie) == []


def test_what_a_killed_coordinator_left_is_removed(place: DynamoPlace) -> None:
    kind, url = channel_kind(f"dynamodb://{place.table}"), f"dynamodb://{place.table}"
    with place.make(NAMESPACE) as left:
        assert isinstance(left, DynamoChannel)
        left.put_bytes(KEY, b"left")
        kind.remove(site(url))
        kind.remove(site(url))
        assert items(left) == []


def refusal(table: str, plan: ChannelSpec = PLAN) -> str:
    """The one sentence with which a channel is refused."""
    url = f"dynamodb://{table}"
    with pytest.raises((WireError, RequestError)) as refused:
        channel_kind(url).create(site(url), plan)
    said = str(refused.value)
    assert "\n" not in said
    shown = None if refused.value.__suppress_context__ else refused.value.__context__
    assert shown is None, "the store's own words would be shown"
    return said


def test_a_missing_table_is_refused_with_the_command(place: DynamoPlace) -> None:
    said = refusal("no-such-table")
    assert f"there is no such table; make it: {create_command('no-such-table')}" in said


def test_a_table_of_another_shape_is_refused(place: DynamoPlace, worker: DynamoChannel) -> None:
    other = f"other-{place.table}"
    worker._table._client.create_table(
        TableName=other,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    said = refusal(other)
    assert said.startswith(f"table {other} has another key than box and name")
    assert create_command(other) in said


def test_a_table_that_keeps_for_ever_is_refused(place: DynamoPlace, worker: DynamoChannel) -> None:
    worker._table._client.update_time_to_live(
        TableName=place.table,
        TimeToLiveSpecification={"Enabled": False, "AttributeName": "expires"},
    )
    assert f"aws dynamodb update-time-to-live --table-name {place.table}" in refusal(place.table)


def test_a_large_model_is_refused_with_the_arithmetic() -> None:
    """Before anything is connected to, and where the log is planned, too."""
    plan = ChannelSpec(senders=4, budget_bytes=2**30, ahead_bytes=100 * 2**20)
    said = refusal("table", plan)
    assert said == (
        "each worker sends 100 MiB a round, which DynamoDB bills as 102400 write units ($0.06) and "
        "a new table takes 26 s for: it is for rounds of up to 32 MiB, so give another channel, "
        "such as s3://bucket/prefix"
    )
    with pytest.raises(RequestError, match="each worker sends 100 MiB a round"):
        channel_kind("dynamodb://table").room(plan)
    fits = ChannelSpec(senders=4, budget_bytes=2**30, ahead_bytes=LARGEST_ROUND_BYTES)
    assert channel_kind("dynamodb://table").room(fits).nbytes == 2**30


@pytest.mark.long
def test_a_closed_port_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shared_moto().environment.items():
        monkeypatch.setenv(name, value)
    with kept_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        said = refusal("table")
    assert "for 3 s: it does not answer (EndpointConnectionError)" in said


def test_missing_credentials_are_refused(
    place: DynamoPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "no credentials were found: give AWS_ACCESS_KEY_ID" in refusal(place.table)


def test_a_missing_region_is_refused(
    place: DynamoPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    assert "set AWS_DEFAULT_REGION to the table's region" in refusal(place.table)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("dynamodb://", "give a table's name, as in dynamodb://table"),
        ("dynamodb://t", "is no name of a table: give 3 to 255 letters, digits"),
        ("dynamodb://table/prefix", "is no name of a table"),
    ],
)
def test_a_wrong_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        channel_kind(url)


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dayfly.wire.channels.dynamodb_table.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install boto3"):
        channel_kind("dynamodb://table")
