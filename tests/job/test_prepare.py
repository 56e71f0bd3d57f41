"""Good jobs pass, with each feature, and preparing leaves what is the user's as it was."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as lr

from dayfly.training.replica import build_model
from tests.job.asked import Job, Rows, given, model, prepared, refusal, saved


def norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def dicts() -> Any:
    samples = [{"x": x, "y": y} for x, y in (Rows()[i] for i in range(24))]
    return samples, samples[:5]


def dict_step(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": norm},
        {"scheduler": lambda o: lr.CosineAnnealingLR(o, 3)},
        {"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 99), "scheduler_every": "step"},
        {"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 9), "epochs": 3, "scheduler_every": "step"},
        {"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 9), "epochs": 8},
        {"scheduler": lr.ReduceLROnPlateau, "epochs": 99},
        {"clip_norm": 1.0},
        {"metrics": {"error": lambda o, t: (o.argmax(1) != t).float().mean()}},
        {"init": model().state_dict()},
        {"accumulate": 3},
        {"loss": None, "step": lambda m, b: F.cross_entropy(m(b[0]), b[1])},
        {"loss": None, "step": lambda m, b: (F.cross_entropy(m(b[0]), b[1]), m(b[0]))},
        {"loss": None, "step": dict_step, "data": dicts},
        {"optimizer": torch.optim.AdamW},
        {"loss": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1)},
        {"loss": lambda o, t: F.cross_entropy(o, t, weight=torch.tensor([1.0, 2, 3]))},
        {"loss": lambda o, t: o.sum() * 0},
        {"batch_size": 1000},
        {"seed": 2**70},
    ],
)
def test_a_good_job_passes(changes: dict[str, Any]) -> None:
    found = prepared(**changes)
    assert found.training_samples == 24
    assert found.arrays is None
    assert found.round_bytes.kept >= 4 * sum(
        p.numel() for p in Job(**given(**changes)).model().parameters()
    )


@pytest.mark.parametrize("dtype", ["float32", ">f4"])
@pytest.mark.parametrize("validation", [True, False])
def test_arrays_pass_with_transforms(validation: bool, dtype: str, tmp_path: Path) -> None:
    rows = Rows()
    arrays: dict[str, Any] = {"x_train": rows.x.numpy().astype(dtype), "y_train": rows.y.numpy()}
    if validation:
        arrays |= {"x_val": arrays["x_train"][:4], "y_val": arrays["y_train"][:4]}
    seen: list[str] = []
    found = prepared(
        data=saved(tmp_path, **arrays),
        transform=lambda x: (seen.append("train"), x + torch.rand(6))[1],
        eval_transform=lambda x: (seen.append("val"), x)[1],
    )
    assert found.arrays is not None
    assert sorted(found.arrays) == sorted(arrays)
    assert set(seen) == {"train", "val"}


def test_a_job_whose_shares_are_single_samples_passes_without_batch_norm() -> None:
    assert prepared(workers=8)
    assert "one sample" in refusal(workers=8, model=norm)
    assert prepared(workers=4, model=norm)
    assert "one sample" in refusal(workers=4, model=norm, accumulate=2)


def test_the_state_before_the_first_step_is_untrained() -> None:
    """The probe takes a step; what the run starts from is from before it."""
    found = prepared()
    with torch.random.fork_rng():
        own = build_model(Job(**given())).state_dict()
    assert {name: tensor.tolist() for name, tensor in found.states[0][1].items()} == {
        f"model.{name}": tensor.tolist() for name, tensor in own.items()
    }
    assert found.states[0][0]["replica"]["optimizer"]["state"] == {}


def test_equal_requests_are_prepared_equally() -> None:
    torch.manual_seed(1)
    first = prepared()
    torch.manual_seed(2)
    second = prepared()
    other = prepared(seed=1)
    as_lists = [{n: t.tolist() for n, t in p.states[0][1].items()} for p in (first, second, other)]
    assert as_lists[0] == as_lists[1] != as_lists[2]


@pytest.mark.parametrize("refused", [False, True])
def test_the_generators_stay_as_they_were(refused: bool, tmp_path: Path) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()

    def draw(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(()) + float(np.random.rand()) + random.random()

    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    changes: dict[str, Any] = {"data": saved(tmp_path), "transform": draw, "model": norm}
    if refused:
        refusal(**changes, loss=lambda o, t: o)
    else:
        prepared(**changes)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()) == expected


def test_a_data_function_may_draw_numbers_and_the_generators_stay() -> None:
    def split() -> Any:
        return torch.utils.data.random_split(Rows(), [20, 4])

    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    assert prepared(data=split).training_samples == 20
    assert torch.rand(3).tolist() == expected


@pytest.mark.parametrize("refused", [False, True])
def test_the_users_own_module_and_weights_stay_as_they_were(refused: bool) -> None:
    mine, start = norm(), norm().state_dict()
    before = [{n: t.clone() for n, t in some.items()} for some in (mine.state_dict(), start)]
    changes: dict[str, Any] = {"model": lambda: mine, "init": start}
    if refused:
        refusal(**changes, metrics={"bad": lambda o, t: o})
    else:
        found = prepared(**changes)
        assert all(torch.equal(found.states[0][1][f"model.{n}"], t) for n, t in start.items())
    for some, kept in zip((mine.state_dict(), start), before, strict=True):
        assert all(torch.equal(some[name], kept[name]) for name in kept)
    assert all(parameter.grad is None for parameter in mine.parameters())


def test_the_users_data_stay_as_they_were() -> None:
    rows, targets = Rows(), Rows()
    assert prepared(data=lambda: (rows, targets), model=norm)
    for one in (rows, targets):
        assert torch.equal(one.x, Rows().x)
        assert torch.equal(one.y, Rows().y)


@pytest.mark.parametrize("form", ["file", "dict"])
def test_training_starts_from_init(form: str, tmp_path: Path) -> None:
    weights = {name: tensor + 1 for name, tensor in model().state_dict().items()}
    init: Any = weights
    if form == "file":
        init = tmp_path / "w.safetensors"
        safetensors.torch.save_file(weights, init)
    found = prepared(init=init)
    assert all(torch.equal(found.states[0][1][f"model.{name}"], weights[name]) for name in weights)


def test_init_may_leave_out_what_is_not_saved_and_second_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)
            self.c = self.a
            self.register_buffer("hidden", torch.ones(2), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.c(self.a(x)))

    weights = Tied().state_dict()
    assert prepared(model=Tied, init=weights)
    by_second_name = {n: t for n, t in weights.items() if not n.startswith("a.")}
    assert prepared(model=Tied, init=by_second_name)
    del by_second_name["c.weight"]
    assert "a.weight differ" in refusal(model=Tied, init=by_second_name)
