"""Mixed precision, moving averages and several optimizers: deaths and resumes leave the bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import dayfly
from dayfly.data.npy_arrays import load_arrays
from dayfly.errors import RequestError
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.training.order import Epochs, permuted
from dayfly.training.precision import FIRST_SCALE
from dayfly.training.randomness import SPLIT, WEIGHTS, seeded
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import coordinator, small, staged, ways

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Way:
    """job: a function of `ways`. faults: where workers die, beside where the coordinator does."""

    job: str
    faults: tuple[Fault, ...]
    workers: int = 2
    settings: dict[str, Any] = field(default_factory=dict)


IN_BSP = (Fault(1, 2, "grad-put-part"), Fault(0, 5, "reduced"), Fault(1, 17, "evaluated"))
IN_STAGES = (Fault(1, 2, "forward-0"), Fault(0, 5, "applied"), Fault(2, 8, "epoch"))
WAYS = {
    "fp16": Way("scaled", IN_BSP, settings={"precision": "fp16"}),
    "stages": Way(
        "scaled",
        IN_STAGES,
        workers=3,
        settings={"cut": staged.CUT, "micro_batches": 2, "precision": "fp16"},
    ),
    "local": Way(
        "averaged",
        (Fault(1, 4, "stepped"), Fault(0, 5, "reduced")),
        settings={"sync": "local-sgd", "k": 3, "precision": "bf16"},
    ),
    "gan": Way(
        "gan", (Fault(1, 2, "computed-d"), Fault(0, 5, "applied-d"), Fault(1, 8, "reduced-g"))
    ),
}


def train(data: Path, run_dir: Path, way: Way, **more: Any) -> dayfly.Run:
    given = {"workers": way.workers, **small.SETTINGS, **way.settings, **more}
    return dayfly.train(getattr(ways, way.job)(data), run_dir=run_dir, **given)


def last_tree(run: dayfly.Run) -> Any:
    store = FileStore(run.directory)
    checkpoint = checkpoints.latest(store)
    assert checkpoint is not None
    return checkpoints.read(store, checkpoint)[0]["replica"]


@pytest.fixture(scope="module")
def undisturbed(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dayfly.Run]:
    @cache
    def run(name: str) -> dayfly.Run:
        return train(data, tmp_path_factory.mktemp(name), WAYS[name])

    return run


def same(one: Path, other: Path) -> None:
    assert small.bits(one) == small.bits(other)
    names = ["ema.safetensors"]
    assert [(one / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]


@pytest.mark.parametrize(
    "name",
    # The suite has one. Deaths of a cut model and of local SGD are in test_pipeline_life.py and
    # test_local_sgd.py, too; those with several optimizers (the GAN) are here alone.
    [pytest.param(one, marks=[pytest.mark.slow] * (one != "fp16")) for one in WAYS],
)
def test_deaths_and_a_resume_leave_the_same_bits(
    name: str, data: Path, undisturbed: Callable[[str], dayfly.Run], tmp_path: Path
) -> None:
    reference, way = undisturbed(name), WAYS[name]
    run = train(data, tmp_path / "deaths", way, faults=way.faults)
    assert run.result.restarts == len(way.faults)
    same(run.directory, reference.directory)
    broken = tmp_path / "resumed"
    coordinator.killed(
        data=data,
        job=f"tests.runs.ways:{way.job}",
        run_dir=broken,
        workers=way.workers,
        log_budget_mib=1,
        faults=[Fault(COORDINATOR, 13, "step")],
        **way.settings,
    )
    dayfly.resume(broken, progress=False)
    same(broken, reference.directory)
    shutil.rmtree(broken)


@pytest.mark.parametrize("name", ["fp16", "stages"])
def test_steps_that_overflow_are_skipped_by_all(
    name: str, undisturbed: Callable[[str], dayfly.Run]
) -> None:
    run = undisturbed(name)
    scaler = last_tree(run)["scaler"]
    assert scaler["scale"] < FIRST_SCALE
    skipped = small.STEPS - scaler["good"]
    assert 0 < skipped < small.STEPS / 2
    assert run.history[-1]["val_accuracy"] > 0.5


class PlainGan(ways.Gan):
    """Without what depends on a worker's slice."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(ways.NOISE, 16), nn.ReLU(), nn.Linear(16, 12))
        self.d = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(), nn.Linear(16, 1))


def batches(data: Path, seed: int = 0) -> Any:
    """Of all steps, as one process sees them."""
    arrays = load_arrays(data)
    validation = small.SAMPLES // 10
    epochs = Epochs(small.SAMPLES - validation, small.BATCH, seed)
    for step in range(small.STEPS):
        rows = permuted(epochs.indices(step, 0, 1) + validation, small.SAMPLES, SPLIT, seed)
        yield tuple(torch.from_numpy(arrays[name][rows]) for name in ("x_train", "y_train"))


