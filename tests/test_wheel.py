"""A wheel holds all of the package: installed where nothing else of it is, it runs the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,  # builds and installs; what is imported from where, test_house.py looks at
    pytest.mark.cold,
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network: what builds it is installed here."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel: pip install hatchling")
    directory = tmp_path_factory.mktemp("wheel")
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "-w", str(directory)]
    done = pip("wheel", *flags, str(ROOT))
    assert done.returncode == 0, done.stderr
    (built,) = directory.glob("dayfly-*.whl")
    return built


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    listed = ["git", "ls-files", "src/dayfly"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {line.removeprefix("src/") for line in tracked.splitlines()}
    found = {name for name in ZipFile(wheel).namelist() if name.startswith("dayfly/")}
    assert expected - found == set()
    assert [name for name in found if "__pycache__" in name or name.endswith(".pyc")] == []


@pytest.mark.timeout(600)
def test_an_empty_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment, which lie on its path; dayfly is not."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    flags = ["--no-deps", "--no-index", "--quiet"]
    done = pip("--python", str(python), "install", *flags, str(wheel))
    assert done.returncode == 0, done.stderr
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (tmp_path / "here").mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path / "here", env=outside, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    place = run(str(python), "-c", "import dayfly; print(dayfly.__file__)")
    assert Path(place.strip()).is_relative_to(packages)
    dayfly = str(environment / "bin" / "dayfly")
    said = run(dayfly, "demo", "--json")
    result = json.loads(said.splitlines()[-1])
    assert result["status"] == "done"
    assert result["val_accuracy"] > 0.9
    (directory,) = (tmp_path / "here" / "runs").iterdir()
    run(dayfly, "report", str(directory))
    assert (directory / "report.html").stat().st_size > 50_000
    run(dayfly, "catalogue", "aws-lambda")
