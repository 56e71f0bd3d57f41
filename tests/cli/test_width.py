"""A terminal has 80 columns: no table is cut there, and no number is broken."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dayfly.cli.profile import show
from dayfly.planning.profile import Figure, read_profile
from tests.cli import command
from tests.reading.damage import RECORDED, copied

PROFILE = RECORDED / "profile.json"


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list", "."),
        ("runs", "show", "job"),
        ("runs", "compare", "job", "planned"),
        ("report", "planned"),
        ("catalogue", "alibaba-fc-t4"),
        ("catalogue", "aws-lambda"),
        ("predict", PROFILE, "--workers", "1,2,4", "--collective", "pipelined,ring"),
        ("plan", PROFILE, "--workers", "4"),
    ],
)
def test_tables_fit(words: tuple[object, ...], tmp_path: Path) -> None:
    for name in ("job", "planned"):
        copied(name, tmp_path)
    done = command.here(*words, cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert_whole(done.stdout)


def test_a_profile_of_three_sizes_fits() -> None:
    """With quartiles, as measured ones have, and a start of more than a second."""
    two = read_profile(PROFILE)
    start = Figure(1.234, 1.15, 12.3, 5)
    third = replace(two.sizes[-1], memory_mib=10240, init_s=start, start_s=start, end_s=start)
    three = replace(two, sizes=(*two.sizes, third))
    console = Console(width=80, file=(told := io.StringIO()))
    show(three, console)
    assert_whole(text := told.getvalue())
    assert "1234 (1150-12300)" in text
    for size in three.sizes:  # heads of both tables, the last of which would be cut off
        assert text.count(f"{size.memory_mib} MiB") == 2


def assert_whole(text: str) -> None:
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    broken = re.compile(r"(^|\s)\.\d|\d-(\s|$)")  # a fraction, or a range, over two lines
    assert [line for line in text.splitlines() if broken.search(line)] == []
