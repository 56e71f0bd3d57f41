"""FasDL's methods with what is learnt: unequal shares, seconds and dollars to one loss, caps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts.planning.measure import Taken
from benchmarks.parts.protocols import capped, fasdl, fasdl_drawn
from benchmarks.parts.protocols.beside import Method
from benchmarks.parts.protocols.trained import Runs, Trained
from rich.console import Console

import dayfly
from benchmarks import protocols
from dayfly.batches import share
from dayfly.errors import RequestError
from dayfly.models import parameters_of

pytestmark = pytest.mark.long

WORKERS = 4


def test_computing_is_a_part_of_a_step_that_counts() -> None:
    """A step of ScatterReduce: 32 samples by a quarter of a vCPU, and 2.5 times 4.7 MB a way."""
    assert parameters_of(fasdl.cnn()) == 1_182_730
    plain = fasdl.Pace.of(fasdl.methods(WORKERS)[0], "s3", WORKERS).step
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


def test_seconds_and_dollars_are_of_the_epochs_up_to_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves are made up: those that wait come to the loss after 2 epochs, and HAP after 3."""

    def came(self: Method, _: Runs, seed: int) -> Trained:
        late = [2.0] if self.settings["sync"] == "hap" else []
        losses = [*late, 1.0, *[fasdl.TARGET] * 10][:10]
        return _came(losses, seed)

    monkeypatch.setattr(Method, "train", came)
    monkeypatch.setattr(fasdl, "STORES", {"s3": None})
    rows = fasdl.measure(Runs(None, tmp_path, WORKERS), [0, 1])
    by_name = {row["method"]: row for row in rows}
    assert by_name.keys() == {one.name for one in fasdl.methods(WORKERS)}
    plain, hap = by_name[fasdl.BASE], by_name["HAP, equal shares"]
    assert (plain["epoch"], hap["epoch"], plain["sooner"], plain["cheaper"]) == (2, 3, 1, 1)
    assert hap["sooner"] == pytest.approx(plain["epochs_s"][1] / hap["epochs_s"][2])
    assert hap["cheaper"] == pytest.approx(plain["epochs_usd"][1] / hap["epochs_usd"][2])
    assert hap["epochs_usd"][2] < plain["epochs_usd"][1], "fewer requests, so more epochs"
    assert plain["then"] == fasdl.TARGET
    affords = fasdl.Pace.of(fasdl.methods(WORKERS)[3], "s3", WORKERS).epochs(plain["usd"])
    assert 3 <= affords <= 10, "within the epochs that were trained"
    assert hap["then"] == fasdl.TARGET
    by_usd, by_s = fasdl_drawn.figure(rows).panels
    assert by_usd.named("HAP, equal shares").at(1e3 * hap["epochs_usd"][0]) == 2.0
    assert by_s.named(fasdl.BASE).ys == tuple(plain["losses"])


def test_no_loss_is_given_for_dollars_that_buy_more_epochs_than_were_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Method, "train", lambda *_: _came([1.0] * 9 + [fasdl.TARGET], 0))
    monkeypatch.setattr(fasdl, "STORES", {"s3": None})
    rows = {row["method"]: row for row in fasdl.measure(Runs(None, tmp_path, WORKERS), [0])}
    assert rows[fasdl.BASE]["then"] == fasdl.TARGET
    hap = rows["HAP, equal shares"]
    assert "then" not in hap
    assert hap["of_seeds"][0]["then"] is None
    page = io.StringIO()
    Console(file=page, width=80).print(fasdl.table(list(rows.values()), WORKERS))
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
    plain_s = fasdl.Pace.of(fasdl.methods(WORKERS)[0], "s3", WORKERS).step.step_s
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
