"""What CE-scaling's table II says of stores, by its own equations and today's prices."""

from __future__ import annotations

from benchmarks.parts.choosing.store_problem import MemorySize, StoreOption, StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import plan_stores
from benchmarks.parts.choosing.stores_beside import Beside, beside, words

from dayfly.catalogue.lookup import Catalogue

CATALOGUE = Catalogue()
LAMBDA = CATALOGUE.platform("aws-lambda")
WAY = 70e6


def store(name: str, latency_s: float) -> StoreOption:
    """Latencies as table I has them: high, medium, low."""
    return StoreOption.of_store(CATALOGUE.store(name), bytes_per_s=WAY, latency_s=latency_s)


STORES = (
    store("s3", 0.04),
    store("dynamodb", 0.01),
    store("elasticache", 0.001),
    StoreOption.of_machine(CATALOGUE.platform("vm-m5-large"), bytes_per_s=WAY, latency_s=0.001),
)


def over(size_bytes: float, data_bytes: float, batch_bytes: float, n: int) -> dict[str, Beside]:
    """Each store between n functions of 1769 MiB, as in table II."""
    size = MemorySize(
        memory_mib=1769,
        compute_s_per_byte=1e-7,
        loading_bytes_per_s=WAY,
        usd_per_s=LAMBDA.usd_per_s(1769),
    )
    p = StoreProblem(
        size_bytes=size_bytes,
        data_bytes=data_bytes,
        batch_bytes=batch_bytes,
        sizes=(size,),
        stores=STORES,
        workers=(n,),
    )
    plan = StorePlan(workers=n, memory_mib=1769, store="s3")
    assert plan_stores(p).points
    assert words(p, plan).count(" would take ") == 3
    return {one.store: one for one in beside(p, plan)}


def test_a_small_model() -> None:
    """Logistic regression on Higgs: 11 million samples of 28 numbers, 10,000 in a step.

    Of ten functions DynamoDB is faster and cheaper than S3, by latency and requests. The server is
    the fastest, as it sums up; its minute more makes it dearer than a store of low latency.
    """
    found = over(4 * 29, 11e6 * 28 * 4, 1e4 * 28 * 4, 10)
    assert found["dynamodb"].run_s < found["s3"].run_s
    assert found["dynamodb"].run_usd < found["s3"].run_usd
    assert min(found.values(), key=lambda one: one.run_s).store == "vm-m5-large"
    assert found["vm-m5-large"].run_usd > found["elasticache"].run_usd
    assert found["s3"].seconds["latency"] > 100 * found["s3"].seconds["bandwidth"]


def test_a_large_model() -> None:
    """MobileNet of 12 MB on CIFAR-10: the server is faster and cheaper than S3, with 10 and 50."""
    for n in (10, 50):
        found = over(12e6, 50_000 * 3072, 128 * 3072, n)
        assert found["vm-m5-large"].run_s < found["s3"].run_s
        assert found["vm-m5-large"].run_usd < found["s3"].run_usd
        # An item of DynamoDB has at most 400 KB: it is sent as 30, and each kilobyte is paid for.
        assert found["dynamodb"].usd["requests"] > 100 * found["s3"].usd["requests"]
