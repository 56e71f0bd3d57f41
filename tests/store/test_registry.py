"""Stores by the scheme of their URLs, also those of other packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.wire.stores import STORES, open_store

OUTSIDE = Path(__file__).parent / "outside"


@pytest.mark.parametrize("scheme", STORES)
def test_a_registered_opener_is_there(scheme: str) -> None:
    """With a URL of another scheme it says what is wanted."""
    with pytest.raises(RequestError, match="give a"):
        open_store(f"{scheme}://")


@pytest.mark.long
def test_a_store_of_another_package_passes_the_suite(tmp_path: Path) -> None:
    """Installed beside dayfly: a module, and what pip notes of its entry points."""
    package = tmp_path / "installed"
    package.mkdir()
    shutil.copy(OUTSIDE / "sqlite_store.py", package)
    shutil.copy(OUTSIDE / "check_sqlite_store.py", package / "test_theirs.py")
    notes = package / "sqlite_store-1.0.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: sqlite-store\nVersion: 1.0\n")
    (notes / "entry_points.txt").write_text("[dayfly.stores]\nsqlite = sqlite_store:open_sqlite\n")
    (package / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
