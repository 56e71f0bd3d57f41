"""Spot machines: their prices and interruptions, and what these cost a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import plan_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.configuration import Configuration
from dayfly.planning.interruptions import interrupted_s, per_s
from dayfly.planning.predict import predict
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()
PLAIN, SPOT = KNOWN.platform("vm-m5-large"), KNOWN.platform("vm-m5-large:spot")
#: One interruption of a machine each half hour.
OFTEN = replace(SPOT, spot_interruptions_per_month=1460.0)


def test_a_spot_machine_is_cheaper_and_taken_away() -> None:
    assert PLAIN.usd_per_s(None) == pytest.approx(0.096 / 3600)
    assert SPOT.usd_per_s(None) == pytest.approx(0.34 * 0.096 / 3600)
    assert per_s(PLAIN) == 0.0
    assert per_s(SPOT) == 0.2 / (730 * 3600)
    assert "vm-m5-large:spot" in KNOWN.spot_machines()
    assert "vm-nc6:spot" not in KNOWN.spot_machines()
    assert {"vm-p3-2xlarge", "vm-p3-2xlarge:spot"} <= set(KNOWN.with_gpu("V100"))
    assert (
        replace(PLAIN, name=SPOT.name, prices=SPOT.prices, spot_interruptions_per_month=0.2) == SPOT
    )


@pytest.mark.parametrize("name", ["aws-lambda:spot", "vm-m5-large:other", "vm-nc6:spot"])
def test_what_is_no_spot_machine(name: str) -> None:
    with pytest.raises(RequestError, match=f"the catalogue has no platform '{name}'"):
        KNOWN.platform(name)


def test_each_interruption_costs_a_start_and_half_of_a_checkpoint_s_time() -> None:
    # 4 machines, each taken away every 1800 s, and 30 + 60 / 2 s each time: 1 of 7.5 seconds.
    asked = {"start_s": 30.0, "checkpoint_every_s": 60.0}
    assert interrupted_s(650.0, 4, OFTEN, **asked) == pytest.approx(650 / (1 - 4 * 60 / 1800))
    assert interrupted_s(650.0, 4, PLAIN, **asked) == 650.0
    with pytest.raises(RequestError, match="30 workers on vm-m5-large:spot are interrupted faster"):
        interrupted_s(650.0, 30, OFTEN, **asked)


def test_a_prediction_and_its_bill_have_the_interruptions() -> None:
    c = Configuration(workers=4, replicas=4, memory_mib=(4096,), batch_size=64, epochs=20)
    without = predict(job(), c, replace(OFTEN, spot_interruptions_per_month=None))
    said = predict(job(), c, OFTEN)
    longer = said.total_s / without.total_s
    assert longer > 1.05
    assert said.interruptions == pytest.approx(4 * said.total_s / 1800)
    assert said.cost_usd == pytest.approx(longer * without.cost_usd, rel=0.01)
    assert said.train_s is not None
    assert said.startup_s == without.startup_s
    assert without.interruptions == 0.0


def test_planner_and_prediction_agree_about_interruptions() -> None:
    made = job()
    problem = DataParallelProblem(
        profile=made,
        platform=OFTEN,
        workers=(4,),
        collectives=("scatter-reduce",),
        micro_batches=(1,),
        batch_size=64,
        epochs=20,
    )
    calm = replace(OFTEN, spot_interruptions_per_month=None)
    point = plan_data_parallel(problem).fastest
    without = plan_data_parallel(replace(problem, platform=calm)).fastest
    plan = point.plan
    c = Configuration(
        workers=4, replicas=4, memory_mib=(plan.memory_mib,), batch_size=64, epochs=20
    )
    ratio = predict(made, c, OFTEN).total_s / predict(made, c, calm).total_s
    assert point.seconds / without.seconds == pytest.approx(ratio, rel=0.01)