def plain_model(build: Callable[[], nn.Module]) -> nn.Module:
    with seeded(WEIGHTS, 0):
        return build()


def follow(average: dict[str, torch.Tensor], model: nn.Module, decay: float = 0.9) -> None:
    """As timm and diffusers do."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            average[name].mul_(decay).add_(parameter, alpha=1 - decay)


def close(file: Path, expected: Any, atol: float) -> None:
    found = load_file(file)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name].detach(), rtol=0, atol=atol)


@pytest.mark.parametrize(("precision", "workers"), [("bf16", 2), ("fp16", 1)])
def test_mixed_precision_is_that_of_a_plain_loop(
    precision: str, workers: int, data: Path, tmp_path: Path
) -> None:
    """torch's autocast and GradScaler; with two workers, but for the rounding of their sums."""
    job = small.job(
        data,
        model=small.plain_model,
        optimizer=small.sgd,
        loss=ways.eight_fold,
        transform=None,
        scheduler=None,
        ema=0.9,
    )
    run = dayfly.train(job, workers=workers, precision=precision, run_dir=tmp_path, progress=False)
    model = plain_model(small.plain_model)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = small.sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    for x, y in batches(data):
        with torch.autocast("cpu", dtype=dtype):
            loss = ways.eight_fold(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            follow(average, model)
    atol = 1e-6 if workers == 1 else 2e-3
    close(tmp_path / "weights.safetensors", dict(model.named_parameters()), atol)
    close(tmp_path / "ema.safetensors", average, atol)
    assert run.model().state_dict().keys() == average.keys()
    kept = run.model().state_dict()
    assert all(torch.equal(kept[n], t) for n, t in load_file(tmp_path / "ema.safetensors").items())


def test_a_gan_is_that_of_a_plain_loop(data: Path, tmp_path: Path) -> None:
    job = ways.gan(data, model=PlainGan, transform=None, ema=None)
    run = dayfly.train(job, workers=2, run_dir=tmp_path, progress=False)
    model: Any = plain_model(PlainGan)
    g, d = ways.adam_of("g", 0.01)(model), ways.adam_of("d", 0.02)(model)
    scheduler, losses = small.cosine(g), []
    for step, batch in enumerate(batches(data)):
        of_d = ways.step_d(model, batch)
        d.zero_grad()
        of_d.backward()
        nn.utils.clip_grad_norm_(model.d.parameters(), 0.5)
        d.step()
        of_g, _ = ways.step_g(model, batch)
        g.zero_grad()
        of_g.backward()
        g.step()
        losses.append(float(of_d.detach() + of_g.detach()))
        if (step + 1) % small.STEPS_AN_EPOCH == 0:
            scheduler.step()
    close(tmp_path / "weights.safetensors", dict(model.named_parameters()), 1e-4)
    assert small.history(run)["step_loss"] == pytest.approx(losses, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "settings", "text"),
    [
        ({}, {"precision": "half"}, "--precision 'half' is not known"),
        ({}, {"precision": "fp16", "sync": "local-sgd", "k": 2}, "give --precision bf16"),
        ({}, {"precision": "fp16", "compress": "int8"}, "hides overflow"),
        ({"ema": 1.0}, {}, "ema is 1.0"),
        ({"ema": 0.9, "model": lambda: small.plain_model().bfloat16()}, {}, "too coarse"),
        ({"optimizer": {"g": small.adam}}, {}, "several optimizers as optimizer="),
    ],
)
def test_what_cannot_be_is_refused(
    changes: dict[str, Any], settings: dict[str, Any], text: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=text):
        dayfly.train(small.job(data, **changes), run_dir=tmp_path, progress=False, **settings)


@pytest.mark.parametrize(
    ("changes", "settings", "text"),
    [
        ({}, {"workers": 2, "sync": "local-sgd", "k": 2}, "cannot have --sync local-sgd"),
        ({}, {"workers": 2, "compress": "int8"}, "cannot have --compress int8"),
        ({"clip_norm": {"e": 1.0}}, {}, "let them be the same"),
        ({"clip_norm": 1.0}, {}, "one clip_norm"),
        ({"optimizer": {"g": small.adam}}, {}, "let them be the same"),
    ],
)
def test_what_a_gan_cannot_have_is_refused(
    changes: dict[str, Any], settings: dict[str, Any], text: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=text):
        dayfly.train(ways.gan(data, **changes), run_dir=tmp_path, progress=False, **settings)
