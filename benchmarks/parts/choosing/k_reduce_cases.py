"""FasDL's workloads, and random ones like them.

The paper's: a, b, m of table II, T_con and B^g_max of table IV; what it does not print is assumed
as `benchmarks.parts.papers.fasdl.costs` has it. Memory in steps of 128 MiB, B^a in steps of 16 from
gamma = 0.6 on; at least two functions.
"""

from __future__ import annotations

import random

from benchmarks.parts.choosing.answer import cheapest_within
from benchmarks.parts.choosing.cases import Case
from benchmarks.parts.papers.fasdl.costs import USUAL, epochs_of
from benchmarks.parts.papers.fasdl.workloads import BASE_MIB, MIB, WORKLOADS, Workload
from benchmarks.parts.papers.rows import given, platform, prices, store
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReduceProblem, batches
from dayfly.planning.profile import Affine, Figure, Fit, Transfer

_MEMORY_MIB = tuple(range(128, 10241, 128))


def paper_cases() -> tuple[Case, ...]:
    """The four of table IV: the least dollars within T_con."""
    return tuple(
        Case(
            name=load.title,
            problem=_problem_of(load),
            goals=(cheapest_within(load.limit_s),),
        )
        for load in WORKLOADS
    )


def random_cases(count: int, seed: int) -> tuple[Case, ...]:
    """Others like them: the deadline is 1.05 to 3 times what the fastest plan takes."""
    dice = random.Random(seed)
    found = []
    for number in range(1, count + 1):
        problem = _random(dice)
        fastest = plan_k_reduce(problem).fastest
        goal = cheapest_within(fastest.seconds * dice.uniform(1.05, 3.0))
        found.append(Case(name=f"random {number}", problem=problem, goals=(goal,)))
    return tuple(found)


def _problem_of(load: Workload) -> KReduceProblem:
    """A row of the paper's tables."""
    rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")
    return _problem(
        size_mib=load.size_mib,
        fit=load.fit,
        samples=load.samples,
        data_bytes=load.data_bytes,
        epochs=float(epochs_of(load)),
        most=load.most_samples,
        sample_mib=load.sample_mib,
        ways=_way(USUAL.latency_s("S3"), rate),
    )


def _random(dice: random.Random) -> KReduceProblem:
    """A model of 2 to 500 MiB whose rates saturate or do not."""
    size_mib = 2 * 250 ** dice.random()
    saturation = dice.choice([float("inf"), 1 / (MIB * dice.uniform(0.2, 4))])
    return _problem(
        size_mib=size_mib,
        fit=Fit(
            a=size_mib * dice.uniform(0.3, 8),
            b=dice.uniform(2, 24),
            m=dice.uniform(-110, 1200),
            error=0.0,
        ),
        samples=dice.choice([8_551, 50_000]),
        data_bytes=50_000 * dice.choice([128.0, 3072.0, 150_000.0]),
        epochs=float(dice.randint(1, 20)),
        most=dice.choice([256, 384, 512, 640, 1024]),
        sample_mib=dice.uniform(1, 40),
        ways=_way(dice.uniform(0.0, 0.06), dice.uniform(30e6, 100e6), saturation),
    )


def _problem(
    *,
    size_mib: float,
    fit: Fit,
    samples: int,
    data_bytes: float,
    epochs: float,
    most: int,
    sample_mib: float,
    ways: Transfer,
) -> KReduceProblem:
    base_mib = BASE_MIB + 4 * size_mib
    sizes = []
    for memory in _MEMORY_MIB:
        holds = int((memory - base_mib) / sample_mib)
        if holds < 1 or memory + fit.m <= 0:
            continue
        each = fit.a / (memory + fit.m)
        sizes.append(
            FunctionSize(
                memory_mib=memory,
                train=Affine(fit.b * each, each),
                up=ways,
                down=ways,
                most_samples=holds,
                usd_per_s=prices("aws-lambda").usd_per_gb_s * memory / 1024,
            )
        )
    allowed = batches(sizes[0].train, min(most, max(one.most_samples for one in sizes)))
    return KReduceProblem(
        size_bytes=size_mib * MIB,
        data_bytes=data_bytes,
        samples=samples,
        epochs=epochs,
        sizes=tuple(sizes),
        workers=tuple(range(2, max(2, most // allowed[0]) + 1)),
        aggregators_samples=allowed,
        most_global_samples=most,
        store=store("s3"),
        usd_per_invocation=prices("aws-lambda").usd_per_request,
    )


def _way(latency_s: float, bytes_per_s: float, saturation: float = float("inf")) -> Transfer:
    return Transfer(
        latency_s=Figure.given(latency_s),
        peak_bytes_per_s=Figure.given(bytes_per_s),
        saturation_per_byte=saturation,
    )
