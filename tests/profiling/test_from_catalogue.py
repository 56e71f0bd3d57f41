"""A job's profile from the catalogue: its facts, found without computing, and what it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.cli.profile import check_flags, profile_from_catalogue
from dayfly.errors import RequestError
from dayfly.planning.catalogued import Assumed
from dayfly.planning.profile import Profile, parse_profile
from dayfly.runs.api import checked_settings
from dayfly.runs.plans import JobSpec, profile_settings
from dayfly.runs.predict import predict_run
from dayfly.runs.profiling.from_catalogue import base_mib, catalogued_profile, job_facts
from tests.cli.command import run

pytestmark = pytest.mark.long

SAMPLES = 60


def adam(params: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=0.1)


def job(directory: Any, optimizer: Any = adam, **others: Any) -> dayfly.Job:
    """Two linear layers, 60 samples of 8 numbers and a class."""
    np.savez(
        directory / "data.npz",
        x_train=np.zeros((SAMPLES, 8), np.float32),
        y_train=np.zeros(SAMPLES, np.int64),
    )
    return dayfly.Job(
        model=lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
        data=str(directory / "data.npz"),
        loss=nn.functional.cross_entropy,
        optimizer=optimizer,
        batch_size=12,
        epochs=2,
        **others,
    )


def profile(made: dayfly.Job, *memory_mib: int) -> Profile:
    """On Lambda, over S3."""
    return catalogued_profile(
        made,
        name="small",
        platform="aws-lambda",
        store="s3",
        memory_mib=memory_mib,
        assumed=Assumed(base_mib=200.0, cold_start_s=0.5),
        catalogue=Catalogue(),
    )


def test_a_jobs_facts(tmp_path: Any) -> None:
    """A tenth of the samples is for validation; Adam keeps two numbers for each, and its step."""
    facts = job_facts(job(tmp_path, clip_norm=1.0), "small")
    assert (facts.samples, facts.validation_samples) == (54, 6)
    assert facts.sample_bytes == 8 * 4 + 8
    trained = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert [layer.trained for layer in facts.layers] == [4 * 144, 0, 4 * 68]
    assert facts.state_per_trained_byte == pytest.approx(2 + 4 * 4 / trained)
    assert [one.each for one in facts.flops] == [2 * 8 * 16, 0, 2 * 16 * 4]
    assert facts.listed
    assert (facts.batch_size, facts.epochs, facts.clips, facts.measures) == (12, 2, True, 4)


def test_looking_at_a_job_leaves_random_generators_alone(tmp_path: Any) -> None:
    before = torch.get_rng_state()
    job_facts(job(tmp_path), "small")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_it_predicts_falls_with_memory_and_has_lambdas_prices(tmp_path: Any) -> None:
    """Through the planner, as `dayfly predict` asks it."""
    known = profile(job(tmp_path), 1024, 1769)
    steps = []
    for memory_mib in (1024, 1769):
        asked = {"workers": 2, "memory_mib": memory_mib, "collective": "scatter-reduce"}
        settings = checked_settings(**profile_settings(known, asked))
        said = predict_run(known, settings, JobSpec.profiled(known)).prediction
        assert said is not None
        assert said.price_list == "aws-lambda"
        steps.append(said.step_s)
    # Four phases of scatter-reduce pay S3's 40 ms each, which is all but all of it.
    assert steps[0] > steps[1] > 4 * 0.04


def test_names_that_the_catalogue_lacks(tmp_path: Any) -> None:
    made = job(tmp_path)
    for platform, store, words in (
        ("moon", "s3", "no platform 'moon'"),
        ("aws-lambda", "attic", "no store 'attic'"),
        ("aws-lambda", "elasticache", "no latency_s of elasticache: give --latency"),
    ):
        with pytest.raises(RequestError, match=words):
            catalogued_profile(
                made,
                name="small",
                platform=platform,
                store=store,
                memory_mib=(1769,),
                assumed=Assumed(base_mib=200.0, cold_start_s=0.5),
                catalogue=Catalogue(),
            )


def test_an_optimizer_that_reads_values(tmp_path: Any) -> None:
    class Reads(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return float(self.param_groups[0]["params"][0].detach().sum())

    made = job(tmp_path, lambda params: Reads(params, lr=0.1))
    with pytest.raises(RequestError, match="optimizer cannot take a step on torch's meta device"):
        job_facts(made, "small")


def test_a_worker_without_a_model_takes_what_torch_takes() -> None:
    """Some 100 MiB at least, whatever the process has that asks."""
    held = np.ones(2**30 // 8)
    assert 100 < base_mib() < 1000
    assert held.nbytes == 2**30


def by_flags(made: dayfly.Job, **flags: Any) -> Profile:
    """As `dayfly profile --from-catalogue` makes it, of functions of 1769 MiB."""
    usual = {"platform": "aws-lambda", "store": "s3", "base_memory": 200.0, "cold_start": 0.5}
    return profile_from_catalogue(made, "small", (1769,), usual | flags)


def test_flags_have_the_units_of_other_commands(tmp_path: Any) -> None:
    """MB/s, ms, s; and GFLOP/s."""
    (size,) = by_flags(
        job(tmp_path),
        uplink=10.0,
        downlink=20.0,
        latency=5.0,
        flops_per_vcpu=2.0,
        threads=1,
        beta=1.5,
        cpu=None,
    ).sizes
    assert size.up.peak_bytes_per_s.value == 10e6
    assert size.down.peak_bytes_per_s.value == 20e6
    assert size.up.latency_s.value == pytest.approx(0.005)
    assert size.forward[0].each == pytest.approx(2 * 8 * 16 / 2e9)
    assert (size.init_s.value, size.base_mib.value, size.beta.value) == (0.5, 200.0, 1.5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"platform": None}, "needs --platform"),
        ({"store": None}, "needs --price-store"),
        ({"platform": "aws-lambda-arm"}, "no vcpu_flops_per_s of aws-lambda-arm: give --flops-"),
        ({"flops_per_vcpu": 0.0}, "vcpu_flops_per_s is 0: give more than 0"),
    ],
)
def test_flags_that_lack_or_cannot_be(tmp_path: Any, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        by_flags(job(tmp_path), **flags)
    with pytest.raises(RequestError, match="needs --memory"):
        profile_from_catalogue(job(tmp_path), "small", (), {"platform": "a", "store": "b"})


def test_flags_that_say_nothing_of_what_is_asked() -> None:
    assert check_flags({"from_catalogue": True, "store": "s3", "quick": False})
    assert not check_flags({"from_catalogue": False, "store": None, "quick": True})
    with pytest.raises(RequestError, match="--price-store is for a profile that is looked up: add"):
        check_flags({"from_catalogue": False, "store": "s3"})
    with pytest.raises(RequestError, match="--wait-timeout is for a profile that is measured"):
        check_flags({"from_catalogue": True, "wait_timeout": 60.0})


def test_the_command(tmp_path: Any) -> None:
    """It writes a profile that can be read, and refuses what no row says, with exit code 2."""
    (tmp_path / "small.py").write_text(
        "import torch, dayfly\n"
        "from torch import nn\n"
        "job = dayfly.Job(\n"
        "    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data='digits',\n"
        "    loss=nn.functional.cross_entropy, batch_size=64, epochs=1,\n"
        "    optimizer=lambda params: torch.optim.SGD(params, lr=0.1))\n"
    )
    usual = ("profile", "small.py", "--from-catalogue", "--platform", "aws-lambda")
    sizes = ("--memory", "1769,3538", "--base-memory", "200")
    done = run(*usual, *sizes, "--price-store", "s3", "--cold-start", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = parse_profile((tmp_path / "profile.json").read_text(), "profile.json")
    assert (made.job, made.imitate, made.how) == ("small", "aws-lambda", "catalogue")
    assert [size.memory_mib for size in made.sizes] == [1769, 3538]
    other = ("--platform", "aws-lambda-arm")
    refused = run(*usual, *other, *sizes, "--store", "s3", "--force", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no vcpu_flops_per_s of aws-lambda-arm: give --flops-per-vcpu" in refused.stderr
