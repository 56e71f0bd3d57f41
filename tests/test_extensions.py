"""What another package adds to dayfly, by one file and a line of entry point each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dayfly.catalogue import lookup
from dayfly.errors import RequestError
from dayfly.life.platforms.local import LocalPlatform
from dayfly.registry import Registry

ROOT = Path(__file__).parents[1]
#: The page that shows how: files of a package `theirs`, and its entry points.
PAGE = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding a part")[2]
FILES = dict(re.findall(r"`(\w+\.(?:py|toml))`[^`]*:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL))
ENTRIES: dict[str, dict[str, str]] = tomllib.loads(
    re.findall(r"```toml\n(\[project.*?)```", PAGE, re.DOTALL)[0]
)["project"]["entry-points"]
#: About ten lines each, as the page shows them, or twice as many with a cost.
MOST_LINES = 26
JOB = """
import torch
from torch import nn

import dayfly

job = dayfly.Job(
    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
    data="digits",
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    batch_size=256,
    epochs=1,
)
"""


def install(site: Path, entries: dict[str, dict[str, str]]) -> None:
    """Entry points of their package, as pip would leave them."""
    information = site / "theirs-1.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    lines = [
        line
        for group, points in entries.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with their package, as the page has it."""
    package = tmp_path / "site" / "theirs"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, text in FILES.items():
        (package / name).write_text(text)
    install(package.parent, ENTRIES)
    return package.parent


def test_the_page_has_each_kind_in_few_lines() -> None:
    modules = {value.partition(":")[0] for points in ENTRIES.values() for value in points.values()}
    assert {f"{module.removeprefix('theirs.')}.py" for module in modules} <= FILES.keys()
    assert "test_theirs.py" in FILES
    long = {name for name, text in FILES.items() if len(text.splitlines()) > MOST_LINES}
    assert long == set()


def typed(command: list[str], directory: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """A command that does its work, beside their package."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def trained(directory: Path, site: Path, *flags: str) -> tuple[dict[str, Any], bytes]:
    """What a run of two workers says of itself, and its weights."""
    name = "theirs" if flags else "ours"
    command = [
        *(sys.executable, "-m", "dayfly", "train", "job.py", "--workers", "2", "--json"),
        *("--run-dir", name, *flags),
    ]
    *said, result = typed(command, directory, site).stdout.splitlines()
    heard = [line for line in said if line.startswith("loss ")]
    assert len(heard) == (1 if "losses" in flags else 0), "a listener, once an epoch"
    return json.loads(result), (directory / name / "weights.safetensors").read_bytes()


@pytest.mark.long
def test_a_run_with_each_of_their_parts_has_the_same_bits(site: Path, tmp_path: Path) -> None:
    """With options of dayfly.toml beside the job, and of a flag, which counts instead."""
    work, note, store = tmp_path / "work", tmp_path / "note", tmp_path / "store"
    work.mkdir()
    store.mkdir()
    (work / "job.py").write_text(JOB)
    table = f"[platform.mine]\nnote = {json.dumps(str(note))}\nmost = 2\n"
    (work / "dayfly.toml").write_text(table)
    _, expected = trained(work, site)
    result, weights = trained(
        *(work, site, "--platform", "mine", "--platform-option", "most=3"),
        *("--channel", f"shelf://{tmp_path}/messages", "--store", f"shelf://{store}"),
        *("--collective", "everybody", "--sync", "noted", "--listen", "losses"),
    )
    assert weights == expected
    assert note.read_text() == "at most 3"
    assert (store / result["run_id"] / "run.json").is_file()
    settings = json.loads((work / "theirs" / "run.json").read_text())["settings"]
    assert (settings["platform"], settings["collective"]) == ("mine", "everybody")
    assert settings["sync"] == "noted"
    assert settings["platform_options"] == {"note": str(note), "most": "3"}
    assert "step 0" in (work / "theirs" / "logs" / "worker-1.log").read_text()
    report = [*(sys.executable, "-m", "dayfly", "report", "theirs", "--prices", "basement")]
    told = typed(report, work, site).stdout
    assert "bill as on basement" in told
    # From each function's request to its end.
    (dollars,) = re.findall(r"^ all +([\d.]+) *$", told, re.MULTILINE)
    assert float(dollars) == pytest.approx(result["billed_s"] * 0.36 / 3600, abs=1e-8)


@pytest.mark.slow  # dayfly's own parts pass them in the suite, and a run has each of theirs above
def test_their_parts_pass_the_conformance_suites(site: Path) -> None:
    tests = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "theirs"]
    told = typed(tests, site, site).stdout
    for suite, least in (("TestEverybody", 15), ("TestShelf", 25), ("TestNoted", 4)):
        assert len(re.findall(rf"::{suite}::test_.* PASSED", told)) >= least, told


def test_they_cannot_take_a_name_of_dayflys(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"local": "theirs.platform:Mine", "broken": "nowhere:Gone"}
    install(site, {"dayfly.platforms": points})
    monkeypatch.syspath_prepend(site)
    found: Registry[type] = Registry(
        "platform", "dayfly.platforms", {"local": "dayfly.life.platforms.local:LocalPlatform"}
    )
    assert found["local"] is LocalPlatform
    assert list(found) == ["local", "broken"]
    assert found.get("neither") is None
    with pytest.raises(RequestError, match="'neither' is not known: give one of local, broken"):
        found.check("neither")
    with pytest.raises(RequestError, match="'broken', which is nowhere:Gone, cannot be imported"):
        found["broken"]


def test_a_price_list_that_is_no_file_is_refused(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    fresh = {"platforms": Registry("price list", "dayfly.prices", {})}
    monkeypatch.setattr(lookup, "_BROUGHT", {**lookup._BROUGHT, **fresh})
    points = {"aws-lambda": "theirs.prices:BASEMENT", "wrong": "theirs.shelf_channel:KIND"}
    install(site, {"dayfly.prices": points})
    known = lookup.Catalogue()
    assert "wrong" in known.platforms()
    assert known.platform("aws-lambda").memory_max_mib == 10240  # dayfly's own
    with pytest.raises(RequestError, match="'wrong' of another package is Shelf: it must be the"):
        known.platform("wrong")
