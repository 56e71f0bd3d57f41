"""FasDL's methods with what is learnt: unequal shares, seconds and dollars to one loss, caps."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts.planning.measure import Taken
from benchmarks.parts.protocols import (
    capped,
    fasdl,
    fasdl_alone,
    fasdl_chosen,
    fasdl_compared,
    fasdl_drawn,
)
from benchmarks.parts.protocols.beside import Method
from benchmarks.parts.protocols.hybrid import sgd
from benchmarks.parts.protocols.trained import Runs, Trained
from rich.console import Console
from torch import nn

import dayfly
from benchmarks import protocols
from dayfly.batches import share
from dayfly.data.npy_arrays import digits
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.models import parameters_of

pytestmark = pytest.mark.long

WORKERS = 4


def test_computing_is_a_part_of_a_step_that_counts() -> None:
    """A step of ScatterReduce: 32 samples by a quarter of a vCPU, and 2.5 times 4.7 MB a way."""
    assert parameters_of(fasdl.cnn()) == 1_182_730
    plain = fasdl.paces("s3", WORKERS)[fasdl.BASE].step
    assert plain.breakdown["compute"] == pytest.approx(0.087, rel=0.01)
    assert plain.step_s - plain.breakdown["compute"] == pytest.approx(
        2.5 * 4 * 1_182_730 / 70e6 + 4 * 0.04, rel=0.05
    )


def test_fasdls_batch_has_both_roles_end_together() -> None:
    batch = fasdl.fasdl_batch(WORKERS)
    shares = fasdl.even(WORKERS, batch)
    own, *others = (len(share(batch, rank, WORKERS, shares)) for rank in range(WORKERS))
    assert own == fasdl.OWN
    assert len(set(others)) == 1
    assert others[0] > own
    more = fasdl.even(WORKERS, batch + WORKERS - 1)
    assert len(share(batch + WORKERS - 1, 0, WORKERS, more)) > own, "the others would be late"


def test_an_amount_buys_whole_epochs() -> None:
    plain = fasdl.paces("s3", WORKERS)[fasdl.BASE]
    for of in fasdl.COUNTED:
        assert [plain.buys(of, plain.takes(of, n)) for n in (1, 2, 30)] == [1, 2, 30]
        assert plain.buys(of, 0.999 * plain.takes(of, 7)) == 6
        assert plain.buys(of, 0.5 * plain.takes(of, 1)) == 0
    affords = fasdl.most_epochs(WORKERS)
    last = fasdl.BUDGETS[-1]
    dollars = fasdl.bought("AllReduce", "s3", WORKERS, "usd", last)
    assert affords["all wait"] == dollars > 2 * last, "a quarter of ScatterReduce's requests"
    assert affords["HAP, FasDL's batch"] > affords["HAP, equal shares"] > dollars


def test_losses_are_those_of_equal_epochs_seconds_and_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves are made up: losses of those that wait fall by 20% an epoch, and HAP's by 16%."""

    def came(self: Method, _: Runs, seed: int) -> Trained:
        each = 0.84 if self.settings["sync"] == "hap" else 0.8
        if "that batch" in self.name:
            each = 0.99  # it does not come to the loss
        epochs = self.task.facts["epochs"]
        return _came([(1 + seed / 100) * each**n for n in range(1, epochs + 1)], seed)

    monkeypatch.setattr(Method, "train", came)
    rows = fasdl_compared.measure(Runs(None, tmp_path, WORKERS), [0, 1, 2])
    over_s3 = {row["method"]: row for row in rows if row["store"] == "s3"}
    assert len(rows) == len(fasdl.STORES) * len(over_s3)
    assert over_s3.keys() == {one.name for one in fasdl.methods(WORKERS)}

    plain, hap = over_s3[fasdl.BASE], over_s3["HAP, equal shares"]
    assert (plain["epoch"], plain["sooner"], plain["cheaper"]) == (11, 1, 1)
    assert (hap["epoch"], hap["seconds"], hap["usd"]) == (
        14,
        hap["epochs_s"][13],
        hap["epochs_usd"][13],
    )
    assert hap["sooner"] == pytest.approx(plain["epochs_s"][10] / hap["seconds"])
    assert hap["cheaper"] == pytest.approx(plain["epochs_usd"][10] / hap["usd"])

    for of, key in (("epochs", None), ("seconds", "epochs_s"), ("usd", "epochs_usd")):
        found = {one["budget"]: one for one in hap["budgets"] if one["equal"] == of}
        assert tuple(found) == fasdl.BUDGETS
        for budget, one in found.items():
            epochs = one["epochs"]
            if key is None:
                assert epochs == budget
            else:
                most = plain[key][budget - 1] * (1 + 1e-9)
                assert hap[key][epochs - 1] <= most
                assert [took for took in hap[key] if took <= most] == hap[key][:epochs]
            assert one["loss"] == pytest.approx(1.01 * 0.84**epochs)
            assert one["better"] == (3 if 0.84**epochs < 0.8**budget else 0)

    assert over_s3["AllReduce, that batch"]["reached"] == 0
    last = fasdl.BUDGETS[-1]
    by_usd, by_s, *_ = fasdl_drawn.figure(rows).panels
    for panel, key, times in ((by_usd, "epochs_usd", 1e3), (by_s, "epochs_s", 1)):
        drawn = panel.named("HAP, equal shares")
        assert drawn.xs[0] == times * hap[key][0]
        assert drawn.xs[-1] <= panel.named(fasdl.BASE).xs[-1] == times * plain[key][last - 1]
        assert len(panel.named(fasdl.BASE).xs) == last

    page = io.StringIO()
    Console(file=page, width=80).print(fasdl_compared.table(rows, WORKERS))
    assert "…" not in page.getvalue(), "it fits into a terminal"


