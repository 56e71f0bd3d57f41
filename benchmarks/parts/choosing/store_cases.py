"""CE-scaling's workloads, and random ones like them.

The paper's (section IV-A, table IV): bytes of model and data, and samples of a batch, which each
function has for itself. u(m) is by FLOPs at Lambda's vCPUs, latencies are in the order of its table
I (`benchmarks.parts.papers.ce_scaling`). YFCC100M's subset has no printed size: 100,000 vectors.
There are at least two functions, as a lone one needs no store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.parts.choosing.answer import Goal, cheapest_within, fastest_within
from benchmarks.parts.choosing.cases import Case
from benchmarks.parts.choosing.store_problem import MemorySize, StoreOption, StoreProblem
from benchmarks.parts.choosing.stores import plan_stores
from benchmarks.parts.papers.models import BACKWARD, layers_of, together
from benchmarks.parts.papers.rows import given, platform, prices, store

_MEMORY_MIB = tuple(range(512, 10241, 128))
_WORKERS = tuple(range(2, 201))
#: Title, bytes of the model, samples, bytes of one, samples of a batch, FLOPs of a sample forward;
#: a name of `dayfly.models` where its FLOPs are counted.
_WORKS: tuple[tuple[str, float, int, float, int, float | str], ...] = (
    ("LR, Higgs", 28 * 4, 11_000_000, 28 * 4, 10_000, 2 * 28),
    ("LR, YFCC", 4096 * 4, 100_000, 4096 * 4, 800, 2 * 4096),
    ("MobileNet", 12e6, 60_000, 3072 * 4, 128, "mobilenet_v1_32"),
    ("ResNet50", 89e6, 60_000, 3072 * 4, 32, "resnet50"),
    ("BERT-base", 340e6, 25_000, 292 * 4, 32, "bert_base"),
)


def paper_cases(names: Sequence[str] | None = None) -> tuple[Case, ...]:
    """Five of table IV, of one epoch, with goals of which the paper prints none. names: only these;
    None: all."""
    found = []
    for number, work in enumerate(_WORKS):
        title, size_bytes, samples, sample_bytes, batch, counted = work
        if names is not None and title not in names:
            continue
        flops = together(layers_of(counted)).flops if isinstance(counted, str) else counted
        problem = StoreProblem(
            size_bytes=size_bytes,
            data_bytes=samples * sample_bytes,
            batch_bytes=batch * sample_bytes,
            sample_bytes=sample_bytes,
            sizes=_sizes(flops / sample_bytes),
            stores=_stores(random.Random(0), spread=0.0),
            workers=_WORKERS,
            at_once=1000,
            usd_per_invocation=prices("aws-lambda").usd_per_request,
        )
        goals = _goals(problem, random.Random(number))
        found.append(Case(name=title, problem=problem, goals=goals))
    return tuple(found)


def random_cases(count: int, seed: int) -> tuple[Case, ...]:
    """Others: every second has one batch for all functions."""
    dice = random.Random(seed)
    found = []
    for number in range(1, count + 1):
        problem = _random(dice, shared=number % 2 == 0)
        goals = _goals(problem, dice)
        found.append(Case(name=f"random {number}", problem=problem, goals=goals))
    return tuple(found)


def _goals(problem: StoreProblem, dice: random.Random) -> tuple[Goal, ...]:
    """1.05 to 3 times what is least possible, of either."""
    front = plan_stores(problem)
    return (
        cheapest_within(front.fastest.seconds * dice.uniform(1.05, 3.0)),
        fastest_within(front.cheapest.usd * dice.uniform(1.05, 3.0)),
    )


def _random(dice: random.Random, *, shared: bool) -> StoreProblem:
    sample_bytes = dice.choice([112.0, 1168.0, 12_288.0])
    batch = dice.choice([32, 128, 800]) * sample_bytes * (8 if shared else 1)
    held = batch / dice.uniform(0.5, 8) / max(_MEMORY_MIB)
    return StoreProblem(
        size_bytes=112 * 10 ** dice.uniform(0, 6.5),
        data_bytes=dice.randint(20_000, 500_000) * sample_bytes,
        batch_bytes=batch,
        shared_batch=shared,
        sample_bytes=sample_bytes,
        sizes=_sizes(10 ** dice.uniform(-0.5, 5), held if shared else None),
        stores=_stores(dice, spread=1.0),
        workers=_WORKERS,
        at_once=1000,
        usd_per_invocation=prices("aws-lambda").usd_per_request,
    )


def _sizes(
    flops_per_byte: float, held_bytes_per_mib: float | None = None
) -> tuple[MemorySize, ...]:
    """held_bytes_per_mib: of a batch; None: any fits."""
    row = platform("aws-lambda")
    rate = given(row.uplink_bytes_per_s, "rate of aws-lambda")
    per_vcpu = given(row.vcpu_flops_per_s, "FLOPs of aws-lambda")
    made = []
    for memory in _MEMORY_MIB:
        vcpus = given(row.vcpus(memory), "vCPUs of aws-lambda")
        made.append(
            MemorySize(
                memory_mib=memory,
                compute_s_per_byte=(1 + BACKWARD) * flops_per_byte / (vcpus * per_vcpu),
                loading_bytes_per_s=rate,
                usd_per_s=prices("aws-lambda").usd_for_1_s(memory, vcpus),
                most_batch_bytes=held_bytes_per_mib * memory
                if held_bytes_per_mib
                else float("inf"),
            )
        )
    return tuple(made)


def _stores(dice: random.Random, *, spread: float) -> tuple[StoreOption, ...]:
    """S3, DynamoDB, ElastiCache and a server. spread: of their latencies, 0 to 1."""
    rate = given(platform("aws-lambda").uplink_bytes_per_s, "rate of aws-lambda")

    def latency(usual_s: float) -> float:
        return usual_s * 3 ** (spread * dice.uniform(-1, 1))

    return (
        *(
            StoreOption.of_store(store(name), bytes_per_s=rate, latency_s=latency(usual_s))
            for name, usual_s in (("s3", 0.04), ("dynamodb", 0.01), ("elasticache", 0.001))
        ),
        StoreOption.of_machine(platform("vm-m5-large"), bytes_per_s=rate, latency_s=latency(0.001)),
    )
