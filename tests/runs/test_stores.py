"""Runs over stores: the same bits as over memory, also after deaths; nothing is left there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.wire.channels.patience import LIST_EVERY_S
from tests.channels.store_places import directory, dynamodb, s3, shared_moto
from tests.runs import small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]

FAULTS = [
    Fault(1, 5, "grad-put-part"),
    Fault(0, 12, "grad-put-sum"),
    Fault(1, 17, "computed", "zygote"),
]


def train(data: Path, run_dir: Path, channel: str) -> dayfly.Run:
    return dayfly.train(
        small.job(data),
        workers=2,
        run_dir=run_dir,
        faults=FAULTS,
        channel=channel,
        **small.SETTINGS,
    )


def test_over_s3(data: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    server = shared_moto()
    with s3() as place:
        begun, began_s = len(server.requests()), time.monotonic()
        run = train(data, tmp_path, place.url)
        took_s = time.monotonic() - began_s
        asked = server.requests()[begun:]
        assert place.objects() == []
    assert run.result.restarts == len(FAULTS)
    assert small.bits(run) == small.bits(undisturbed(2))
    assert any(line.startswith("PUT") and "to-everyone" in line for line in asked)
    # Workers never list; the coordinator does now and then, and when a function ended.
    reports = [line for line in asked if "list-type" in line and "to-coordinator" in line]
    assert 0 < len(reports) <= took_s / LIST_EVERY_S + 2 * (2 + len(FAULTS)) + 2
    others = [line for line in asked if "list-type" in line and "to-" in line]
    assert len(others) == len(reports)


@pytest.mark.slow
def test_over_dynamodb(data: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    with dynamodb() as place:
        run = train(data, tmp_path, f"dynamodb://{place.table}")
        assert place.items() == []
    assert run.result.restarts == len(FAULTS)
    assert small.bits(run) == small.bits(undisturbed(2))


def test_over_a_directory(data: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    with directory() as place:
        run = train(data, tmp_path, place.url)
        assert os.listdir(place.url.removeprefix("dir://")) == []
    assert run.result.restarts == len(FAULTS)
    assert small.bits(run) == small.bits(undisturbed(2))


def test_what_refuses_the_run_starts_nothing(data: Path, tmp_path: Path) -> None:
    with s3(), pytest.raises(RequestError, match=r"--channel s3://none/x: .*no such bucket"):
        train(data, tmp_path, "s3://none/x")
