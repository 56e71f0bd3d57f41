"""What dayfly and the papers' methods choose for jobs of this machine, and rows of what was run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parts.choosing import carried_out
from benchmarks.parts.choosing.carried_out import row
from benchmarks.parts.choosing.carried_out_shown import table
from benchmarks.parts.choosing.on_jobs import (
    DEADLINE,
    EXACT,
    FUNCTIONS,
    VCPUS,
    WEIGHTS,
    Chosen,
    chosen_plans,
)
from benchmarks.parts.planning.measure import Taken

from dayfly.planning.profile import Profile
from dayfly.runs.plans import configuration_of
from tests.choose.lambda_by_hand import functions, job

SIZES = (1024, 2048, 4096)


def profiled() -> Profile:
    """Four layers; a quarter of a core for each GiB."""
    sizes = tuple(functions(one, 4, cpu_cores=one / 4096) for one in SIZES)
    return replace(job(megabytes=4.0), sizes=sizes)


@pytest.fixture(scope="module")
def chosen() -> list[Chosen]:
    return list(chosen_plans(profiled(), batch_size=64, epochs=2))


@pytest.mark.long
def test_all_answer_both_questions_within_the_limits(chosen: list[Chosen]) -> None:
    assert [one.method for one in chosen if one.question == DEADLINE] == [
        *(EXACT, "two-stage search (FasDL)", "ScatterReduce, searched", "AllReduce, searched"),
        *("greedy (CE-scaling)", "LambdaML, fixed"),
    ]
    assert [one.method for one in chosen if one.question == WEIGHTS] == [
        *(EXACT, "MIQP (FuncPipe)", "TPDMP, grid", "Bayes, 100 rounds", "LambdaML, fixed")
    ]
    assert sum(one.plan is not None for one in chosen) >= 8
    for one in chosen:
        if one.plan is None:
            continue
        c = configuration_of(one.plan)
        assert c.workers <= FUNCTIONS
        stages = c.memory_mib * (c.workers // len(c.memory_mib))
        assert sum(size / 4096 for size in stages if size is not None) <= VCPUS
        assert one.words
        assert one.prediction is not None


@pytest.mark.long
def test_by_dayflys_own_prediction_no_answer_is_better(chosen: list[Chosen]) -> None:
    best = {one.question: one.prediction for one in chosen if one.method == EXACT}
    for one in chosen:
        said, least = one.prediction, best[one.question]
        if said is None:
            continue
        assert least is not None
        if one.question == DEADLINE:
            assert isinstance(one.limit, float)
            assert said.run_s > one.limit or said.cost_usd >= least.cost_usd * 0.999
        else:
            assert not isinstance(one.limit, float)
            mine, its = (one.limit[0] * p.cost_usd + one.limit[1] * p.run_s for p in (least, said))
            assert its >= mine * 0.999


def took(run_s: float, usd: float) -> Taken:
    return Taken(
        step_s=0.1,
        cost_usd=usd,
        wall_s=run_s,
        run_s=run_s,
        billed_s=run_s,
        peaks_mib=(100.0,),
        breakdown={},
        steps=10,
    )


def test_rows_are_beside_dayflys_in_the_same_round(chosen: list[Chosen]) -> None:
    best = [took(10.0, 2.0), took(20.0, 2.0), took(10.0, 2.0)]
    other = [took(20.0, 1.0), took(30.0, 3.0), took(40.0, 2.0)]
    by_deadline = next(one for one in chosen if one.question == DEADLINE and one.plan is not None)
    one = row("cnn", replace(by_deadline, limit=20.0), other, best)
    assert one["measured"]["run_s"] == 30.0
    assert one["late"] == pytest.approx(0.5)
    assert (one["ratio"]["run_s"], one["ratio"]["run_s_min"]) == (2.0, 1.5)
    assert one["ratio"]["value"] == 1.0  # dollars: 0.5, 1.5, 1
    by_weights = next(one for one in chosen if one.question == WEIGHTS and one.plan is not None)
    weighed = row("cnn", replace(by_weights, limit=(1.0, 1.0)), other, best)
    assert weighed["ratio"]["value"] == pytest.approx(21 / 12)  # of 1.75, 1.5 and 3.5
    failed = row("cnn", by_deadline, [took(1.0, 1.0), "out of memory"], best)
    assert (failed["failed"], failed["measured"]) == ("out of memory", None)
    nothing = row("cnn", Chosen(question=DEADLINE, limit=20.0, method="none", plan=None), [], best)
    result = {
        "rounds": 3,
        "machine": carried_out.machine(),
        "rows": [one, weighed, failed, nothing],
    }
    assert table(result).row_count == 5  # a heading, the rows, three lines
