"""`dayfly bench training --pipelines`: its form and its arithmetic; no speed."""

from __future__ import annotations

import io
from pathlib import Path
from statistics import median

import pytest
import torch
from benchmarks.parts.pipelines.cases import BASELINES, CASES, Form
from benchmarks.parts.pipelines.scale import (
    MOST_CORES,
    function_usd_for_1_s,
    requests_usd,
    scale_for,
    server_usd_for_1_s,
)
from benchmarks.parts.pipelines.step import (
    Passes,
    all_schedules,
    predicted,
    requests,
    stage_passes,
)
from rich.console import Console

from benchmarks import training
from dayfly.catalogue.lookup import Catalogue
from dayfly.runs.pipelining import Pipelining
from dayfly.training.replica import build_model
from dayfly.training.stages.forms import BoundaryForm, TensorForm
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.schedule import Kind
from tests.cli import command

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_short_run(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tiny = ["--pipelines", "--quick", "--rounds", "1", "--models", "digits"]
    done = command.run("bench", "training", *tiny, "--json", cwd=tmp_path, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert "digits, round 1 of 1: LambdaML" in done.stderr
    result = command.last_json(done.stdout)
    assert (result["bench"], result["status"], result["rounds"]) == ("training", "done", 1)
    assert result["pipelines"]
    rows = {row["form"]: row for row in result["rows"]}
    assert list(rows) == [*BASELINES, "2 stages"]
    whole, server, cut = rows["LambdaML"], rows["HybridPS"], rows["2 stages"]
    for row in rows.values():
        assert row["step_s"] == median(row["seconds"]) > 0
        assert sum(row["cores"]) <= MOST_CORES
        peaks = zip(row["peaks_mib"], row["functions_mib"], strict=True)
        assert all(0 < peak <= limit for peak, limit in peaks)
    assert whole["against"].keys() == {"LambdaML-GA", "HybridPS"}
    against = cut["against"]["LambdaML"]
    assert against["speed"] == pytest.approx(whole["step_s"] / cut["step_s"])
    dollars = "usd_per_million_samples"
    assert against["cost"] == pytest.approx(cut[dollars] / whole[dollars])
    assert cut[dollars] == pytest.approx(
        1e6 * cut["step_s"] * cut["factor"] / 64 * 2 * function_usd_for_1_s(384)
    )
    assert server["usd_with"]["vm-c5-9xlarge"] > server[dollars]
    assert (server["puts"], server["gets"]) == (0, 0)
    # 4 micro-batches there and back, and the small sum: one contribution and its sum.
    assert (cut["puts"], cut["gets"]) == (8 + 2, 8 + 2)
    used = cut["efficiency"]
    assert used["critical_path_s"][0] >= max(used["compute_s"][0], used["transfer_s"][0])
    assert used["step_over_bound"] >= used["step_over_critical_path"] > 0
    assert len(used["stages"]) == 2
    assert whole["efficiency"] is None
    page = io.StringIO()
    Console(file=page, width=80).print(training.table(result))
    text = page.getvalue()
    assert f"{against['speed']:.2f} x" in text
    assert "…" not in text
    assert list(tmp_path.iterdir()) == [scratch]
    assert list(scratch.glob("dayfly-bench-*")) == []


def test_what_cannot_be_asked_for_together_is_refused(tmp_path: Path) -> None:
    for more in (["--profile"], ["--workers", "2"], ["--models", "wide-mlp"]):
        done = command.run("bench", "training", "--pipelines", *more, cwd=tmp_path)
        assert done.returncode == 2
        assert more[0] in done.stderr or "leave them out" in done.stderr


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_cases_are_such_that_they_can_be_compared(case: object) -> None:
    assert isinstance(case, type(CASES["digits"]))
    assert tuple(form.name for form in case.forms[:3]) == BASELINES
    assert any(form.cut for form in case.forms)
    layers = len(list(build_model(case.job(Path())).children()))
    for form in case.forms:
        assert sum(map(case.scale.cores, form.functions)) <= MOST_CORES
        assert all(0 < begin < layers for begin in form.cut)
        assert len(form.memory_mib) == len(form.cut) + 1
        assert case.batch_size % (form.replicas if form.cut else form.workers) == 0
    for one in (case, case.quick()):
        assert one.steps - one.warm_steps >= 3


def test_a_scale_slows_all_down_alike(tmp_path: Path) -> None:
    lambda_ = Catalogue().platform("aws-lambda")
    assert scale_for(100).factor == 1.0, "never faster than there"
    scale = scale_for(2 * 4 * 1769)
    assert scale.factor == pytest.approx(MOST_CORES / 8, rel=0.01)
    assert scale.cores(1769) == pytest.approx(scale.factor)
    assert scale.mb_per_s == pytest.approx(70 * scale.factor)
    assert scale.latency_ms == pytest.approx(40 / scale.factor)
    scale.write_catalogue(tmp_path / "own")
    imposed = Catalogue(tmp_path / "own").platform("aws-lambda")
    assert imposed.vcpus(1024) == pytest.approx(scale.cores(1024))
    assert imposed.up_bytes_per_s(1024) == pytest.approx(1e6 * scale.mb_per_s)
    assert imposed.down_bytes_per_s(1024) == imposed.up_bytes_per_s(1024)
    assert (imposed.prices, imposed.lifetime_max_s) == (lambda_.prices, lambda_.lifetime_max_s)


def test_prices_are_the_catalogues() -> None:
    assert function_usd_for_1_s(2048) == pytest.approx(2 * 1.66667e-5)
    assert server_usd_for_1_s("vm-c5-9xlarge") == pytest.approx(1.53 / 3600)
    assert requests_usd(1000, 1000) == pytest.approx(0.005 + 0.0004)


def test_functions_of_a_form() -> None:
    cut = Form(name="cut", cut=(2,), replicas=2, memory_mib=(512, 256))
    assert cut.functions == (512, 512, 256, 256)
    assert Form(name="whole", workers=3, memory_mib=(512,)).functions == (512, 512, 512)


def test_a_pipelines_step_in_virtual_time() -> None:
    # Two stages and micro-batches; 70 KB are 1 ms of a line, and a latency is 40 ms.
    form = BoundaryForm(TensorForm(torch.float32, (1, 17_500), (True, False), gradient=True))
    line = Pipelining(cut=(1,), replicas=1, micro_batches=2, schedule="fill-drain", forms=(form,))
    passes = [Passes(forward_s=1.0, backward_s=2.0, apply_s=0.5)] * 2
    scale, files = scale_for(100), Abilities(in_flight=8)
    found = predicted(line, 2, passes, [4, 4], scale, files, "overlapped")
    # stage 0   |f0|f1|           |   b0   |   b1   |apply|
    # stage 1      |f0|f1|   b0   |   b1   |apply|
    assert found.compute_s == pytest.approx(1 + 2 * 1 + 3 * 2 + 0.5)
    # There, 1 + 40 ms up and as much down; the second one 1 ms later; and back.
    assert found.transfer_s == pytest.approx(2 * 0.082 + 2 * 0.001)
    # Of them a computing stage waits for the first there, and the first back.
    assert found.critical_path_s == pytest.approx(found.compute_s + 2 * 0.082)
    assert found.bound_s == found.compute_s
    schedules = all_schedules(line, 2, [4, 4], scale, files, "overlapped")
    assert requests(schedules, Kind.PUT) == requests(schedules, Kind.GET, Kind.FETCH) == 4 + 2


def test_passes_are_medians_of_all_that_was_told() -> None:
    records = [
        {"passes": [["f", 0, 0, 10], ["f", 1, 10, 40], ["b", 0, 40, 60]], "spans": {}},
        {"passes": [["f", 0, 0, 20], ["b", 0, 40, 80]], "spans": {"apply": [[0, 4]]}},
    ]
    assert stage_passes(records) == Passes(forward_s=0.02, backward_s=0.03, apply_s=0.002)
