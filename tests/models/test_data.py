"""Made data: shapes, the same bits for the same seed, and that a loss falls on each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import default_collate

from dayfly.models import (
    bert,
    cifar10,
    cola,
    data,
    higgs,
    hinge_loss,
    imdb,
    linear_svm,
    logistic_loss,
    logistic_regression,
    mnist,
    squad,
    write_arrays,
    yfcc,
)

pytestmark = pytest.mark.long

KINDS: dict[str, tuple[Callable[..., data.Pair], tuple[int, ...], type, tuple[int, ...]]] = {
    "mnist": (mnist, (1, 28, 28), np.float32, ()),
    "cifar10": (cifar10, (3, 32, 32), np.float32, ()),
    "higgs": (higgs, (28,), np.float32, ()),
    "yfcc": (yfcc, (4096,), np.float32, ()),
    "imdb": (imdb, (512,), np.int64, ()),
    "cola": (cola, (64,), np.int64, ()),
    "squad": (squad, (384,), np.int64, (2,)),
}


@pytest.mark.parametrize("name", KINDS)
def test_shapes_and_types(name: str) -> None:
    make, x_shape, x_type, y_shape = KINDS[name]
    train, validation = make(20, validation=7)
    for samples, count in ((train, 20), (validation, 7)):
        assert len(samples) == count
        assert (samples.x.shape, samples.x.dtype) == ((count, *x_shape), x_type)
        assert (samples.y.shape, samples.y.dtype) == ((count, *y_shape), np.int64)
    x, y = default_collate([train[3], train[5]])
    assert np.array_equal(x, train.x[[3, 5]])
    assert np.array_equal(y, train.y[[3, 5]])


@pytest.mark.parametrize("name", KINDS)
def test_equal_seeds_give_equal_bits(name: str) -> None:
    make = KINDS[name][0]
    (train, validation), (again, same), (other, _) = (
        make(9, validation=4, seed=1),
        make(9, validation=4, seed=1),
        make(9, validation=4, seed=2),
    )
    assert np.array_equal(train.x, again.x)
    assert np.array_equal(train.y, again.y)
    assert not np.array_equal(train.x, other.x)
    assert not np.array_equal(train.x[:4], validation.x)
    # Validation does not change with how much there is to train on.
    assert np.array_equal(make(30, validation=4, seed=1)[1].x, validation.x)
    assert np.array_equal(same.x, validation.x)


def test_images_of_another_size() -> None:
    assert cifar10(2, validation=1, size=224)[0].x.shape == (2, 3, 224, 224)


def test_texts_begin_end_and_are_padded() -> None:
    for make, longest in ((cola, 20), (imdb, 512)):
        x = make(200)[0].x
        lengths = (x != 0).sum(1)
        assert (x[:, 0] == 101).all()
        assert (x[np.arange(200), lengths - 1] == 102).all()
        assert ((x == 102).sum(1) == 1).all()
        assert lengths.max() <= longest
    assert abs(lengths.mean() - 292) < 30
    assert (imdb(20, tokens=128)[0].x != 0).sum(1).max() == 128


def test_answers_are_in_the_paragraph() -> None:
    train, _ = squad(300, tokens=48)
    first, last = train.y.T
    lengths = (train.x != 0).sum(1)
    assert (train.x[:, 11] == 102).all()
    assert (train.x[np.arange(300), lengths - 1] == 102).all()
    assert ((train.x == 102).sum(1) == 2).all()
    assert (first > 11).all()
    assert (first < last).all()
    assert (last < lengths - 1).all()
    begins = (train.x >= 1000) & (train.x < 1010)
    assert (begins.sum(1) == 1).all()
    assert (begins.argmax(1) == first).all()


def test_written_arrays_are_what_a_job_takes(tmp_path: Path) -> None:
    made = higgs(6, validation=3)
    write_arrays(tmp_path / "new" / "higgs", made)
    files = {file.name: np.load(file) for file in (tmp_path / "new" / "higgs").iterdir()}
    assert set(files) == {"x_train.npy", "y_train.npy", "x_val.npy", "y_val.npy"}
    assert np.array_equal(files["x_train.npy"], made[0].x)
    assert np.array_equal(files["y_val.npy"], made[1].y)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (mnist, {"samples": 0}),
        (mnist, {"validation": 0}),
        (cifar10, {"size": 30}),
        (cola, {"tokens": 2}),
        (imdb, {"vocabulary": 1000}),
        (squad, {"tokens": 20}),
        (squad, {"vocabulary": 1000}),
    ],
)
def test_what_cannot_be_made_is_refused(
    make: Callable[..., data.Pair], arguments: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match="give"):
        make(**arguments)


def convolutional() -> nn.Sequential:
    """For images of 32 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def small_bert(task: Any) -> nn.Sequential:
    """For short texts of few words."""
    return bert(task, layers=1, width=32, heads=2, vocabulary=1200, positions=32, dropout=0.0)


@pytest.mark.parametrize(
    ("build", "made", "loss", "chance", "reached"),
    [
        (convolutional, lambda: cifar10(512), F.cross_entropy, 2.30, 1.0),
        (logistic_regression, lambda: higgs(512), logistic_loss, 0.69, 0.65),
        (linear_svm, lambda: higgs(512), hinge_loss, 1.00, 0.85),
        (
            lambda: small_bert("classes"),
            lambda: cola(512, tokens=24, vocabulary=1200),
            F.cross_entropy,
            0.69,
            0.5,
        ),
        (
            lambda: small_bert("answers"),
            lambda: squad(512, tokens=32, vocabulary=1200),
            F.cross_entropy,
            3.47,
            1.0,
        ),
    ],
    ids=["cifar10", "higgs-logistic", "higgs-svm", "cola", "squad"],
)
def test_a_loss_falls_on_samples_that_were_not_trained(
    build: Callable[[], nn.Sequential],
    made: Callable[[], data.Pair],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    chance: float,
    reached: float,
) -> None:
    torch.manual_seed(0)
    model = build()
    (x, y), (x_new, y_new) = ((torch.from_numpy(s.x), torch.from_numpy(s.y)) for s in made())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    with torch.no_grad():
        assert loss(model(x_new), y_new).item() == pytest.approx(chance, rel=0.25)
    for step in range(40):
        piece = slice(step % 8 * 64, step % 8 * 64 + 64)
        optimizer.zero_grad()
        loss(model(x[piece]), y[piece]).backward()
        optimizer.step()
    with torch.no_grad():
        assert loss(model(x_new), y_new).item() < reached
