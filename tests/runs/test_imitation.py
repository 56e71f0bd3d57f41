"""What a function gets when another platform is imitated: literally, and in a run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.errors import RequestError
from dayfly.runs.function_resources import (
    FunctionResources,
    in_words,
    resources_of,
    resources_under,
)
from dayfly.runs.functions import price_list
from dayfly.runs.settings import Settings
from dayfly.specs.functions import FunctionSpec
from dayfly.wire.shaping import Rates
from tests.runs import small

pytestmark = pytest.mark.long

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="cpu cgroups need root here")

PLATFORM = FunctionPlatform(
    name="somewhere",
    prices=None,
    memory_min_mib=128,
    memory_max_mib=8192,
    memory_step_mib=64,
    lifetime_max_s=900.0,
    payload_sync_bytes=6_000_000,
    mib_per_vcpu=2048,
    vcpus_max=3,
    uplink_by_memory=((1024, 20e6), (3072, 60e6)),
    downlink_bytes_per_s=70e6,
    cold_start_s=2.0,
)
ASKED: dict[str, Any] = {"imitate": "somewhere", "memory_mib": 1024}


def test_memory_brings_the_rest_with_it() -> None:
    assert resources_under(Settings(**ASKED), PLATFORM) == FunctionResources(
        FunctionSpec(memory_mib=1024, lifetime_s=900.0, cpu_cores=0.5, payload_bytes=6_000_000),
        Rates(up_bytes_per_s=20e6, down_bytes_per_s=70e6),
    )
    assert resources_under(
        Settings(imitate="somewhere", memory_mib=8192), PLATFORM
    ) == FunctionResources(
        FunctionSpec(memory_mib=8192, lifetime_s=900.0, cpu_cores=3, payload_bytes=6_000_000),
        Rates(up_bytes_per_s=60e6, down_bytes_per_s=70e6),
    )


@pytest.mark.parametrize(
    ("flag", "limits", "rates"),
    [
        ({"lifetime_s": 60}, {"lifetime_s": 60}, {}),
        ({"cpu_cores": 2}, {"cpu_cores": 2}, {}),
        ({"cold_start_s": 1}, {"cold_start_s": 1}, {}),
        ({"payload_kb": 50}, {"payload_bytes": 50_000}, {}),
        ({"uplink_mb_per_s": 5}, {}, {"up_bytes_per_s": 5e6}),
        ({"downlink_mb_per_s": 5}, {}, {"down_bytes_per_s": 5e6}),
        ({"latency_ms": 5}, {}, {"latency_s": 0.005}),
    ],
)
def test_each_is_overridden_by_its_own_flag(
    flag: dict[str, Any], limits: dict[str, Any], rates: dict[str, Any]
) -> None:
    plain = resources_under(Settings(**ASKED), PLATFORM)
    assert plain.rates is not None
    changed = FunctionResources(replace(plain.spec, **limits), replace(plain.rates, **rates))
    assert resources_under(Settings(**ASKED, **flag), PLATFORM) == changed


def test_what_the_catalogue_lacks_is_not_limited_and_said() -> None:
    bare = FunctionPlatform(name="bare", prices=None)
    given = resources_under(Settings(imitate="bare", memory_mib=512), bare)
    assert given == FunctionResources(FunctionSpec(memory_mib=512), None)
    assert in_words(given, "bare") == (
        "imitating bare: 512 MiB; not limited, as the catalogue lacks it: CPU, lifetime, uplink, "
        "downlink, payload"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"memory_mib": None}, "--imitate somewhere needs --memory.* 128 to 8192"),
        ({"memory_mib": 20480}, "somewhere has no functions of 20480 MiB: give 128 to 8192 MiB"),
        ({"memory_mib": 1000}, "in steps of 64"),
        ({"lifetime_s": 901}, "ends functions after 900 s"),
    ],
)
def test_what_it_does_not_have_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        resources_under(Settings(**{**ASKED, **settings}), PLATFORM)


def test_a_platform_with_gpus_cannot_be_imitated() -> None:
    with pytest.raises(RequestError, match="have GPUs and these have none: give --gpu"):
        resources_under(Settings(**ASKED), replace(PLATFORM, gpu="T4", gpus=1))


def test_lambda_as_the_catalogue_has_it() -> None:
    given = resources_of(Settings(imitate="aws-lambda", memory_mib=1769))
    assert (given.spec.cpu_cores, given.spec.lifetime_s) == (1.0, 900.0)
    assert given.rates is not None
    assert in_words(given, "aws-lambda").startswith("imitating aws-lambda: 1769 MiB, 1 CPUs, 900 s")


@pytest.mark.parametrize("name", Catalogue().platforms())
def test_every_platform_without_gpus_can_be_imitated(name: str) -> None:
    platform = Catalogue().platform(name)
    settings = Settings(imitate=name, memory_mib=platform.next_size_mib(4096))
    if platform.gpu is None:
        assert resources_of(settings).spec.memory_mib == settings.memory_mib
    else:
        with pytest.raises(RequestError, match="GPUs"):
            resources_of(settings)


def test_the_bill_is_the_imitated_platforms() -> None:
    assert price_list(Settings()) == "aws-lambda"
    assert price_list(Settings(imitate="cloud-run", memory_mib=1024)) == "cloud-run"


@root_only
def test_a_run_as_on_lambda(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = small.job(data, epochs=1)
    run = dayfly.train(job, run_dir=tmp_path / "run", memory_mib=900, imitate="aws-lambda-arm")
    assert "imitating aws-lambda-arm: 900 MiB, 0.509 CPUs" in capsys.readouterr().err
    assert json.loads((run.directory / "bill.json").read_text())["price_list"] == "aws-lambda-arm"
