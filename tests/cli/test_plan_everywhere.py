"""`dayfly plan --everywhere`: what it prints, and what cannot be asked beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.planning.profile import profile_text
from tests.cli.test_plan import plan
from tests.runs.test_everywhere import profiled


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "profile.json"
    file.write_text(profile_text(profiled()))
    return file


@pytest.mark.long
def test_each_line_says_where_how_sure_and_what_it_needs(profile: Path, tmp_path: Path) -> None:
    page = tmp_path / "where.html"
    done = plan(profile, "--everywhere", "--workers", 2, "--plot", page)
    assert done.exit_code == 0, done.output
    title, *lines = done.stdout.splitlines()
    assert title.startswith("random: seconds against dollars, ")
    assert title.rstrip().endswith(" platforms")
    heads = next(line.split() for line in lines if "total s" in line)
    assert heads == ["total", "s", "USD", "where", "plan", "how", "sure", "needs"]
    assert any(line.startswith("needs a     an account at ") for line in lines)
    assert any(line.startswith("derived 1   ") for line in lines)
    assert "what it would need" in page.read_text()


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--platform", "fargate"), "platform"),
        (("--price-store", "s3"), "price-store"),
        (("--gpu", "T4"), "gpu"),
    ],
)
def test_places_are_not_named_beside_it(profile: Path, flags: tuple[str, str], name: str) -> None:
    done = plan(profile, "--everywhere", *flags)
    assert done.exit_code == 2
    assert (
        f"--everywhere looks at all platforms, stores and GPUs: leave out --{name}, or --everywhere"
    ) in " ".join(done.output.split())
