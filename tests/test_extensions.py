"""What another package adds to dayfly, by one file and a line of entry point each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dayfly.catalogue import lookup
from dayfly.errors import RequestError
from dayfly.life.platforms.local import LocalPlatform
from dayfly.registry import Registry

THEIRS = """
from dataclasses import dataclass, replace
from pathlib import Path

from dayfly.life.platforms.local import LocalOptions, LocalPlatform
from dayfly.wire.channels.kinds.files import Files
from dayfly.runs.protocols.bsp import Bsp
from dayfly.specs.protocols import ProtocolDescription
from dayfly.wire.collectives.scatter_reduce import SCATTER_REDUCE


@dataclass(frozen=True)
class Options:
    note: str = "none"
    most: int = 9


class Mine(LocalPlatform):
    name = "mine"
    Options = Options

    @classmethod
    def open(cls, opening, options):
        Path(options.note).write_text(str(options.most))
        return super().open(opening, LocalOptions())


class MyFiles(Files):
    schemes = ("mine",)
    usage = "mine:///path"


KIND = MyFiles()
SUM = replace(SCATTER_REDUCE, most_chunks=1)


class Steps(Bsp):
    def take(self, step):
        print(f"a step of theirs: {step}", flush=True)
        return super().take(step)


PROTOCOL = ProtocolDescription(name="mine", step="theirs:Steps")
PRICES = Path(__file__).with_name("prices.toml")
"""
PRICES = """
[usd_per_machine_hour]
value = 3600
source = "their contract"
as_of = "2026-11"
"""
ENTRIES = """
[dayfly.platforms]
mine = theirs:Mine
[dayfly.channels]
mine = theirs:KIND
[dayfly.collectives]
mine = theirs:SUM
[dayfly.protocols]
mine = theirs:PROTOCOL
[dayfly.prices]
mine = theirs:PRICES
"""
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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with their package, as pip would leave it."""
    information = tmp_path / "site" / "theirs-1.dist-info"
    information.mkdir(parents=True)
    (tmp_path / "site" / "theirs.py").write_text(THEIRS)
    (tmp_path / "site" / "prices.toml").write_text(PRICES)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (information / "entry_points.txt").write_text(ENTRIES)
    return tmp_path / "site"


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


@pytest.mark.long
def test_a_run_on_their_platform_over_their_channel_by_their_protocol_collective_and_prices(
    site: Path, tmp_path: Path
) -> None:
    """With options of dayfly.toml beside the job, and of a flag, which counts instead."""
    work, note = tmp_path / "work", tmp_path / "note"
    work.mkdir()
    (work / "job.py").write_text(JOB)
    table = f"[platform.mine]\nnote = {json.dumps(str(note))}\nmost = 2\n"
    (work / "dayfly.toml").write_text(table)
    command = [
        *(sys.executable, "-m", "dayfly", "train", "job.py", "--platform", "mine", "--json"),
        *("--platform-option", "most=3", "--channel", f"mine://{tmp_path}/messages"),
        *("--collective", "mine", "--sync", "mine", "--workers", "2", "--run-dir", "run"),
    ]
    done = typed(command, work, site)
    assert note.read_text() == "3"
    settings = json.loads((work / "run" / "run.json").read_text())["settings"]
    assert (settings["platform"], settings["collective"]) == ("mine", "mine")
    assert settings["sync"] == "mine"
    assert "a step of theirs: 0" in (work / "run" / "logs" / "worker-1.log").read_text()
    assert settings["platform_options"] == {"note": str(note), "most": "3"}
    report = [*(sys.executable, "-m", "dayfly", "report", "run", "--prices", "mine")]
    told = typed(report, work, site).stdout
    assert "bill as on mine" in told
    # A dollar a second, from each function's request to its end.
    seconds = json.loads(done.stdout.splitlines()[-1])["billed_s"]
    (dollars,) = re.findall(r"^ all +([\d.]+) *$", told, re.MULTILINE)
    assert float(dollars) == pytest.approx(seconds)


def test_they_cannot_take_a_name_of_dayflys(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[dayfly.platforms]\nlocal = theirs:Mine\nbroken = nowhere:Gone\n"
    (site / "theirs-1.dist-info" / "entry_points.txt").write_text(text)
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
    monkeypatch.setattr(
        lookup, "_BROUGHT", {"platforms": Registry("price list", "dayfly.prices", {})}
    )
    text = "[dayfly.prices]\naws-lambda = theirs:PRICES\nwrong = theirs:KIND\n"
    (site / "theirs-1.dist-info" / "entry_points.txt").write_text(text)
    known = lookup.Catalogue()
    assert "wrong" in known.platforms()
    assert known.platform("aws-lambda").memory_max_mib == 10240  # dayfly's own
    with pytest.raises(RequestError, match="'wrong' of another package is MyFiles: it must be the"):
        known.platform("wrong")