def test_a_budget_has_the_least_loss_and_its_accuracy() -> None:
    run = _came([0.5, 0.2, 0.4, 0.1], 0)
    run.accuracies[:] = [0.6, 0.8, 0.7, 0.9]
    assert fasdl_compared._least(run, 3) == (0.2, 0.8)
    assert fasdl_compared._least(run, 4) == (0.1, 0.9)


def test_one_process_has_the_losses_of_a_real_run(tmp_path: Path) -> None:
    """Of workers that lag and of such that wait, with unequal shares; staleness is seen."""
    job = Job(
        model=_small,
        data="digits",
        loss=nn.functional.cross_entropy,
        optimizer=partial(sgd, 0.5, momentum=0.5),
        batch_size=200,
        epochs=3,
        seed=100,
    )
    shares, found = (1, 4, 4), {}
    for sync, newest in (("hap", 1), ("bsp", 3)):
        alone = fasdl_alone.losses(job, digits(), workers=3, aggregators=newest, shares=shares)
        found[sync] = list(alone)
        how: Any = {"sync": sync, "collective": "k-reduce", "aggregators": 1, "shares": shares}
        real = dayfly.train(job, workers=3, run_dir=tmp_path / sync, progress=False, **how)
        losses = [one["val_loss"] for one in real.history]
        assert found[sync] == pytest.approx(losses, rel=1e-4)
    assert found["hap"] != pytest.approx(found["bsp"], rel=1e-3)


def _small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_settings_that_diverge_are_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are made up, by the settings: the best one at first is not the best one later."""

    def losses(job: Job, *_: Any, **how: Any) -> Iterator[float]:
        optimizer = job.optimizer.keywords | {"rate": job.optimizer.args[0]}  # type: ignore[union-attr]
        if optimizer["momentum"] == 0.9 and optimizer["rate"] > 0.01:
            return repeat(math.inf, job.epochs)
        later = 1 / job.epochs if optimizer == {"momentum": 0.5, "rate": 0.1} else 0.0
        return (1 - optimizer["rate"] / 10 - later * n for n in range(job.epochs))

    monkeypatch.setattr(fasdl_alone, "losses", losses)
    rows = fasdl_chosen.choose(Runs(None, tmp_path, WORKERS), [100])
    by_curve = {row["method"]: row for row in reversed(rows)}  # the first one of each
    assert by_curve.keys() == fasdl.CHOSEN.keys()
    assert len(rows) == len(by_curve) * len(fasdl_chosen.GRID)
    for row in by_curve.values():
        assert (row["rate"], row["momentum"]) == (0.1, 0.5)
    assert {row["first"] is None for row in rows if row["momentum"] == 0.9} == {True, False}
    page = io.StringIO()
    Console(file=page, width=80).print(fasdl_chosen.table(rows, WORKERS))
    assert "diverged" in page.getvalue()
    assert "…" not in page.getvalue(), "it fits into a terminal"


def test_a_measured_step_stands_beside_its_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs take is made up: in the first round a tenth longer than ScatterReduce's step."""
    known = fasdl.profile("s3")
    monkeypatch.setattr(dayfly, "profile", lambda *_, **__: known)
    order: list[str] = []

    def ran(_: Any, name: str, __: Path, **asked: Any) -> Taken:
        order.append(name)
        assert (asked["imitate"], asked["latency_ms"]) == ("aws-lambda", 40.0)
        return _taken(plain_s * (1.1 if len(order) <= len(names) else 1.0))

    names = [one.name for one in fasdl.methods(WORKERS)]
    plain_s = fasdl.paces("s3", WORKERS)[fasdl.BASE].step.step_s
    monkeypatch.setattr(capped, "run_once", ran)
    rows = capped.measure(Runs(None, tmp_path, WORKERS), [0, 1])
    assert order == [*names, *names[1:], names[0]], "by turns"
    plain = rows[0]
    assert (plain["ratio"], plain["faster"]) == (pytest.approx(1.05), 1)
    page = io.StringIO()
    Console(file=page, width=80).print(capped.table(rows, WORKERS))
    assert "…" not in page.getvalue(), "it fits into a terminal"


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="caps has no settings to choose from"):
        protocols.run(["--choose", "--only", "caps"])


def _came(losses: list[float], seed: int) -> Trained:
    return Trained(
        losses=losses,
        accuracies=[0.9] * len(losses),
        train_losses=losses,
        steps=100,
        bytes_up=100 + seed,
        up_bytes=[float(100 + seed)] * len(losses),
        bytes_down=200,
        requests=1,
        train_s=1.0,
        step_s=0.01,
    )


def _taken(step_s: float) -> Taken:
    return Taken(
        step_s=step_s,
        cost_usd=0.0,
        wall_s=1.0,
        run_s=1.0,
        billed_s=1.0,
        peaks_mib=(1.0,),
        breakdown={},
        steps=1,
    )
