"""Linear models of two classes: logistic regression and the linear SVM, and their losses.

CE-scaling and LambdaML train them on Higgs (28 features) and YFCC100M-HNfc6 (4096). Both models are
one layer; the loss is the difference. CE-scaling (section IV-A) has as many parameters as features;
here is one more, for the bias. Its SVM's "several KB" are 16.4 for YFCC.

Shapes: B samples. Labels y_B are 0 or 1. Regularise by the optimizer's `weight_decay`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def logistic_regression(features: int = 28) -> nn.Sequential:
    """x (B, features) -> scores_B (B,), for `logistic_loss`; features + 1 parameters."""
    return nn.Sequential(nn.Linear(features, 1), nn.Flatten(0))


def linear_svm(features: int = 28) -> nn.Sequential:
    """x (B, features) -> scores_B (B,), for `hinge_loss`; features + 1 parameters."""
    return nn.Sequential(nn.Linear(features, 1), nn.Flatten(0))


def logistic_loss(scores_B: torch.Tensor, y_B: torch.Tensor) -> torch.Tensor:
    """Mean of log(1 + exp(-s)) for label 1, log(1 + exp(s)) for label 0."""
    return F.binary_cross_entropy_with_logits(scores_B, y_B.to(scores_B.dtype))


def hinge_loss(scores_B: torch.Tensor, y_B: torch.Tensor) -> torch.Tensor:
    """Mean of max(0, 1 - s) for label 1, max(0, 1 + s) for label 0."""
    return F.relu(1 - scores_B * (2 * y_B - 1).to(scores_B.dtype)).mean()


def sign_accuracy(scores_B: torch.Tensor, y_B: torch.Tensor) -> torch.Tensor:
    """Share of samples whose score has the label's sign; for a job's `metrics`."""
    return ((scores_B > 0) == (y_B == 1)).double().mean()


def wide_mlp(width: int = 2048, features: int = 1024, classes: int = 10) -> nn.Sequential:
    """x (B, features) -> scores (B, classes); 7 layers, 10,512,394 parameters as it stands.

    Three hidden layers of `width`. A parameter takes part in one multiplication a sample; a
    weight of a convolution takes part in as many as there are positions.
    """
    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )
