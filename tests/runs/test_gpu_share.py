"""Shares of GPUs in a run's settings, on the bill, and where this machine has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import MeteredInvocation, bill
from dayfly.errors import RequestError
from dayfly.runs.events import Events
from dayfly.runs.function_resources import in_words, resources_of
from dayfly.runs.scripts.record import ScriptSettings
from dayfly.runs.settings import Settings
from dayfly.specs.functions import FunctionSpec
from tests.runs import small

pytestmark = pytest.mark.long

T4 = Catalogue().platform("alibaba-fc-t4")
ASKED: dict[str, Any] = {"imitate": "alibaba-fc-t4", "memory_mib": 4096}
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.mark.parametrize("share", [0, -1, 1.01, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [Settings, ScriptSettings])
def test_a_share_is_above_zero_and_at_most_one(kind: Any, share: float) -> None:
    with pytest.raises(RequestError, match=r"--gpu .*: give the share of a GPU"):
        kind(gpu_share=share)


def test_functions_get_the_share_that_was_asked_for() -> None:
    assert resources_of(Settings(gpu_share=0.25)).spec == FunctionSpec(gpu_share=0.25)
    assert resources_of(ScriptSettings(gpu_share=1)).spec == FunctionSpec(gpu_share=1)


@no_gpu
def test_a_run_on_a_machine_without_gpus_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--gpu 0\.5: this machine has no GPU that torch can"):
        dayfly.train(small.job(data), run_dir=tmp_path / "run", gpu_share=0.5, progress=False)
    assert not (tmp_path / "run").exists()


def test_a_platform_with_gpus_is_imitated_with_a_share_that_it_has() -> None:
    given = resources_of(Settings(**ASKED, gpu_share=0.25))
    assert given.spec.gpu_share == 0.25
    assert in_words(given, "alibaba-fc-t4").startswith(
        "imitating alibaba-fc-t4: 4096 MiB, 0.25 of a GPU, "
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ASKED, "functions have GPUs and these have none: give --gpu"),
        ({**ASKED, "gpu_share": 0.3}, "no functions with 0.3 of a GPU: give a multiple of 0.0625"),
        ({"imitate": "vm-p3-2xlarge", "gpu_share": 0.5}, "with 0.5 of a GPU: give a share of 1"),
        ({"imitate": "vm-p3-8xlarge", "gpu_share": 1}, "has 4 GPUs in each function"),
        ({"imitate": "aws-lambda", "gpu_share": 1}, "aws-lambda has no functions with a GPU"),
    ],
)
def test_what_it_does_not_have_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        resources_of(Settings(**{"memory_mib": 1024, **settings}))


def used(share: float | None) -> MeteredInvocation:
    return MeteredInvocation(
        function="worker-0", attempt=0, memory_mib=4096, init_s=1, run_s=9,
        outcome="returned", vcpus=2, gpu_share=share,
    )  # fmt: skip


def test_a_part_of_a_gpu_costs_that_part() -> None:
    """2.1 compute units a second for each of its 16 GB: a quarter of them is 4 GB's."""
    whole, quarter = bill([used(1)], T4), bill([used(0.25)], T4)
    unit_usd = Catalogue().rows("platforms", "alibaba-fc-t4")["usd_per_cu"].value
    assert whole.cost_usd - quarter.cost_usd == pytest.approx(10 * 2.1 * 12 * unit_usd)
    assert whole.notes == quarter.notes == ()
    # As before there were shares: who is not known to have less is billed for all of it.
    assert bill([used(None)], T4).cost_usd == whole.cost_usd


def test_what_cannot_be_had_is_billed_as_what_can_and_said() -> None:
    odd = bill([used(0.3)], T4)
    assert odd.cost_usd == bill([used(5 / 16)], T4).cost_usd
    assert odd.notes == (
        "worker-0: alibaba-fc-t4 has no functions with 0.3 of a GPU: give a multiple of 0.0625",
    )
    on_lambda = bill(
        [replace(used(0.5), memory_mib=1024, vcpus=None)], Catalogue().platform("aws-lambda")
    )
    assert "aws-lambda has no functions with a GPU" in on_lambda.notes[0]


@given(st.floats(0.001, 1))
def test_the_share_that_is_billed_can_be_had_and_is_enough(share: float) -> None:
    had = T4.next_gpu_share(share)
    T4.check(gpu_share=had)
    assert share - 1e-6 <= had <= share + 1 / 16


def test_shares_are_read_back_also_of_a_killed_coordinators_functions(tmp_path: Path) -> None:
    lines = [
        {"kind": "invoked", "at": 1.0, "function": "worker-0", "attempt": 0, "gpu_share": 0.5},
        {"kind": "invoked", "at": 1.0, "function": "worker-1", "attempt": 0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "coordinator.jsonl").write_text(text)
    assert [one.gpu_share for one in Events.read(tmp_path).used] == [0.5, None]
