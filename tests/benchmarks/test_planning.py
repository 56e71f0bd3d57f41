"""`dayfly bench planning`: what it measures, and how it compares."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from benchmarks.parts.planning.compare import PAPERS, error, repeatability, row, summary
from benchmarks.parts.planning.configurations import CHOSEN, MOST_CORES, Chosen
from benchmarks.parts.planning.imitated import EVERY, IMITATED
from benchmarks.parts.planning.jobs import WORKS
from benchmarks.parts.planning.measure import Taken
from rich.console import Console

from benchmarks import planning
from dayfly.runs.function_resources import resources_of
from dayfly.runs.settings import Settings
from dayfly.training.replica import build_model
from dayfly.wire.collectives import COLLECTIVES

pytestmark = pytest.mark.long

URLS = {"file": None, "redis": "redis://127.0.0.1:6379/0", "tcp": "tcp://", "ps": "ps://"}
URLS["ps2"] = "ps://127.0.0.1,127.0.0.1"
ALL = list(CHOSEN.values())


def settings(one: Chosen) -> Settings:
    return Settings(channel=URLS[one.channel], **one.asked)


def test_there_are_enough() -> None:
    assert (len(ALL), sum(one.held_out for one in ALL)) == (40, 12)
    assert {one.work for one in ALL} == set(WORKS)
    assert {one.channel for one in ALL} >= {"file", "redis"}
    assert sum(one.way == "unshaped" for one in ALL) >= 4
    assert {one.workers for one in ALL} == {1, 2, 3, 4, 5, 6}
    assert {settings(one).algorithm for one in ALL} >= set(COLLECTIVES) | {"k-reduce"}
    assert {settings(one).round_steps for one in ALL} == {1, 4, 8, None}
    assert {(one.stages, settings(one).members) for one in ALL if one.stages > 1} >= {
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 2),
    }
    assert {settings(one).schedule for one in ALL if one.stages > 1} == {"fill-drain", "1f1b"}
    assert any(len(set(one.memory_mib)) > 1 for one in ALL)
    for work in WORKS:
        sizes = {size for one in ALL if one.work == work for size in one.memory_mib}
        assert len(sizes) >= 3


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_a_configuration_is_within_its_bounds(one: Chosen) -> None:
    asked = settings(one)
    assert 1 <= asked.workers <= 6
    assert asked.workers == one.workers
    cores = [
        resources_of(asked.kinds[asked.kind_of(rank)]).spec.cpu_cores or 99.0
        for rank in range(asked.workers)
    ]
    assert sum(cores) <= MOST_CORES
    assert len(one.functions) == one.workers
    samples = WORKS[one.work].samples
    assert samples % one.batch_size == 0, "every step is as large as the others"
    pieces = settings(one).members * (asked.micro_batches or 1)
    assert one.batch_size >= pieces, "every worker has something to do, in every piece"
    assert 10 <= samples // one.batch_size * one.epochs <= 40


def test_what_is_imitated_comes_in_pairs_that_differ_in_one_thing() -> None:
    every = list(IMITATED.values())
    pairs = list(zip(every[::2], every[1::2], strict=True))
    assert len(pairs) == 3
    for one, other in pairs:
        said, theirs = ({**asdict(each), "name": ""} for each in (one, other))
        (differs,) = [name for name in said if said[name] != theirs[name]]
        assert differs in ("channel", "settings", "way")


def test_jobs_are_of_three_kinds() -> None:
    sizes = {
        name: sum(p.numel() for p in build_model(work.job(Path(), batch_size=8)).parameters())
        for name, work in WORKS.items()
    }
    assert sizes == {"cnn": 464_154, "mlp": 3_159_050, "gpt": 1_823_232}


def taken(step_s: float, cost_usd: float, peaks_mib: tuple[float, ...]) -> Taken:
    return Taken(
        step_s=step_s,
        cost_usd=cost_usd,
        wall_s=9.0,
        run_s=10 * step_s,
        billed_s=8.0,
        peaks_mib=peaks_mib,
        breakdown={"compute": step_s},
        steps=12,
    )


PREDICTED = {
    "step_s": 0.11,
    "cost_usd": 0.0019,
    "run_s": 1.0,
    "billed_s": 8.0,
    "memory_mib": (105.0, 196.0),
    "breakdown": {"compute": 0.1, "transfer": 0.01},
}
#: As the profile is at the pace of each run; what is not said is as it was.
PACED = [{**PREDICTED, "step_s": step_s} for step_s in (0.105, 0.1, 0.13)]
PACES = [0.95, 0.9, 1.2]
RUNS = [taken(0.1, 0.002, (90, 180)), taken(0.09, 0.002, (100, 200)), taken(0.12, 0.0021, (95, 1))]


def made_row(name: str, **changes: Any) -> dict[str, Any]:
    return row(name, {**PREDICTED, **changes}, RUNS, PACED, PACES)


def test_a_row() -> None:
    made = made_row("one")
    assert made["step_s"]["measured"] == 0.1
    assert made["step_s"]["error"] == pytest.approx(0.1)
    # The median of the predictions beside that of the runs.
    assert made["step_s"]["at_pace"] == {"predicted": 0.105, "error": pytest.approx(0.05)}
    assert made["cost_usd"]["at_pace"]["error"] == made["cost_usd"]["error"]
    assert made["pace"] == {"least": 0.9, "most": 1.2, "runs": PACES}
    assert made["step_s"]["spread"] == pytest.approx(0.3)
    # 0.1 beside 0.105, 0.09 beside 0.11, 0.12 beside 0.095.
    alone = (0.005 / 0.1 + 0.02 / 0.09 + 0.025 / 0.12) / 3
    assert made["step_s"]["single"] == pytest.approx(alone)
    assert made["cost_usd"]["error"] == pytest.approx(-0.05)
    assert made["run_s"]["error"] == pytest.approx(0.0)
    # The most of any run, stage by stage.
    assert made["memory_mib"]["measured"] == [100, 200]
    assert made["memory_mib"]["errors"] == pytest.approx([0.05, -0.02])
    assert made["memory_mib"]["error"] == pytest.approx(0.05)
    assert made["breakdown"]["measured"] == {"compute": 0.1}


def test_one_run_says_nothing_of_repeating() -> None:
    assert repeatability([3.0]) == {"spread": 0.0, "single": None}


def test_errors_have_a_sign() -> None:
    assert error(1.1, 1.0) == pytest.approx(0.1)
    assert error(0.9, 1.0) == pytest.approx(-0.1)


def test_a_summary() -> None:
    rows = [made_row("high"), made_row("low", step_s=0.07, memory_mib=(90.0, 200.0))]
    found = summary(rows)
    assert found["step_s"]["mean"] == pytest.approx(0.2)
    assert found["step_s"]["worst"] == pytest.approx(0.3)
    assert found["step_s"]["worst_of"] == "low"
    paced = {"mean": pytest.approx(0.05), "worst": pytest.approx(0.05), "worst_of": "high"}
    assert found["step_s"]["at_pace"] == paced
    assert found["pace"] == {"least": 0.9, "most": 1.2}
    assert found["cost_usd"]["mean"] == pytest.approx(0.05)
    assert found["memory_mib"]["least"] == pytest.approx(-0.1)
    assert found["memory_mib"]["most"] == pytest.approx(0.05)
    assert found["step_s"]["spread"] == pytest.approx(0.3)


def test_what_intervals_hold() -> None:
    """Measured were 0.1 s and $0.002."""
    sharp = {"step_s": (0.105, 0.115), "cost_usd": (0.0018, 0.0021)}
    wide = {**sharp, "step_s": (0.09, 0.13)}
    rows = [
        made_row("sharp", interval=sharp),
        made_row("wide", interval=wide),
        made_row("new", interval=wide) | {"held_out": True},
    ]
    assert [one["step_s"]["within"] for one in rows] == [False, True, True]
    found = summary(rows)
    assert found["step_s"]["within"] == {
        "held_out": {"held": 1, "of": 1},
        "others": {"held": 1, "of": 2},
    }
    assert found["cost_usd"]["within"]["others"] == {"held": 2, "of": 2}
    assert "within" not in made_row("none", interval=None)["step_s"]


def test_the_table_says_all() -> None:
    held = {"step_s": (0.09, 0.13), "cost_usd": (0.0018, 0.0021)}
    rows = [made_row("high", interval=held), made_row("low", step_s=0.07)]
    result: dict[str, Any] = {
        "machine": {"cpu": "a CPU", "cores": 2, "torch": "2", "python": "3", "load": 0.1},
        "warnings": ["this machine is busy", "its host gave 16.0% to others"],
        "steady": True,
        "rounds": 3,
        "profiles": [{"name": "cnn-file-lambda", "took_s": 20.0}],
        "rows": rows,
        "summary": summary(rows),
        "again": None,
    }
    page = io.StringIO()
    Console(file=page, width=200).print(planning.table(result))
    text = page.getvalue()
    said_of_pace = ("+5.0%", "0.90 to 1.20", "mean error 5.0%", "plans now", "model is worth")
    said_of_all = (
        "high",
        "same CPU time",
        "+10.0%",
        "-30.0%",
        "105/196",
        "100/200",
        "mean error 20.0%",
        "90% intervals hold 1 of 1 steps",
        "20 s",
    )
    for said in (*said_of_all, *said_of_pace, *result["warnings"]):
        assert said in text
    for name, reported in PAPERS.items():
        assert f"{name} {reported}" in text
    assert f"{1e3 * median(one.step_s for one in RUNS):.1f}" in text


@pytest.mark.parametrize(
    "wrong", [["--only", "none"], ["--rounds", "0"], ["--rounds", "-1"], ["--on", "x"]]
)
def test_a_wrong_option_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        planning.run(wrong)
    assert refused.value.code == 2
