"""vCPUs that are sold apart from memory: a place's grid, its prices, and plans over it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.metering import MeteredInvocation, bill, with_vcpus
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile, dump_profile, load_profile
from dayfly.runs.choosing.candidates import proposed
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import configuration_of
from tests.choose.lambda_by_hand import functions, job

KNOWN = Catalogue()
FARGATE = KNOWN.platform("fargate")


def on_fargate(layers: int = 3) -> Profile:
    """Of each pair of 2 to 8 GB and vCPUs; a layer takes 32 ms of a vCPU a sample forward."""
    sizes = []
    for memory_mib in (2048, 4096, 8192):
        for vcpus in FARGATE.vcpu_choices(memory_mib):
            one = functions(memory_mib, layers, cpu_cores=vcpus)
            each = 0.032 / vcpus
            forward = tuple(replace(pass_, each=each) for pass_ in one.forward)
            backward = tuple(replace(pass_, each=2 * each) for pass_ in one.backward)
            sizes.append(replace(one, forward=forward, backward=backward))
    return replace(job(layers, 20.0), imitate="fargate", sizes=tuple(sizes))


@pytest.mark.parametrize(
    ("platform", "memory_mib", "vcpus"),
    [
        ("fargate", 512, (0.25,)),
        ("fargate", 2048, (0.25, 0.5, 1)),
        ("fargate", 8192, (1, 2, 4)),
        ("fargate", 20480, (4, 8)),
        ("fargate", 17408, (4,)),  # 17 GB: with 8 vCPUs memory comes in steps of 4 GB
        ("fargate", 32768, (8, 16)),
        ("cloud-run", 4096, (1, 2, 4, 6, 8)),
        ("cloud-run", 32768, (8,)),
        ("azure-containers", 6144, (1, 2, 3, 4)),
        ("alibaba-fc", 4096, (1, 2, 4)),
        ("aws-lambda", 1769, (1,)),  # sells none apart
    ],
)
def test_grids(platform: str, memory_mib: int, vcpus: tuple[float, ...]) -> None:
    assert KNOWN.platform(platform).vcpu_choices(memory_mib) == vcpus


def test_a_profile_has_a_size_for_each_pair() -> None:
    made = on_fargate()
    assert load_profile(dump_profile(made)) == made
    assert made.size(4096).cpu_cores == 0.5
    assert made.size(4096, 2.0).cpu_cores == 2.0
    with pytest.raises(RequestError, match=r"4096 MiB and 3 vCPUs: .* 4096 MiB and 0.5 vCPUs"):
        made.size(4096, 3.0)
    with pytest.raises(RequestError, match="of one memory by cpu_cores, then gpu_share, each once"):
        load_profile(dump_profile(replace(made, sizes=(made.sizes[1], made.sizes[0]))))


def test_vcpus_are_on_the_bill() -> None:
    used = MeteredInvocation(
        function="worker-0",
        attempt=0,
        memory_mib=8192,
        init_s=0.0,
        run_s=3600.0,
        outcome="returned",
    )
    fewest, asked = bill([used], FARGATE), bill(with_vcpus([used], 4.0), FARGATE)
    assert fewest.cost_usd == pytest.approx(0.04048 + 8 * 0.004445)
    assert asked.cost_usd == pytest.approx(4 * 0.04048 + 8 * 0.004445)
    c = Configuration(workers=1, memory_mib=(8192,), vcpus=4.0, batch_size=64)
    slow = predict(on_fargate(), replace(c, vcpus=1.0), FARGATE)
    fast = predict(on_fargate(), c, FARGATE)
    assert slow.step_s == pytest.approx(4 * fast.step_s, rel=0.01)
    assert fast.cost_usd / fast.billed_s == pytest.approx(asked.cost_usd / 3600)


def test_the_planner_chooses_vcpus() -> None:
    """For speed as many as there are, though the memory is more than the model needs; cheap plans
    have fewer of both. Cut models have as many in all stages."""
    target = Target.of(on_fargate(), KNOWN)
    query = PlanQuery(
        workers=4, micro_batches=(8,), goal=Goal(weights=(0.0, 1.0)), time_limit_s=5.0
    )
    found = choice_of([target], query)
    chosen = found.chosen.plan
    assert chosen.candidate.settings.cpu_cores == 4.0
    assert chosen.candidate.settings.memory_mib == 8192 or chosen.candidate.settings.cut
    assert "and 4 vCPUs" in chosen.short
    assert configuration_of(chosen.plan).vcpus == 4.0
    assert found.front.cheapest.plan.candidate.settings.cpu_cores in (None, 0.25, 0.5, 1.0)
    kinds = {one.kind for one in proposed(target, query, time_limit_s=5.0).candidates}
    assert kinds == {"pipeline", "data parallel"}
    if not chosen.candidate.settings.cut:
        tried = [one for one in found.knobs if one.setting == "vCPUs"]
        assert [one.other for one in tried] == ["1", "2"]
        assert all(one.option is not None for one in tried)
