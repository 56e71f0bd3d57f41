"""Many workers, by closed forms: where both run, they agree with virtual time."""

from __future__ import annotations

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from tests.planning.by_hand import layer, profile, size, transfer

AWS = Catalogue().platform("aws-lambda")
LAYERS = [layer("a", 40_000, passed=400.0), layer("b", 600_000, passed=400.0)]
#: How far a step may be from virtual time.
APART = 0.12


def known(latency_s: float) -> Profile:
    """Two buckets; 2000 samples."""
    way = transfer(latency_s=latency_s)
    return profile(LAYERS, size(2, up=way, down=way), samples=2000)


def both(made: Profile, asked: Configuration) -> tuple[Prediction, Prediction]:
    """By virtual time, and by closed forms."""
    return predict(made, asked, AWS), predict(made, asked, AWS, most_simulated=1)


@pytest.mark.parametrize(
    "name",
    ["overlapped", "scatter-reduce", "all-reduce", "pipelined", "ring", "push-pull", "k-reduce"],
)
@pytest.mark.parametrize("latency_s", [0.0, 0.01])
def test_whole_models(name: str, latency_s: float) -> None:
    asked = Configuration(
        workers=10,
        memory_mib=(1024,),
        batch_size=200,
        collective=name,
        aggregators=4 if name == "k-reduce" else None,
    )
    exact, formed = both(known(latency_s), asked)
    assert formed.step_s == pytest.approx(exact.step_s, rel=APART)
    assert formed.epoch_s == pytest.approx(exact.epoch_s, rel=APART)
    assert formed.run_volume == exact.run_volume


@pytest.mark.parametrize("k", [5, None])
def test_local_sgd(k: int | None) -> None:
    asked = Configuration(
        workers=8, memory_mib=(1024,), batch_size=80, sync="local-sgd", k=k, collective="overlapped"
    )
    exact, formed = both(known(0.002), asked)
    assert formed.step_s == pytest.approx(exact.step_s, rel=APART)
    assert formed.run_volume == exact.run_volume


def test_cut_models() -> None:
    asked = Configuration(
        workers=12,
        memory_mib=(1024,),
        cut=(1,),
        replicas=6,
        micro_batches=4,
        batch_size=240,
        collective="overlapped",
    )
    exact, formed = both(known(0.002), asked)
    assert formed.step_s == pytest.approx(exact.step_s, rel=0.15)
    assert formed.step_volume == exact.step_volume


@pytest.mark.long
def test_ten_thousand() -> None:
    made = profile([layer("a", 40_000), layer("b", 600_000)], samples=100_000)
    asked = Configuration(
        workers=10_000, memory_mib=(1024,), batch_size=50_000, collective="scatter-reduce"
    )
    found = predict(made, asked, AWS)
    # 2 x 10^4 puts of everybody, a hundred million a bucket, and the validation's.
    assert found.step_volume.puts == 2 * 10_000**2
    assert found.invocations == 10_000
