"""docs/simulate.md says what its commands print."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayfly.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"
#: Lines of a table, but where the files are.
FIGURES = re.compile(
    r"^ (workers|(start-up|training|total) time|step|cost|restarts|hand-overs|worst worker) "
)


def shown(words: str, directory: Path) -> dict[str, list[str]]:
    told = CliRunner().invoke(app, shlex.split(words), env={"COLUMNS": "80"})
    assert told.exit_code == 0, told.output
    assert directory.exists()
    lines = told.stdout.splitlines()
    return {line[:14].strip(): line.split() for line in lines if FIGURES.match(line)}


def test_the_page_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    block = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert block is not None
    Path("plan.json").write_text(block.group(1))
    commands = re.findall(r"```\n\$ dayfly (simulate [^\n]*)\n(.*?)```", text, re.DOTALL)
    assert len(commands) == 2
    for words, table in commands:
        found = shown(words, tmp_path)
        for line in table.splitlines():
            if FIGURES.match(line):
                assert found[line[:14].strip()] == line.split()


@pytest.mark.slow  # 64 workers; the page's commands, which are tested above, have few
def test_the_page_has_the_figures_of_other_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    block = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert block is not None
    Path("plan.json").write_text(block.group(1))
    said = re.search(r"step takes ([\d.]+) s; with\n.* ([\d.]+) s, and .*\nplace ([\d.]+) s", text)
    assert said is not None
    many = ["simulate", "plan.json", "--workers", "64", "--batch-size", "512", "--json"]
    for number, more in enumerate([[], ["--decline", "8:1,64:0.6"], ["--store-rate", "1250"]]):
        told = CliRunner().invoke(app, [*many, *more, "--run-dir", str(number)])
        result = json.loads(told.stdout.splitlines()[-1])
        assert f"{result['step_s']:.2f}" == said.group(number + 1)
