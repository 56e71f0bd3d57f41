"""What the commands say of a damaged file: one line on standard error, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayfly.cli.app import app
from tests.reading.damage import RECORDED, copied


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def said_by(*arguments: str) -> str:
    """What a command that refuses says, without its name."""
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    return line.removeprefix("dayfly: ")


@pytest.mark.parametrize("command", [["report"], ["train", "--resume"]], ids=["report", "resume"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"generation": 0', '"generation": "x"', 'generation is "x", not a whole number from 0'),
        ('"run_id": "tiny', '"run_id": "../../x', 'run_id is "../../x'),
        ('"format": 3', '"format": 4', "is of format 4, and this dayfly reads 3"),
        ("{", "[", "run.json is no JSON"),
    ],
)
def test_a_damaged_record(
    command: list[str], old: str, new: str, said: str, tmp_path: Path
) -> None:
    directory = copied("job", tmp_path)
    change(directory / "run.json", old, new)
    assert said in said_by(*command, str(directory))


def test_a_key_that_is_not_known_is_refused_by_who_goes_on(tmp_path: Path) -> None:
    directory = copied("job", tmp_path)
    change(directory / "run.json", '"status": "done"', '"state": "done"')
    assert "has an unknown key 'state'" in said_by("train", "--resume", str(directory))


def test_a_damaged_line_of_events_is_named_by_its_number(tmp_path: Path) -> None:
    directory = copied("job", tmp_path)
    file = directory / "events" / "worker-0.jsonl"
    lines = file.read_text().splitlines()
    number = next(at for at, line in enumerate(lines) if '"kind": "step"' in line)
    change(file, lines[number], lines[number].replace('"loss": ', '"loss": 1e999, "was": '))
    assert f"worker-0.jsonl, line {number + 1}: loss is Infinity" in said_by(
        "report", str(directory)
    )


@pytest.mark.parametrize(
    ("command", "name", "old", "new", "said"),
    [
        ("predict", "profile.json", '"version": 1', '"version": 2', "measure it anew"),
        ("predict", "profile.json", '"samples": ', '"samples": -', "samples is -"),
        ("simulate", "plan.json", '"workers": 2', '"workers": "two"', 'settings.workers is "two"'),
        ("simulate", "plan.json", '"epochs": 2', '"epochs": 0', "job.epochs is 0: give a whole"),
        ("plan", "profile.json", '"sizes": [', '"sizes": [null, ', "sizes[0] is null"),
    ],
)
def test_a_damaged_profile_or_plan(
    command: str, name: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes((RECORDED / name).read_bytes())
    change(file, old, new)
    line = said_by(command, str(file))
    assert name in line
    assert said in line
