"""A script on another CPU type than its run's: refused, or said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.runs import run_context
from dayfly.runs.made_with import made_here
from tests.run_command.scripts import resume, run

pytestmark = pytest.mark.long

OTHER = "GenuineIntel family 6 model 999"  # no machine has it


def test_a_script_on_another_cpu_is_refused_or_said(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(run_context, "made_here", lambda: {**made_here(), "cpu_type": OTHER})
        refused = run(here, "print('began')", workers=1, max_restarts=0)
    assert refused.result.status == "failed"
    assert f"the run is of CPU {OTHER}, and this machine has CPU" in (refused.result.error or "")
    assert "[rank 0] began" not in refused.lines
    with pytest.raises(RequestError, match=f"of CPU {OTHER}, .*--allow-other-cpu"):
        resume(here)
    ran = resume(here, allow_other_cpu=True)
    assert ran.of(0) == ["began"]
    assert [note for note in ran.notes if "the bits may be others from here on" in note]
    record = json.loads((ran.directory / "run.json").read_text())
    assert record["settings"]["allow_other_cpu"] is True
    assert record["made_with"] == made_here()
