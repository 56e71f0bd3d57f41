"""Records on their way to the coordinator: in order, once, and without NaN."""

from __future__ import annotations

import json
import math
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.life.reports import Reporter, packed, plain, read_reports, unpacked
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.message import Header

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@pytest.fixture
def root() -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as path,
        FileChannel.make(
            Path(path), Namespace("run", 0), senders=4, budget_bytes=2**24, ahead_bytes=2**18
        ),
    ):
        yield Path(path)


def channel(root: Path, reader: int) -> Channel:
    return FileChannel(root, Namespace("run", 0))


def has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(has_nan(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(has_nan(item) for item in value)


@given(values)
@pytest.mark.long
def test_plain_is_json_and_keeps_the_rest(value: Any) -> None:
    found = plain(value)
    assert not has_nan(found)
    text = json.dumps(found, allow_nan=False)
    if not has_nan(value):
        assert text == json.dumps(value)


def test_numbers_that_are_none_become_null() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}}
    assert plain(value) == {"a": [None, [None, 1.5]], "b": {"c": None}}


def test_records_arrive_in_order_and_once(root: Path) -> None:
    with channel(root, 3) as up, channel(root, COORDINATOR) as down:
        reporter = Reporter(up, rank=3, attempt=2, every_s=1e6)
        reporter.add("part", urgent=True, step=1)
        reporter.add("step", step=2, loss=math.nan)
        reporter.add("step", urgent=True, step=3, parts=(1, 2))
        first, second = list(read_reports(down))
        assert (first.rank, first.attempt) == (3, 2)
        assert [(r["kind"], r["step"]) for r in first.records] == [("part", 1)]
        assert [(r["kind"], r["step"]) for r in second.records] == [("step", 2), ("step", 3)]
        assert second.records[0]["loss"] is None
        assert second.records[1]["parts"] == [1, 2]
        assert second.records[0]["at"] <= second.records[1]["at"]
        assert list(read_reports(down)) == [], "each is removed once it was read"


def test_times_and_losses_are_told_with_the_digits_that_say_something(root: Path) -> None:
    third = math.pi / 3
    (as_float32,) = struct.unpack("f", struct.pack("f", third))
    with channel(root, 3) as up, channel(root, COORDINATOR) as down:
        reporter = Reporter(up, rank=3, attempt=0)
        told = {"began": 1764166883.123456, "step_s": 0.0123456, "share": third}
        losses = [as_float32, None, math.nan]
        reporter.add("round", urgent=True, **told, loss=third, losses=losses)
        ((record,),) = [report.records for report in read_reports(down)]
    assert (record["began"], record["step_s"]) == (1764166883.12346, 0.01235)
    assert (record["loss"], record["share"]) == (1.04719755, third)
    assert record["losses"] == [float(f"{as_float32:.9g}"), None, None]
    assert struct.pack("f", record["losses"][0]) == struct.pack("f", as_float32)
    assert record["at"] == round(record["at"], 5)


def test_records_that_are_not_urgent_wait_for_each_other(root: Path) -> None:
    with channel(root, 0) as up, channel(root, COORDINATOR) as down:
        reporter = Reporter(up, rank=0, attempt=0, every_s=1e6)
        for step in range(5):
            reporter.add("step", step=step)
        assert list(read_reports(down)) == []
        reporter.flush()
        reporter.flush()
        (report,) = read_reports(down)
        assert len(report.records) == 5


def test_a_report_tells_the_traffic_so_far(root: Path) -> None:
    with channel(root, 1) as up, channel(root, COORDINATOR) as down:
        reporter = Reporter(up, rank=1, attempt=0)
        for step in range(2):
            reporter.add("step", urgent=True, step=step)
        first, second = read_reports(down)
        assert sorted(first.traffic) == ["bytes_down", "bytes_up", "gets", "puts", "requests"]
        assert second.traffic["requests"] > first.traffic["requests"]
        assert second.traffic["bytes_up"] > first.traffic["bytes_up"]


def test_a_report_of_many_steps_is_a_fraction_of_its_json() -> None:
    steps = [{"kind": "step", "at": 1e9 + n / 7, "step": n, "loss": 1 / (n + 3)} for n in range(30)]
    told = {"traffic": {"bytes_up": 5}, "records": steps}
    assert unpacked(packed(told)) == told
    assert len(packed(told)) < len(json.dumps(told)) / 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        packed({"a": 1})[:-1],
        zlib.compress(b"{"),
        zlib.compress(b"[" * 10**6 + b"]" * 10**6),
    ],
    ids=["empty", "plain", "short", "no JSON", "deep"],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=f"a report of {len(data)} bytes is none"):
        unpacked(data)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"records": []},
        {"traffic": {"gets": "1"}, "records": []},
        {"traffic": {}, "records": {}},
        {"traffic": {}, "records": [1]},
        {"traffic": {}, "records": [{"kind": "step"}]},
        {"traffic": {}, "records": [{"kind": 1, "at": 1.0}]},
    ],
)
def test_what_is_json_and_no_report_is_refused(content: Any, root: Path) -> None:
    with channel(root, 1) as up, channel(root, COORDINATOR) as down:
        up.put_bytes(Key(0, "report-0", 1, COORDINATOR), packed(content))
        with pytest.raises(WireError, match="a report of worker 1 is none"):
            list(read_reports(down))


def test_a_report_that_inflates_to_more_than_there_may_be_is_refused() -> None:
    with pytest.raises(WireError, match="more than 1000 bytes"):
        unpacked(packed({"records": "0" * 1000}), most_bytes=1000)


def test_attempts_of_one_worker_do_not_hide_each_other(root: Path) -> None:
    """A successor's reports have names of their own: the first put of a name wins."""
    with channel(root, 0) as up, channel(root, COORDINATOR) as down:
        for attempt in range(3):
            Reporter(up, rank=0, attempt=attempt).add("caught up", urgent=True, step=attempt)
        found = [(report.attempt, report.records[0]["step"]) for report in read_reports(down)]
        assert sorted(found) == [(0, 0), (1, 1), (2, 2)]


class Distant(FileChannel):
    """As if a link were between; puts take until they are let go of."""

    immediate = False

    def __init__(self, root: Path, namespace: Namespace) -> None:
        super().__init__(root, namespace)
        self.go = threading.Event()

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        assert self.go.wait(30)
        return super().put(key, header, payload)


def test_over_a_link_nobody_waits_for_records_that_are_not_urgent(root: Path) -> None:
    with channel(root, COORDINATOR) as down, Distant(root, Namespace("run", 0)) as up:
        with Reporter(up, rank=0, attempt=0, every_s=-1.0) as reporter:
            for step in range(3):
                reporter.add("step", step=step)
            assert list(read_reports(down)) == []
            up.go.set()
        found = [record["step"] for report in read_reports(down) for record in report.records]
        assert found == [0, 1, 2]


def test_over_a_link_what_cannot_be_sent_is_told_later(root: Path) -> None:
    with Distant(root, Namespace("run", 0)) as up:
        up.go.set()
        reporter = Reporter(up, rank=9, attempt=0, every_s=-1.0)  # a rank that was not planned for
        reporter.add("step", step=0)
        assert reporter._sending is not None
        assert reporter._sending.exception(30) is not None
        with pytest.raises(WireError, match="no rank 9"):
            reporter.add("step", step=1)
        reporter.add("step", step=2)
        with pytest.raises(WireError, match="no rank 9"):
            reporter.close()
