"""`dayfly profile --convergence`: short runs of a job, and what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dayfly
from dayfly.cli.convergence_flags import convergence_asked
from dayfly.errors import RequestError, RunFailed
from dayfly.planning.efficiency import Convergence, Efficiency, SeedCurve
from dayfly.planning.short_runs import epochs_to
from dayfly.runs.profiling import convergence as measuring
from dayfly.runs.profiling import measuring as measuring_module
from dayfly.runs.profiling.convergence import ConvergenceFailed, convergence
from dayfly.runs.profiling.convergence_query import ConvergenceQuery
from dayfly.specs.methods import BSP, Method
from tests.planning.by_hand import layer, profile, size
from tests.profiling.jobs import job, samples

LOCAL = Method.parse("local-sgd:4")


def fast(lr: float) -> object:
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)


@pytest.mark.long
@pytest.mark.quick
def test_short_runs_of_bsp_and_of_a_larger_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times the batch takes more samples by the same learning rate; nothing stays behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told: list[str] = []
    asked = ConvergenceQuery(
        wanted=((BSP, 128), (LOCAL, None)), seeds=1, epochs=2, workers=2, tolerance=0.2
    )
    found = convergence(job(optimizer=fast(0.02)), 1618, asked, told=told.append)
    bsp, larger, local = found.measured
    assert [one.name for one in found.measured] == ["bsp@64", "bsp@128", "local-sgd:4@64"]
    assert len(told) == 3
    assert found.target_loss == bsp.curves[0].losses[1]
    assert (bsp.samples, bsp.curves[0].epochs) == (1.0, 2.0)
    # With a small learning rate it is steps that count, so nearly twice the samples.
    assert larger.samples == pytest.approx(2.0, abs=0.25)
    assert len(larger.curves[0].losses) == 4  # it ended at the target
    # Two replicas that are averaged learn as much from half of the batch each.
    assert local.samples is not None
    assert local.curves[0].epochs == epochs_to(local.curves[0].losses, found.target_loss)
    assert found.largest_batch == 64
    assert found.fit is not None
    assert found.fit.most == 128
    assert found.billed_s > 0 < found.cost_usd
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_methods_that_do_not_reach_it_are_said() -> None:
    """A learning rate that is too large for the outer optimizer; and larger batches are spared."""
    notes: list[str] = []
    asked = ConvergenceQuery.parse(
        "bsp@640,bsp@1280,nesterov:2+outer-lr=50", seeds=1, epochs=1, workers=2
    )
    found = convergence(job(optimizer=fast(0.1)), 1618, asked, note=notes.append)
    assert [one.samples for one in found.measured] == [1.0, None, None]
    assert found.measured[1].low == pytest.approx(3.0)
    assert list(found.left_out) == ["bsp@1280"]
    assert [note.split(" ")[0] for note in notes] == [
        "bsp@640",
        "nesterov:2+outer-lr=50@64",
        "bsp@1280",
    ]


def test_multiples_of_the_jobs_batch_are_tried_as_far_as_there_are_samples() -> None:
    asked = ConvergenceQuery.parse("bsp,local-sgd:4,bsp@96")
    assert asked.batches(job(), 300) == ((BSP, 128), (BSP, 256), (LOCAL, 64), (BSP, 96))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"workers": 1}, "hap needs workers that lag"),
        ({"seeds": 0}, "--seeds 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"max_time_s": 0.0}, "--max-time 0"),
        ({"tolerance": 0.0}, "--tolerance 0"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, float], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        ConvergenceQuery.parse("hap:1", **more)


def test_short_runs_have_the_workers_that_their_methods_need() -> None:
    asked = ConvergenceQuery.parse("bsp,hap:6")
    assert (asked.workers, asked.within(8).workers) == (7, 7)
    with pytest.raises(RequestError, match="hap:6 with --workers 5: "):
        asked.within(5)
    with pytest.raises(RequestError, match="hap:6 with --workers 2: "):
        ConvergenceQuery.parse("hap:6", workers=2)
    assert ConvergenceQuery.parse("bsp,hap:1").workers == 4


def by_steps(optimizer: torch.optim.Optimizer) -> object:
    """Made for two epochs of 26 steps, and no more."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=52)


