"""Models to try dayfly with, each a list of layers."""

from __future__ import annotations

from dayfly.models.digits_cnn import digits_cnn

__all__ = ["digits_cnn"]
