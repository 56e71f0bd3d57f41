"""Linear models: their losses by hand."""

from __future__ import annotations

import math

import pytest
import torch

from dayfly.models import (
    hinge_loss,
    linear_svm,
    logistic_loss,
    logistic_regression,
    sign_accuracy,
)
from tests.models.sizes import parameters


def test_shapes_and_parameters() -> None:
    for build in (logistic_regression, linear_svm):
        assert [parameters(build(features)) for features in (28, 4096)] == [29, 4097]
        assert build()(torch.randn(5, 28)).shape == (5,)
        assert build()(torch.randn(1, 28)).shape == (1,)


def test_losses_are_means_of_what_their_formulas_say() -> None:
    scores, labels = torch.tensor([2.0, -0.5, 0.25, -3.0]), torch.tensor([1, 1, 0, 0])
    hinges = [0.0, 1.5, 1.25, 0.0]
    assert hinge_loss(scores, labels).item() == pytest.approx(sum(hinges) / 4)
    logs = [math.log1p(math.exp(-agreed)) for agreed in (2.0, -0.5, -0.25, 3.0)]
    assert logistic_loss(scores, labels).item() == pytest.approx(sum(logs) / 4)
    assert sign_accuracy(scores, labels).item() == 0.5
