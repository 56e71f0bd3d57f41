"""The bench of compression runs, compares seed by seed, and leaves nothing."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import compression
from dayfly.errors import RequestError
from tests.benchmarks.left import scratch

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_row_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # benches beside have theirs elsewhere
    asked = ["--quick", "--seeds", "1", "--workers", "2", "--models", "digits-cnn"]
    result = compression.run([*asked, "--methods", "none", "int8"])
    none, int8 = result["rows"]
    assert (none["compress"], int8["compress"], int8["parameters"]) == ("none", "int8", 38_282)
    assert none["val_loss_more"] == [0.0]
    assert int8["val_loss_more"] == [int8["val_loss"][0] - none["val_loss"][0]]
    assert int8["val_loss_more"] != [0.0]
    assert int8["ratio"] == pytest.approx(none["step_kb_up"] / int8["step_kb_up"])
    assert int8["ratio"] > 2.5
    page = io.StringIO()
    Console(file=page, width=80).print(compression.table(result))
    assert "int8" in page.getvalue()
    assert "…" not in page.getvalue(), "it fits into a terminal"
    assert scratch(tmp_path) == []


@pytest.mark.slow  # what is sent and its bytes: tests/training/test_significance.py, test_topk.py
def test_of_a_sparse_model_zeros_do_not_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked = ["--quick", "--seeds", "1", "--workers", "2", "--models", "sparse-lr"]
    result = compression.run([*asked, "--methods", "none", "significance:0", "significance:0.7"])
    _, exact, filtered = result["rows"]
    assert exact["val_loss_more"] == pytest.approx([0.0], abs=1e-4), "the same but for rounding"
    assert exact["ratio"] > 4
    assert filtered["ratio"] > 1.2 * exact["ratio"]
    assert abs(filtered["val_loss_more"][0]) < 0.05
    page = io.StringIO()
    Console(file=page, width=80).print(compression.table(result))
    assert "…" not in page.getvalue(), "it fits into a terminal"


def test_a_method_that_is_not_known_is_refused_before_anything_runs() -> None:
    with pytest.raises(RequestError, match="--compress 'zip' is not known"):
        compression.run(["--methods", "none", "zip"])


def test_a_spread_has_no_negative_zero() -> None:
    assert compression._spread([-0.0001, 0.0], 3) == "0.000±0.000"
    assert compression._spread([0.5, 0.7], 1) == "0.6±0.1"
