"""Runs over stores: the same bits as over memory, also after deaths; nothing is left there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace
from dayfly.wire.channels.patience import LIST_EVERY_S
from tests.channels.store_places import directory, dynamodb, s3, shared_moto
from tests.runs import small

pytestmark = pytest.mark.long

Undisturbed = Callable[[int], dayfly.Run]

LAMBDA, S3 = Catalogue().platform("aws-lambda"), Catalogue().store("s3")
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
    # Beside what is urgent, reports and looks for a wish to stop are a hundredth of what two
    # functions of 1769 MiB cost meanwhile: those without a limit are billed as such.
    pace, attempts = (
        Pace.of([FunctionSpec()], LAMBDA, S3, workers=2, immediate=False),
        2 + len(FAULTS),
    )
    urgent = sum(
        record["kind"] in ("caught up", "part", "epoch")
        for rank in range(2)
        for record in small.events(tmp_path, f"worker-{rank}")
        if rank == 0 or record["kind"] != "epoch"
    )
    told = [line for line in asked if line.startswith("PUT") and "report-" in line]
    assert 0 < len(told) <= urgent + attempts + 2 * took_s / pace.report_s
    looks = [line for line in asked if line.startswith("HEAD") and "stop" in line]
    assert 0 < len(looks) <= attempts + 2 * took_s / pace.look_s


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
