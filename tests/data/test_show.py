"""`dayfly data show`: a first look, for people and as JSON, also at what leaves a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dayfly.data
from dayfly.cli.app import app
from dayfly.data import READERS

ROWS = "size,color,kind\n1,red,b\n2,blue,a\n3,red,b\n"


def show(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["data", "show", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    return str(path)


def test_a_table_for_people_and_as_json(table: str) -> None:
    options = ["--option", "target=kind", "--option", 'categories=["color"]']
    code, said, _ = show(table, *options)
    assert code == 0
    assert "column   color: text, 2 different -> x\n" in said
    assert "class    1 b: 2\n" in said
    assert f"dayfly.data.csv({table!r}, target='kind', categories=['color'])" in said
    code, said, _ = show(table, *options, "--json")
    facts = json.loads(said)
    assert (facts["samples"], facts["classes"]) == ({"train": 3}, {"a": 1, "b": 2})
    assert facts["first"][0] == {"x_train": [1.0, 1.0], "y_train": 1}
    assert facts["columns"][1] == {"name": "color", "type": "text, 2 different", "role": "x"}


def test_a_table_that_leaves_a_question_is_shown_with_it(table: str) -> None:
    code, said, _ = show(table, "--json")
    facts = json.loads(said)
    assert code == 0
    assert [one["type"] for one in facts["columns"]][:2] == ["whole numbers", "text, 2 different"]
    assert facts["job"] is None
    assert "target='kind'" in facts["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{}.gone"], "is not there"),
        (["{}", "--form", "cvs"], "--form 'cvs' is not known: give one of arrays, csv"),
        (["{}", "--option", "goal=kind"], "--option goal: data of the form csv has target,"),
        (["{}", "--option", "kind"], "--option kind: give name=value"),
        (["{}", "--form", "images"], "is no directory"),
    ],
)
def test_wrong_requests(arguments: list[str], text: str, table: str) -> None:
    code, _, said = show(*(one.format(table) for one in arguments))
    assert (code, text in said) == (2, True), said


def test_no_module_hides_a_form() -> None:
    """`dayfly.data.csv` is the class, also once a module of that name would be imported."""
    modules = {path.stem for path in Path(dayfly.data.__file__).parent.glob("*.py")}
    assert not modules & set(READERS)
    assert [name for name in READERS if READERS[name].name != name] == []
    assert set(READERS) <= set(dir(dayfly.data))
