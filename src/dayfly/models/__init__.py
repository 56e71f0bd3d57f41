"""Models to try dayfly with: one a file, each a list of layers."""

from __future__ import annotations

from dayfly.models.digits_cnn import digits_cnn
from dayfly.models.resnet18_32 import resnet18_32
from dayfly.models.wide_mlp import wide_mlp

__all__ = ["digits_cnn", "resnet18_32", "wide_mlp"]
