"""One CPU type: what a run goes on with, what is refused, and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError, RunFailed
from dayfly.life.faults import Fault
from dayfly.life.processor import ATEN, MKL, ONEDNN, Processor
from dayfly.runs import made_with, run_context
from dayfly.runs.made_with import check_function, going_on, made_here, variables
from dayfly.wire.keys import COORDINATOR
from tests.runs import coordinator, small

HERE = Processor.here()
OTHER = "GenuineIntel family 6 model 999"  # no machine has it


def changed(**facts: str) -> dict[str, str]:
    return {**made_here(), **facts}


def test_a_run_that_began_here_goes_on_as_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says by then."""
    began = changed(**{ATEN: "default", ONEDNN: "SSE41"})
    monkeypatch.setenv(ATEN, "avx2")
    assert going_on(began, allow_other=False) == (began, [])
    assert variables(began)[ATEN] == "default"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cpu_type": OTHER}, f"of CPU {OTHER}, and this machine has CPU {HERE.type}: .*--allow"),
        ({"torch": "1.0"}, r"of torch 1\.0, and this machine has torch 2"),
        ({"torch_build": "0" * 12}, "of torch build 000000000000, and this machine has torch bui"),
        ({"threads": "2"}, r"of 2 thread\(s\), and this machine has 1 thread\(s\)"),
        ({"cpu_type": OTHER, "threads": "4"}, rf"of CPU {OTHER} and 4 thread\(s\), and this"),
    ],
)
def test_another_machine_is_refused_unless_it_is_allowed(facts: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        going_on(changed(**facts), allow_other=False)
    made, notes = going_on(changed(**facts), allow_other=True)
    assert made == made_here()
    assert len(notes) == 1
    assert notes[0].endswith("the bits may be others from here on")


def test_a_weaker_machine_of_the_type_is_refused() -> None:
    weaker = replace(HERE, flags=frozenset({"sse2", "sse4_1", "sse4_2"}))
    began = changed(**{ATEN: "avx2"})
    with pytest.raises(RequestError, match=f"of {ATEN}=avx2, and this machine's .* lacks that"):
        going_on(began, allow_other=False, processor=weaker)
    made, notes = going_on(began, allow_other=True, processor=weaker)
    assert made[ATEN] == "default"
    assert len(notes) == 1


def test_a_stronger_machine_of_the_type_does_as_the_run_began() -> None:
    stronger = replace(HERE, flags=HERE.flags | {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
    began = changed(**{ATEN: "avx2", ONEDNN: "AVX2", MKL: "AUTO"})
    assert going_on(began, allow_other=False, processor=stronger) == (began, [])


@pytest.mark.parametrize(
    "recorded",
    [None, {"torch": made_here()["torch"], "cpu": "AVX2", "machine": "x86_64", "threads": "1"}],
)
def test_a_run_of_an_earlier_version_goes_on(recorded: dict[str, str] | None) -> None:
    made, notes = going_on(recorded, allow_other=False)
    assert made == made_here()
    assert [note for note in notes if "of an earlier version" in note] == notes


def test_another_numpy_is_said() -> None:
    _, notes = going_on(changed(numpy="1.0"), allow_other=False)
    assert len(notes) == 1
    assert "made with numpy 1.0" in notes[0]


def test_a_function_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(made_here()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    assert check_function(made_here(), allow_other=False) is None
    assert check_function({}, allow_other=False) is None
    other = changed(cpu_type=OTHER)
    with pytest.raises(RunFailed, match=f"of CPU {OTHER}, and this machine has CPU {HERE.type}"):
        check_function(other, allow_other=False)
    assert OTHER in (check_function(other, allow_other=True) or "")
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    with pytest.raises(RunFailed, match=r"of 1 thread\(s\), and this machine has 2 thread\(s\)"):
        check_function(made_here(), allow_other=False)


def test_a_function_that_was_told_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own loops as they are, whatever the environment says of them."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setenv(ATEN, "avx2")
    with pytest.raises(RunFailed, match=f"of {ATEN}=avx2, and this machine has {ATEN}=default"):
        check_function({ATEN: "avx2"}, allow_other=False)


@pytest.mark.long
def test_workers_on_another_machine_are_refused_or_said(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_context, "made_here", lambda: changed(cpu_type=OTHER))
    job = small.job(data, epochs=1)
    with pytest.raises(RunFailed, match=f"of CPU {OTHER}, and this machine has CPU {HERE.type}"):
        dayfly.train(job, run_dir=tmp_path / "no", progress=False)
    dayfly.train(job, run_dir=tmp_path / "yes", workers=2, allow_other_cpu=True)
    assert capsys.readouterr().err.count(f"and this machine has CPU {HERE.type}: the bits") == 1
    record = json.loads((tmp_path / "yes" / "run.json").read_text())
    assert record["settings"]["allow_other_cpu"] is True


@pytest.mark.long
def test_a_resume_on_another_machine_is_refused_and_allowed_for_good(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.killed(
        data=data, run_dir=tmp_path, workers=1, faults=[Fault(COORDINATOR, 5, "step")]
    )
    file = tmp_path / "run.json"
    record: dict[str, Any] = json.loads(file.read_text())
    assert record["made_with"] == made_here()
    record = small.change_record(tmp_path, made_with={**made_here(), "cpu_type": OTHER})
    with pytest.raises(RequestError, match=f"of CPU {OTHER}, and this machine has CPU {HERE.type}"):
        dayfly.resume(tmp_path, progress=False)
    assert json.loads(file.read_text()) == record, "nothing was begun"
    dayfly.resume(tmp_path, allow_other_cpu=True)
    assert "the bits may be others from here on" in capsys.readouterr().err
    after = json.loads(file.read_text())
    assert after["settings"]["allow_other_cpu"] is True
    assert after["made_with"] == made_here()
    assert made_with.going_on(after["made_with"], allow_other=False)[1] == []
