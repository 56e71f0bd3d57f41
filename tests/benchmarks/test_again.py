"""`dayfly bench planning --again`: predictions by two profiles of one thing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts.planning.again import agreement
from benchmarks.parts.planning.at_pace import at_pace
from benchmarks.parts.planning.pace import pace_text
from rich.console import Console

from benchmarks import planning
from dayfly.errors import RequestError
from dayfly.planning.profile import Profile, profile_text
from tests.planning.by_hand import layer, profile, size

pytestmark = pytest.mark.long

NAME = "cnn-one-small"
PROFILE = profile([layer("one", 1000)], size(1, memory_mib=442, cpu_cores=0.25))
FIRST = {"a": {"step_s": 0.1, "cost_usd": 0.01}, "b": {"step_s": 0.2, "cost_usd": 0.02}}
#: Steps are 10% less and 30% more, dollars as they were.
SECOND = {"a": {"step_s": 0.09, "cost_usd": 0.01}, "b": {"step_s": 0.26, "cost_usd": 0.02}}


def rows(**measured: float) -> list[dict[str, Any]]:
    """Steps; each costs a tenth in dollars."""
    return [
        {"name": name, "step_s": {"measured": s}, "cost_usd": {"measured": s / 10}}
        for name, s in measured.items()
    ]


def test_the_difference_and_both_errors() -> None:
    made = agreement(FIRST, SECOND, rows(a=0.1, b=0.25), [3600.0, 3500.0])
    assert made["apart_s"] == {"least": 3500.0, "most": 3600.0}
    assert [one["step_s"]["difference"] for one in made["rows"]] == pytest.approx([-0.1, 0.3])
    steps = made["summary"]["step_s"]
    assert steps["difference"]["mean"] == pytest.approx(0.2)
    assert steps["difference"]["worst_of"] == "b"
    # 0 and 0.2 / 0.25 - 1; 0.09 / 0.1 - 1 and 0.26 / 0.25 - 1.
    assert steps["error"]["mean"] == pytest.approx(0.1)
    assert steps["error_again"]["mean"] == pytest.approx(0.07)
    # 10% is more than 6%, and less than profiles differ.
    assert (steps["aim"], steps["met"]) == (pytest.approx(0.2), True)
    # Profiles that agree leave the aim at 6%.
    cost = made["summary"]["cost_usd"]
    assert (cost["difference"]["mean"], cost["aim"], cost["met"]) == (0, 0.06, False)


def test_without_runs_the_difference_is_all() -> None:
    made = agreement(FIRST, SECOND, [], [3600.0, None])
    assert made["apart_s"] is None
    assert set(made["summary"]["step_s"]) == {"difference"}


def kept(directory: Path, what: Profile, made_s: float) -> Path:
    directory.mkdir()
    (directory / "cnn-file-lambda.json").write_text(profile_text(what))
    (directory / "cnn-file-lambda.pace.json").write_text(pace_text(0.0625, made_s))
    return directory


def test_two_directories_of_profiles_are_compared_without_a_run(tmp_path: Path) -> None:
    now = kept(tmp_path / "now", PROFILE, 1e9)
    earlier = kept(tmp_path / "earlier", at_pace(PROFILE, 1.25), 1e9 - 3600)
    flags = ["--only", NAME, "--rounds", "0", "--profiles", str(now)]
    result = planning.run([*flags, "--again", str(earlier)])
    assert (result["rows"], result["summary"]) == ([], None)
    assert result["again"]["apart_s"] == {"least": 3600.0, "most": 3600.0}
    difference = result["again"]["summary"]["step_s"]["difference"]
    assert difference["mean"] == pytest.approx(0.25, rel=0.05)
    page = io.StringIO()
    Console(file=page, width=200).print(planning.table(result))
    for said in ("1 profiles, and nothing run", "60 to 60 minutes apart", NAME, "on average"):
        assert said in page.getvalue()


def test_a_second_profile_of_other_sizes_is_refused(tmp_path: Path) -> None:
    now = kept(tmp_path / "now", PROFILE, 1e9)
    other = profile([layer("one", 1000)], size(1, memory_mib=1769))
    earlier = kept(tmp_path / "earlier", other, 1e9)
    with pytest.raises(RequestError, match="has no functions of 442 MiB: it has 1769 MiB"):
        planning.run(["--only", NAME, "--profiles", str(now), "--again", str(earlier)])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--steady", "--again", "{}"], "--again: not with --choose or --steady"),
        (["--profiles", "{}", "--again", "{}"], "--again: give another directory"),
        (["--rounds", "0", "--again", "{}"], "--rounds: 0 makes profiles alone: add --profiles"),
    ],
)
def test_what_does_not_go_together(
    flags: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        planning.run([flag.format(tmp_path) for flag in flags])
    assert why in capsys.readouterr().err
