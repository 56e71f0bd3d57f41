"""The bench of rates runs, adds up, and leaves nothing; no speed is asserted."""

from __future__ import annotations

import io
import os

import pytest
from benchmarks.parts import namespaces
from rich.console import Console

from benchmarks import limits
from tests.benchmarks.left import namespace_is_swept, spaces

pytestmark = pytest.mark.long


def test_a_row_a_rate() -> None:
    asked = ["--rates", "20", "--seconds", "0.2", "--rounds", "1", "--message-mb", "0.2"]
    result = limits.run([*asked, "--without-tbf"])
    (row,) = result["rows"]
    assert row["asked_mb_per_s"] == 20
    assert [len(row["up"]), len(row["down"])] == [2, 2]
    assert 0 < row["share"] <= 1.02  # never faster than asked
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(limits.table(result))
    assert "20" in console.export_text()


needs_namespaces = pytest.mark.skipif(
    not namespaces.possible(), reason="network namespaces need root, ip and tc"
)


@needs_namespaces
def test_the_kernels_bucket_holds_a_connection_back_and_the_namespaces_go() -> None:
    # So much that a window of it, which may come in before its reader is awake, does not count.
    for share in namespaces.shares_of_tbf(5e6, 4_000_000):
        assert 0 < share <= 1.15  # without the bucket it is a hundred times as much
    assert f"dayfly-bench-{os.getpid()}-" not in spaces()


@needs_namespaces
def test_what_a_killed_one_left_is_swept() -> None:
    code = (
        "import os, signal; from benchmarks.parts import namespaces\n"
        "with namespaces._cable(1e6): os.kill(os.getpid(), signal.SIGKILL)"
    )
    namespace_is_swept(code, "a")
