"""`dayfly bench`: what there is, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dayfly.cli.bench import benches, measure
from dayfly.errors import RequestError
from tests.cli import command

pytestmark = pytest.mark.long


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_what_there_is(arguments: list[str], tmp_path: Path) -> None:
    done = command.here("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "training" in done.stdout


def test_a_bench_tells_its_own_options(tmp_path: Path) -> None:
    done = command.here("bench", "training", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--profile" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bananas"], "give one of"),
        (["../training"], "give one of"),
        (["training", "--bananas"], "unrecognized arguments: --bananas"),
        (["training", "--quic"], "unrecognized arguments: --quic"),
        (["training", "--models", "gpt5"], "is none of digits-cnn, resnet18, wide-mlp"),
        (["training", "--workers", "3"], "cannot share the batches evenly"),
        (["training", "--workers", "1"], "cannot share the batches evenly"),
        (["training", "--workers", "two"], "give a whole number above 0"),
        (["training", "--rounds", "0"], "give a whole number above 0"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = command.here("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refusal_in_json(tmp_path: Path) -> None:
    done = command.run("bench", "bananas", "--json", cwd=tmp_path)
    assert done.returncode == 2
    result = command.last_json(done.stdout)
    assert (result["bench"], result["status"]) == ("bananas", "failed")
    assert "give one of" in result["error"]


def test_a_package_that_only_some_of_a_bench_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As optuna after `make demo`, which installs no tools of tests and benches."""

    class Bench:
        @staticmethod
        def run(_: list[str]) -> None:
            importlib.import_module("nobody_has_this")

    monkeypatch.setattr("dayfly.cli.bench.checkout_module", lambda _: Bench)
    assert measure("planning", [], as_json=False) == 2
    assert "benchmarks need nobody_has_this, which is not installed" in capsys.readouterr().err


def test_an_installation_without_a_checkout_is_told_to_clone(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="clone its repository"):
        benches(tmp_path)


def test_folders_are_no_benches(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "piece.py").touch()
    (folder / "__init__.py").touch()
    (folder / "speed.py").write_text('"""How fast.\n\nLong."""')
    assert benches(tmp_path) == {"speed": "How fast."}
