"""What `--precision` takes; without torch, as settings need names alone."""

from __future__ import annotations

FP32, BF16, FP16 = "fp32", "bf16", "fp16"
