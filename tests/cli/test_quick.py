"""Commands that read flags themselves give what typer gives, or the same refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from dayfly.cli.quick import QuickCommand, QuickGroup


def _app(**quick: Any) -> typer.Typer:
    app = typer.Typer(**({"cls": QuickGroup} if quick else {}))

    @app.callback()
    def root(version: Annotated[bool, typer.Option("--version")] = False) -> None:
        print(f"{version=}")

    @app.command(**quick)
    def read(
        files: list[Path],
        name: str | None = None,
        output: Path = Path("here"),
        each: Annotated[list[str] | None, typer.Option()] = None,
        number: int | None = None,
        part: float = 0.5,
        quiet: Annotated[bool, typer.Option("--quiet")] = False,
    ) -> None:
        print(f"{files=} {name=} {output=} {each=} {number=} {part=} {quiet=}")

    return app


@pytest.mark.parametrize(
    "arguments",
    [
        "a",
        "a b --name= --output . --quiet",
        "a --each x --each y --number 3 --part 1e-3",
        "a --number many",
        "a --part",
        "",
        "a --nothing",
        "--help",
        f"{__file__} {Path(__file__).parent} --name {'x' * 3}",
    ],
)
def test_flags_are_read_as_typer_reads_them(arguments: str) -> None:
    expected, found = (
        CliRunner().invoke(app, ["--version", "read", *arguments.split()])
        for app in (_app(), _app(cls=QuickCommand))
    )
    assert (found.exit_code, found.output) == (expected.exit_code, expected.output)
    assert found.exit_code in (0, 2)
    assert found.output