@pytest.mark.parametrize(
    ("text", "changes", "why"),
    [
        ("bsp", {"batch_size": 8, "batch_per_worker": 8}, "batch_per_worker"),
        ("bsp@2", {}, "bsp@2, up to 3 epochs: a batch of 2 cannot be shared by 4 workers"),
        ("bsp@128,nesterov:8+fragments=8", {}, r"fragments=8@64, up to 3 epochs: .*layers"),
        ("local-sgd:8+job", {}, "the job has none: give it outer_optimizer="),
        ("bsp@64", {"scheduler": by_steps, "scheduler_every": "step", "epochs": 2}, ""),
        ("local-sgd:8", {"scheduler": by_steps, "scheduler_every": "step", "epochs": 2}, ""),
        (
            "local-sgd:8",
            {"scheduler": by_steps, "scheduler_every": "step", "epochs": 3},
            r"bsp@64, up to 3 epochs: the job's scheduler fails after step 53",
        ),
        (
            "local-sgd:8@16",
            {"scheduler": by_steps, "scheduler_every": "step", "epochs": 2},
            r"local-sgd:8@16, up to 1 epochs: the job's scheduler fails after step 53",
        ),
        ("bsp", {"data": lambda: (samples(), None)}, "validation Dataset is a NoneType"),
    ],
)
def test_runs_that_cannot_be_are_refused_before_the_first(
    text: str, changes: dict[str, object], why: str
) -> None:
    asked = ConvergenceQuery.parse(text)
    if not why:
        asked.check(job(**changes))
        return
    with pytest.raises(RequestError, match=why):
        asked.check(job(**changes))


def test_a_schedule_made_for_its_steps_ends_short_runs() -> None:
    """52 steps are 2 epochs of 26 steps, and 4 of 13."""
    asked, made = ConvergenceQuery.parse("bsp"), job(scheduler=by_steps, scheduler_every="step")
    of_two = replace(made, epochs=2)
    assert [asked.most_epochs(of_two, batch, 1618) for batch in (64, 128, 256)] == [2, 4, 6]
    assert asked.most_epochs(job(), 64, 1618) == 3 * job().epochs


def test_a_method_whose_run_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was measured by then is kept."""

    def losses(
        bench: object, method: Method, batch: int, seed: int, epochs: int, target: object = None
    ) -> list[float]:
        if method == LOCAL and seed:
            raise RunFailed("a short run failed: out of memory")
        return [2.0, 1.0]

    monkeypatch.setattr(measuring._Bench, "losses", losses)
    monkeypatch.setattr(measuring._Bench, "used", lambda bench: {})
    asked = ConvergenceQuery.parse("local-sgd:4,bsp@128", seeds=2)
    found = convergence(job(), 1618, asked)
    assert [one.name for one in found.measured] == ["bsp@64", "bsp@128"]
    assert found.left_out == {"local-sgd:4@64": "a short run failed: out of memory"}


def test_what_was_measured_is_not_lost_where_bsp_reaches_no_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = profile([layer("a", 1000)], size(1, 1024))
    monkeypatch.setattr(measuring_module, "profile", lambda *args, **more: known)
    monkeypatch.setattr(measuring._Bench, "losses", lambda *args: [None])
    with pytest.raises(ConvergenceFailed, match="was NaN or infinite") as failed:
        dayfly.profile(job(), convergence="bsp@128", progress=False)
    assert failed.value.profile == known


def test_short_runs_are_not_made_again_for_the_same_question() -> None:
    asked = ConvergenceQuery.parse("bsp@128,local-sgd:4", seeds=2, epochs=4)
    found = Convergence(
        batch_size=64,
        epochs=4,
        target_loss=0.5,
        most_epochs=12,
        measured=tuple(
            Efficiency(
                method=name,
                batch_size=batch,
                samples=1.0,
                how="measured",
                workers=4,
                curves=tuple(SeedCurve(seed=seed, losses=(1.0,), epochs=4.0) for seed in (0, 1)),
            )
            for name, batch in (("bsp", 64), ("bsp", 128), ("local-sgd:4", 64))
        ),
        left_out={},
    )
    assert asked.answered_by(found, job(), 1618)
    others: list[tuple[ConvergenceQuery, dict[str, object]]] = [
        (replace(asked, epochs=5), {}),
        (replace(asked, seeds=3), {}),
        (replace(asked, workers=2), {}),
        (ConvergenceQuery.parse("bsp@256", seeds=2, epochs=4), {}),
        (asked, {"seed": 1}),
        (asked, {"batch_size": 32}),
    ]
    assert not any(one.answered_by(found, job(**changes), 1618) for one, changes in others)
    assert not asked.answered_by(None, job(), 1618)
    failed = {"local-sgd:4@64": "out of memory"}
    assert not asked.answered_by(
        replace(found, measured=found.measured[:2], left_out=failed), job(), 1618
    )
    missed = replace(found.measured[1], samples=None)
    larger = ConvergenceQuery.parse("bsp@128,bsp@256", seeds=2, epochs=4)
    assert larger.answered_by(replace(found, measured=(found.measured[0], missed)), job(), 1618)


def test_flags_of_short_runs_need_them() -> None:
    assert convergence_asked({"seeds": None}) is None
    asked = convergence_asked({"convergence": "bsp", "short_time": "2m", "seeds": 5})
    assert asked == ConvergenceQuery(wanted=((BSP, None),), seeds=5, max_time_s=120.0)
    with pytest.raises(RequestError, match="--workers is for short runs: add --convergence bsp"):
        convergence_asked({"short_workers": 2})
