"""The documentation: pages with links that lead somewhere, a site without a warning."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from docs import generated

import dayfly
from dayfly.callbacks.base import Callback, RunView
from dayfly.callbacks.loggers import EpochLogger
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.cli.app import app
from dayfly.data.base import DataSource
from dayfly.life.platforms.base import Platform
from dayfly.registry import Registry
from dayfly.runs.deciders import Decider
from dayfly.wire.channels.base import Channel, Messages
from dayfly.wire.channels.kind import ChannelFactory, ChannelKind
from dayfly.wire.collectives.base import Collective
from dayfly.wire.stores.base import Store

ROOT = Path(__file__).parents[1]
LONGEST_README = 150


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


def test_the_index_names_every_page() -> None:
    """As links, for readers of the repository, and in the site's tables of contents."""
    text = (ROOT / "docs" / "index.md").read_text()
    pages = {
        str(page.relative_to(ROOT / "docs").with_suffix(""))
        for page in (ROOT / "docs").rglob("*.md")
        if page.name != "index.md"
    }
    assert set(re.findall(r"\]\(([\w/-]+)\.md\)", text)) == pages
    listed = re.findall(r"```{toctree}\n(?::[^\n]*\n)+\n(.*?)```", text, re.DOTALL)
    assert {line for block in listed for line in block.splitlines()} == pages


def test_the_page_of_commands_has_all_of_them_and_the_flags_of_runs() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    commands = typer.main.get_group(app).commands
    assert [name for name in commands if f"`dayfly {name}" not in text] == []
    flags = {
        flag
        for one in commands["train"].params
        for flag in one.opts
        if flag.startswith("--") and f"`{flag}" not in text
    }
    assert flags <= {"--resume", "--plan"}  # which stand with their commands


@pytest.mark.parametrize("page", generated.PAGES)
def test_a_page_made_from_the_code_is_what_the_code_says(page: str) -> None:
    made = (generated.REFERENCE / f"{page}.md").read_text()
    assert made == generated.PAGES[page](), "run: python docs/generated.py"


@pytest.mark.slow  # the links of pages are looked at in test_house.py
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [*(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n")]
    folders = ["-d", str(tmp_path / "doctrees"), str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    reference = (site / "reference" / "api.html").read_text()
    assert 'id="dayfly.train"' in reference
    interfaces = (site / "reference" / "interfaces.html").read_text()
    assert re.search(r"<pre>.*s3://bucket/runs/digits-1", interfaces)  # a drawing, as it stands
    # Links out of the folder of the docs lead to the site's pages.
    assert 'href="contributing.html"' in (site / "architecture.html").read_text()
    assert 'href="benchmarks.html#planning"' in (site / "speed.html").read_text()
    assert "Adding a part" in (site / "contributing.html").read_text()


#: What other packages derive from, or are given.
_INTERFACES = (
    *(Store, Platform, ChannelKind, ChannelFactory, Channel, Messages, Collective, Registry),
    *(Callback, RunView, DataSource, Decider, EpochLogger, Catalogue, FunctionPlatform, StoreFacts),
    *(getattr(dayfly, name) for name in dayfly.__all__ if name not in ("callbacks", "data")),
)


def callables(of: Any) -> Iterator[Callable[..., Any]]:
    """A function, or the public methods of a class that it does not inherit."""
    if not inspect.isclass(of):
        yield of
        return
    for name, one in vars(of).items():
        function = getattr(one, "__func__", one)
        if inspect.isfunction(function) and not name.startswith("_"):
            yield function


@pytest.mark.parametrize("of", _INTERFACES, ids=lambda of: of.__name__)
def test_arguments_and_errors_of_interfaces_are_lists(of: Any) -> None:
    prose = []
    for one in callables(of):
        text = inspect.getdoc(one) or ""
        names = [name for name in inspect.signature(one).parameters if name not in ("self", "cls")]
        as_another = text.startswith("As `")
        unlisted = len(names) > 1 and "Args:" not in text and not as_another
        if unlisted or re.search(r"\b[Rr]aises? [A-Z]\w+(Error|Failed|Missing)\b", text):
            prose.append(one.__qualname__)
    assert prose == []
