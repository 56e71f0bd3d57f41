"""Functions with a GPU: times from published figures, shares, two memories, prices, plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from benchmarks.parts.enumerated import gpus
from benchmarks.plans import compare

import dayfly
from dayfly.catalogue.gpu import GpuFacts, GpuRequest, gpu_shares
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.catalogued import Assumed, JobFacts, profile_of
from dayfly.planning.configuration import Configuration
from dayfly.planning.function_kinds import ProfiledGpu
from dayfly.planning.gpus import REACHED, Roofline, profiled_gpu, sharing
from dayfly.planning.memory import excess_mib, gpu_peak_mib, misfits
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, LayerBytes, Profile, dump_profile, load_profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target, TargetQuery, targets_of_profiles
from dayfly.runs.predict import predict as predicted_plan

KNOWN = Catalogue()
T4, K80 = KNOWN.platform("alibaba-fc-t4"), KNOWN.platform("azure-containers-k80")
OSS = replace(KNOWN.store("alibaba-oss"), latency_s=0.03)
_MB = 10**6
FACTS = JobFacts(
    job="wide",
    listed=True,
    samples=4096,
    validation_samples=0,
    sample_bytes=0.6 * _MB,
    state_per_trained_byte=1.0,
    layers=tuple(
        LayerBytes(
            name=f"{at}",
            parameters=40 * _MB,
            trained=40 * _MB,
            activations=20 * _MB,
            output=1 * _MB,
            gradient=1 * _MB,
        )
        for at in range(4)
    ),
    flops=(Affine(0.0, 2e9),) * 4,
    batch_size=256,
)
ASSUMED = Assumed(base_mib=200.0, cold_start_s=1.0)


def on_t4(**more: object) -> Profile:
    return profile_of(
        replace(FACTS, **more),
        T4,
        OSS,
        (4096, 8192),
        ASSUMED,
        every_kind=True,  # type: ignore[arg-type]
    )


def asked(share: float, micro: int = 1, workers: int = 1) -> Configuration:
    return Configuration(
        workers=workers,
        memory_mib=(4096,),
        gpu_share=share,
        micro_batches=micro,
        batch_size=256,
        collective="scatter-reduce",
    )


def test_a_layer_by_hand() -> None:
    """A GPU of 1 TFLOP/s, 100 GB/s and 10 GB/s to its machine: half of them are reached."""
    facts = GpuFacts(
        name="G", flops_per_s=1e12, memory_bytes_per_s=1e11, memory_mib=8192, host_bytes_per_s=1e10
    )
    first, second = FACTS.layers[:2]
    whole, half = (
        Roofline(facts, share).forward([first, second], FACTS.flops[:2], 0.6e6)
        for share in (1.0, 0.5)
    )
    assert REACHED == 0.5
    assert whole[0].fixed == pytest.approx(2 * 40e6 / 1e11)
    assert whole[0].each == pytest.approx(2 * (2e9 / 1e12 + (0.6e6 + 21e6) / 1e11))
    assert whole[1].each == pytest.approx(2 * (2e9 / 1e12 + (1e6 + 21e6) / 1e11))
    assert [one.each / two.each for one, two in zip(half, whole, strict=True)] == [2.0, 2.0]
    # Gradient, parameter and state read, parameter and state written; gradients there, sums back.
    assert Roofline(facts, 1.0).apply(1.0).each == pytest.approx(2 * (5 / 1e11 + 2 / 1e10))
    with pytest.raises(RequestError, match=r"no host_bytes_per_s of GPU G: add the row"):
        Roofline(replace(facts, host_bytes_per_s=None), 1.0)


def test_every_type_and_every_place_is_known() -> None:
    assert {"H100", "H200"} <= set(KNOWN.gpus())
    for name in ("K80", "V100", "T4", "L4", "A10G"):
        assert KNOWN.with_gpu(name)
    for name in KNOWN.gpus():
        Roofline(KNOWN.gpu(name), 1.0)
        assert KNOWN.gpu(name).memory_mib
    for place in map(KNOWN.platform, KNOWN.platforms()):
        assert (place.gpu is None) == (place.gpu_facts is None)
    assert gpu_shares(T4) == (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    assert gpu_shares(K80) == (1.0,)


def test_a_profile_has_a_size_for_each_share() -> None:
    made = on_t4()
    assert load_profile(dump_profile(made)) == made
    found = [(one.memory_mib, one.gpu_share) for one in made.sizes]
    wanted = [(4096, 1 / 8), (4096, 1 / 4), (4096, 1 / 2), (4096, 1.0)]
    wanted += [(8192, 1 / 4), (8192, 1 / 2), (8192, 1.0)]
    assert found == wanted, "with 1 GB of a T4 come 2 GB of memory at most"
    assert made.gpu is not None
    assert (made.gpu.type, made.gpu.memory_mib, made.gpu.derived) == ("T4", 16384, True)
    quarter, whole = made.size(4096, None, 0.25), made.size(4096, None, 1.0)
    assert quarter.forward[0].each == pytest.approx(4 * whole.forward[0].each)
    with pytest.raises(RequestError, match=r"4096 MiB and 0.3 of a GPU: it has 4096 MiB and 0.12"):
        made.size(4096, None, 0.3)
    with pytest.raises(RequestError, match="give gpu and each size a gpu_share, or neither"):
        load_profile(dump_profile(replace(made, gpu=None)))


def test_two_memories() -> None:
    """The GPU holds parameters, gradients, the state and activations; the machine the buffer."""
    made = on_t4()
    held = gpu_peak_mib(made, asked(1.0, micro=8), 0)
    parts = 768 + (3 * 160e6 + 32 * 80e6) / 2**20  # and what a pass needs beside
    assert parts < held < 1.2 * parts
    assert gpu_peak_mib(made, asked(1.0, micro=16), 0) < held
    # 64 samples a piece fit into half of a T4, 32 into a quarter.
    assert excess_mib(made, asked(0.5, 4), 0) <= 0 < excess_mib(made, asked(0.25, 4), 0)
    assert excess_mib(made, asked(0.25, 8), 0) <= 0
    said = predict(made, asked(0.25, 4), T4)
    assert said.gpu_memory_mib[0] > 4096 > 2400 > said.memory_mib[0]  # no activations there
    assert misfits(made, asked(0.25, 4), said) == [0]


def test_a_share_costs_its_part_and_says_that_nothing_was_measured() -> None:
    made = on_t4()
    whole, half = (predict(made, asked(share, 16), T4) for share in (1.0, 0.5))
    usd = [one.cost_usd / one.billed_s for one in (whole, half)]
    assert usd[0] - usd[1] == pytest.approx(0.5 * 16 * 2.1 * 2e-5, rel=1e-3)
    assert half.step_s == pytest.approx(2 * whole.step_s, rel=0.1)
    assert whole.warnings == ("times on the T4 are derived from published figures, not measured",)
    assert whole.interval is not None
    assert whole.interval.step_s == pytest.approx((whole.step_s / 2, whole.step_s * 2))
    assert "dayfly profile --gpu T4" in (whole.interval.to_measure or "")


def test_predicted_and_simulated_alike(tmp_path: Path) -> None:
    made = on_t4(samples=1024)
    plan = predicted_plan(made, workers=2, memory_mib=8192, gpu_share=0.5, micro_batches=8)
    assert plan.settings["gpu_share"] == 0.5
    file = tmp_path / "plan.json"
    file.write_text(plan.text())
    run = dayfly.simulate(str(file), run_dir=tmp_path / "run")
    assert plan.prediction is not None
    assert run.result.total_s == pytest.approx(plan.prediction.total_s, rel=0.02)
    assert run.result.cost_usd == pytest.approx(plan.prediction.cost_usd, rel=0.02)


def test_a_share_is_chosen() -> None:
    """Small ones cost least, whole ones are fastest; the next micro-batches are what fits."""
    target = Target.of(on_t4(), KNOWN)
    found = choice_of([target], PlanQuery(workers=4, time_limit_s=5.0))
    shares = [one.plan.candidate.settings.gpu_share for one in found.front.points]
    assert set(shares) <= set(gpu_shares(T4))
    assert found.front.fastest.plan.candidate.settings.gpu_share == 1.0
    assert "of a GPU" in found.chosen.plan.short or "and a GPU" in found.chosen.plan.short
    assert any("derived from published" in one for one in found.chosen.plan.prediction.warnings)
    chosen = found.chosen.plan.candidate.settings
    if not chosen.cut:
        tried = {one.other for one in found.knobs if one.setting == "GPU"}
        sizes = [one for one in on_t4().sizes if one.memory_mib == chosen.memory_mib]
        assert tried == {f"{one.gpu_share:g}" for one in sizes if one.gpu_share != chosen.gpu_share}


@pytest.mark.parametrize("seed", range(4))
def test_none_is_missed(seed: int) -> None:
    """As `dayfly bench plans --only gpus` has it for many more."""
    chance, compared = Random(f"{seed} gpus"), 0
    while compared < 5:
        problem = gpus.random_problem(chance)
        try:
            front = gpus.chosen(problem)
        except RequestError:  # no plan fits
            continue
        missed, dominated, _, count = compare(front, gpus.every_plan(problem), 0.0)
        assert (missed, dominated) == (0, 0)
        assert count
        compared += 1


def test_a_profile_is_planned_on_other_places() -> None:
    measured = replace(on_t4(), gpu=None, sizes=(replace(on_t4().sizes[0], gpu_share=None),))
    (target,) = targets_of_profiles(
        [measured], TargetQuery(platforms=["azure-containers-k80"], known=KNOWN)
    )
    assert str(target) == "azure-containers-k80 over tcp://"
    assert target.profile.gpu is not None
    assert target.profile.gpu.type == "K80"
    assert target.profile.batch_size == 256
    found = targets_of_profiles([measured], TargetQuery(gpu=GpuRequest("V100"), known=KNOWN))
    assert [one.platform.name for one in found] == ["azure-containers-v100"]
    assert any(
        "vm-p3-2xlarge is left out: the catalogue has no up" in one for one in found[0].notes
    )
    one = targets_of_profiles([on_t4()], TargetQuery(gpu=GpuRequest("T4", 0.5), known=KNOWN))
    assert {size.gpu_share for size in one[0].profile.sizes} == {0.5}


@pytest.mark.parametrize(
    ("platforms", "gpu", "words"),
    [
        ([], "B9", "the catalogue has no GPU 'B9': give one of A10G, H100"),
        ([], "H200", "no platform of the catalogue has one, only A10G, K80, L4, T4, V100: add"),
        (
            ["aws-lambda"],
            "K80",
            "functions of aws-lambda have no GPU: name one of azure-containers",
        ),
        (["azure-containers-k80"], "V100", "azure-containers-k80 have K80: name one of azure"),
        (["alibaba-fc-t4"], "T4:0.3", "no functions with 0.3 of a GPU: give a multiple of 0.0625"),
        ([], "T4:2", "'T4:2': give a type of GPU, as T4, and a share"),
        ([], "T4:", "'T4:': give a type of GPU"),
        (["vm-p3-8xlarge"], None, "a worker computes on one: name a platform with one V100 each"),
    ],
)
def test_what_cannot_be_had_is_refused(platforms: list[str], gpu: str | None, words: str) -> None:
    on_cpu = replace(on_t4(), gpu=None, sizes=(replace(on_t4().sizes[0], gpu_share=None),))
    given = {"up_bytes_per_s": (1e8,), "down_bytes_per_s": (1e8,), "latency_s": (0.03,)}
    with pytest.raises(RequestError, match=words):
        targets_of_profiles(
            [on_cpu],
            TargetQuery(
                platforms=platforms,
                stores=["tcp://"] if gpu is None else [],
                assumed=given,
                gpu=None if gpu is None else GpuRequest.parse(gpu),
                known=KNOWN,
            ),
        )


def test_a_type_without_figures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "platforms").mkdir()
    text = '[gpu]\nvalue = "B9"\nsource = "me"\nas_of = "2026-11"\n'
    (tmp_path / "platforms" / "azure-containers-k80.toml").write_text(text)
    place = Catalogue(tmp_path).platform("azure-containers-k80")
    with pytest.raises(RequestError, match=r"GPU B9, of which .* add gpus/B9.toml, with its sour"):
        profile_of(FACTS, place, OSS, (4096,), ASSUMED)
    (tmp_path / "gpus").mkdir()
    rows = {"flops_per_s": 1e12, "memory_bytes_per_s": 1e11, "host_bytes_per_s": 1e10}
    rows = {**rows, "memory_mib": 8192}
    made = (
        f'[{name}]\nvalue = {value}\nsource = "me"\nas_of = "2026-11"\n'
        for name, value in rows.items()
    )
    (tmp_path / "gpus" / "B9.toml").write_text("".join(made))
    own = Catalogue(tmp_path)
    gpu = profile_of(FACTS, own.platform("azure-containers-k80"), OSS, (4096,), ASSUMED).gpu
    assert gpu is not None
    assert (gpu.type, gpu.memory_mib) == ("B9", 8192)


def test_measured_on_a_gpu() -> None:
    """Alone a function has all of the GPU's time: with half of it, it takes twice as long."""
    alone = replace(on_t4().sizes[0], gpu_share=None)
    shared = sharing(alone, 0.5)
    assert sharing(alone, None) is alone
    assert (shared.gpu_share, shared.forward[0].each) == (0.5, 2 * alone.forward[0].each)
    assert shared.apply.each == 2 * alone.apply.each
    assert shared.data == alone.data
    assert shared.base_mib.value == alone.base_mib.value + 1024
    found = {"name": "Tesla V100-SXM2-16GB", "memory_mib": 16160}
    assert profiled_gpu(found, "V100") == ProfiledGpu(type="V100", memory_mib=16160)
    assert profiled_gpu({**found, "name": "Tesla T4"}, None).type == "T4"  # type: ignore[union-attr]
    assert profiled_gpu(None, "T4") is None
    with pytest.raises(RequestError, match="--gpu T4: the GPU of this machine is Tesla V100-SXM2"):
        profiled_gpu(found, "T4")
