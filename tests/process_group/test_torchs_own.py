"""torch's own tests of torch.distributed: what passes over gloo passes over dayfly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.cold]  # minutes; test_equal.py has its own of each kind

pytest.importorskip("expecttest", reason="torch's tests need it: pip install expecttest")


#: Fail for what is meant: a group says that its backend is called dayfly.
MEANT = {"test_get_backend"}


def found(tmp_path: Path, backend: str, only: Sequence[str] = ()) -> dict[str, str]:
    results = tmp_path / f"{backend}.json"
    command = [sys.executable, "-m", "tests.process_group.torchs_own", backend]
    command += ["--results", str(results), *(["--only", *only] if only else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    read: dict[str, str] = json.loads(results.read_text())
    return read


@pytest.mark.timeout(3600)
def test_nothing_that_passes_over_gloo_fails_over_dayfly(tmp_path: Path) -> None:
    over_gloo = found(tmp_path, "gloo")
    passed = [name for name, text in over_gloo.items() if text == "ok" and name not in MEANT]
    assert len(passed) >= 85, over_gloo
    over_dayfly = found(tmp_path, "dayfly", passed)
    failed = {name: over_dayfly[name] for name in passed if over_dayfly[name] != "ok"}
    if failed:  # once more, as some go by the clock
        again = found(tmp_path, "dayfly", sorted(failed))
        failed = {name: text for name, text in again.items() if text != "ok"}
    assert failed == {}
