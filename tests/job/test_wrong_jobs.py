"""What would fail on every function is refused before any starts, with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as lr

from dayfly.data import READERS
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.prepare import prepare
from dayfly.runs.settings import Settings
from tests.job.asked import Rows, given, model, prepared, refusal, regression, saved

ROWS = Rows()
X, Y = ROWS.x.numpy(), ROWS.y.numpy()
LABELS_OF_3 = "labels of 3 scores are 0 to 2: give the model a score for each, or number the labels"


def with_row_12(label: int) -> np.ndarray:
    """The extreme label is in a row that no even choice of samples has."""
    return np.where(np.arange(24) == 12, label, Y)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"y_train": None}, "has no y_train: it needs x_train and y_train"),
        ({"y_train": Y[1:]}, ": x_train has 24 rows, y_train has 23"),
        ({"y_train": with_row_12(3)}, f"int64 of 0 to 3: IndexError: * {LABELS_OF_3}"),
        ({"y_train": with_row_12(-1)}, f"int64 of -1 to 2: IndexError: * {LABELS_OF_3}"),
        (
            {"x_val": X[:9], "y_val": with_row_12(3)[5:14]},
            "validation fails: IndexError: Target 3 is out of bounds",
        ),
        ({"y_train": Y.astype("int32")}, "int32 of 0 to 2: * got Int: give labels as int64"),
        ({"y_train": Y.astype("float32")}, "[8] float32: * give labels as int64"),
        (
            {"x_train": X.astype("float64")},
            "its model does not take x [* 6] float64: * make them fit, such as x of float32",
        ),
        ({"x_train": X[:, :5]}, "its model does not take x [* 5] float32: * make them fit"),
        ({"x_train": X.astype(object)}, "cannot be read as arrays: ValueError: *: save them with"),
        ({"x_train": np.full_like(X, np.nan)}, "loss is nan on its first samples: check the data"),
    ],
)
def test_arrays(arrays: dict[str, Any], text: str, tmp_path: Path) -> None:
    found = refusal(data=saved(tmp_path, **arrays))
    assert_like(found, text)


def test_an_accuracy_that_is_not_measured_is_no_target() -> None:
    job = Job(**given(model=regression, loss=lambda outputs, y: (outputs[:, 0] - y).abs().mean()))
    with pytest.raises(RequestError, match="this job's validation measures no accuracy, so leave"):
        prepare(job, Settings(target_accuracy=0.9))


def test_a_label_anywhere_in_a_map_of_labels(tmp_path: Path) -> None:
    """One pixel of a row that no even choice of samples has."""
    maps = np.zeros((24, 4, 4), "int64")
    maps[12, 2, 3] = 3

    def pixels() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 48), nn.Unflatten(1, (3, 4, 4)))

    assert_like(refusal(data=saved(tmp_path, y_train=maps), model=pixels), LABELS_OF_3)
    maps[12, 2, 3] = 2
    prepared(data=saved(tmp_path, y_train=maps), model=pixels)


def assert_like(found: str, text: str) -> None:
    """All parts of the text, split at its asterisks, in their order."""
    at = 0
    for part in text.split("*"):
        at = found.find(part.strip(" "), at)
        assert at >= 0, f"{part!r} is not in: {found}"


def test_unknown_data() -> None:
    assert refusal(data="imagenet") == (
        f"data 'imagenet' is not there (looked in {Path.cwd()}): give \"digits\", or a file or "
        f"directory of one of these forms: {', '.join(READERS)}"
    )


def test_a_column_of_outputs_against_a_row_of_targets(tmp_path: Path) -> None:
    """Torch broadcasts them to a matrix, with a warning only, and trains on nonsense."""
    data = saved(tmp_path, y_train=Y.astype("float32"))
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        found = refusal(data=data, model=regression, loss=loss)
        assert_like(found, "outputs [8, 1] float32 and targets [8] float32: * give both one shape")


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 3, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table((x * 0).long())


class Keeping(torch.optim.SGD):
    """Keeps what JSON and tensors cannot say."""

    def step(self, closure: Any = None) -> None:
        super().step()
        self.state[self.param_groups[0]["params"][0]]["seen"] = {1, 2}


BY_STEPS = {"scheduler_every": "step"}


def norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"loss": lambda o, t: F.cross_entropy(o, t, reduction="sum")},
            "is a sum over its samples: make it their mean (reduction='mean'), as the workers'",
        ),
        (
            {"loss": lambda o, t: F.cross_entropy(o, t, reduction="none")},
            "loss gives [8] float32, not one number: take the mean over the samples",
        ),
        ({"loss": lambda o, t: 1.0}, "loss gives float, not one number: take the mean"),
        ({"loss": lambda o, t: o.sum() * float("nan")}, "loss is nan on its first samples: check"),
        ({"loss": lambda o, t: o.sum() / 0}, "inf on its first samples: check the loss, the first"),
        ({"loss": lambda o, t: o.detach().mean()}, "no gradient: it does not depend on the param"),
        ({"loss": F.nll_loss, "model": regression}, "its loss does not take outputs [8, 1]"),
        ({"loss": None, "step": lambda m, b: (1, 2, 3)}, "step returned a tuple of 3: return the"),
        ({"loss": None, "step": lambda m, b: m(b["x"])}, "its step fails: TypeError: list indices"),
        ({"loss": None, "step": lambda m, b: None}, "loss gives NoneType, not one number"),
        ({"model": lambda: nn.Linear(7, 3)}, "its model does not take x [8, 6] float32: Runtime"),
        ({"model": lambda: None}, "model function returned NoneType: return a torch module"),
        ({"model": lambda: 1 / 0}, "model cannot be built: ZeroDivisionError: division by zero"),
        ({"model": nn.ReLU}, "model has no parameters to train: leave requires_grad of some"),
        ({"model": lambda: model().requires_grad_(False)}, "no parameters to train: leave"),
        ({"model": lambda: nn.LazyLinear(3)}, "lazy parameter weight: give its layer all sizes"),
        (
            {"model": lambda: nn.Linear(6, 3, dtype=torch.complex64)},
            "parameter weight of torch.complex64: train real and imaginary parts as two",
        ),
        ({"model": Sparse}, "sparse gradients, which are not supported: build its embeddings with"),
        ({"optimizer": torch.optim.LBFGS}, "which workers cannot share: use a first-order"),
        ({"optimizer": torch.optim.SparseAdam}, "not supported: use Adam or AdamW"),
        ({"optimizer": lambda p: None}, "optimizer function returned NoneType: return a torch opt"),
        (
            {"optimizer": lambda p: torch.optim.SGD(p, lr=-1)},
            "optimizer cannot be built: ValueError: Invalid learning rate: -1",
        ),
        (
            {"optimizer": lambda p: torch.optim.SGD(model().parameters())},
            "that are not those of the job's model: build it from what its function is given",
        ),
        (
            {"optimizer": Keeping},
            "optimizer.state.0.weight.seen holds a set, which a checkpoint cannot keep: use",
        ),
        ({"scheduler": lr.StepLR}, "scheduler cannot be built: TypeError: *step_size"),
        ({"scheduler": lambda o: None}, "scheduler function returned NoneType: return a torch"),
        (
            {"scheduler": lr.ReduceLROnPlateau, "scheduler_every": "step"},
            'goes by the validation loss: give scheduler_every="epoch"',
        ),
        (
            {"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 8), "epochs": 3, **BY_STEPS},
            "scheduler fails after step 9 of 9 (3 epochs): ValueError: Tried to step 9 times",
        ),
        ({"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 8), "epochs": 9}, "epoch 9 of 9: Value"),
        (
            {"scheduler": lambda o: lr.OneCycleLR(o, 0.1, 10**6), "epochs": 400_000, **BY_STEPS},
            "scheduler fails after step 1200000 of 1200000",
        ),
        ({"model": lambda: model().to("meta")}, "meta device, where its 0.weight has no values"),
        ({"init": {**model().state_dict(), "0.bias": torch.ones(8) / 0}}, "infinity in 0.bias: g"),
        ({"accumulate": 9}, "the job's accumulate 9: a batch of 8 leaves each at most 8 samples"),
        ({"accumulate": 5, "workers": 2}, "a batch of 8, shared by 2 workers, leaves each at most"),
        (
            {"batch_size": 99, "workers": 25},
            "data of 24 samples cannot be shared by 25 workers",
        ),
        ({"metrics": {"f1": lambda o, t: o}}, "metric 'f1' gives a Tensor of shape [8, 3]"),
        ({"init": nn.Linear(6, 3).state_dict()}, "another model's: 0.bias, 0.weight, 2.bias"),
        ({"init": {**model().state_dict(), "0.bias": torch.ones(9)}}, "size mismatch for 0.bias"),
        ({"init": {**model().state_dict(), "more": torch.ones(9)}}, "another model's: more differ"),
        ({"init": {"0.weight": 3}}, "expected torch.Tensor"),
        ({"init": "nowhere.safetensors"}, "init 'nowhere.safetensors' cannot be read: No such"),
        ({"model": norm, "workers": 8}, "one sample, which is all that a worker gets of some"),
        ({"model": norm, "batch_size": 23}, "one sample, *: Expected more than 1 value"),
    ],
)
def test_model_loss_and_optimizer(changes: dict[str, Any], text: str) -> None:
    assert_like(refusal(**changes), text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"transform": lambda x: 1 / 0}, "its transform fails: ZeroDivisionError: division by"),
        ({"eval_transform": lambda x: {}["a"]}, "its eval_transform fails: KeyError: 'a'"),
        ({"transform": lambda x: x.numpy()}, "transform returned ndarray: return a tensor"),
        ({"eval_transform": lambda x: x.tolist()}, "eval_transform returned list: return a tensor"),
        ({"eval_transform": lambda x: x[:2]}, "validation fails: RuntimeError"),
        (
            {"transform": lambda x: x[: 1 + (x > 0).sum()]},
            "its samples do not form a batch: RuntimeError: stack expects each tensor to be equal",
        ),
    ],
)
def test_transforms(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    assert_like(refusal(data=saved(tmp_path), **change), text)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        yield from ()


class Counted(Stream):
    def __len__(self) -> int:
        return 3


class Broken(Rows):
    def __getitem__(self, index: int) -> Any:
        raise OSError("no such\nrow")


class Endless(Rows):
    def __len__(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: 1 / 0, "data function fails: ZeroDivisionError: division by zero"),
        (lambda: Rows(), "data function must return (train, validation) Datasets"),
        (lambda: (Rows(), None), "validation Dataset is a NoneType without length and index: ret"),
        (lambda: (Rows(0), Rows()), "training Dataset is empty: it needs at least one sample"),
        (lambda: (Rows(), Rows(0)), "validation Dataset is empty: it needs at least one sample"),
        (lambda: (Stream(), Rows()), "training Dataset is iterable and has no length: give it"),
        (lambda: (Counted(), Rows()), "training Dataset gives no sample: it needs at least one"),
        (lambda: (Endless(), Rows()), "training Dataset has no length: NotImplementedError"),
        (lambda: (Broken(), Rows()), "its training Dataset fails: OSError: no such"),
        (lambda: (Rows(), Broken()), "its validation Dataset fails: OSError: no such"),
        (
            lambda: ([{"x": 1}] * 9, Rows()),
            "a sample of the data is dict, not (x, y), nor a dict with",
        ),
        (lambda: ([[1], [1, 2]], Rows()), "its samples do not form a batch: RuntimeError"),
    ],
    ids=range(12),
)
def test_datasets(data: Any, text: str) -> None:
    assert_like(refusal(data=data), text)
