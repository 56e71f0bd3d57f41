"""Which file a script is: by its path, or by the name of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.runs.scripts.record import Script, digest_of


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "outer" / "inner" / "__init__.py").write_text("")
    (tmp_path / "outer" / "inner" / "__main__.py").write_text("print(1)")
    (tmp_path / "outer" / "train.py").write_text("print(2)")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file", "full"),
    [
        ("outer.train", "outer/train.py", "outer.train"),
        ("outer.inner", "outer/inner/__main__.py", "outer.inner.__main__"),
    ],
)
def test_a_module_is_found_without_importing_it(
    name: str, file: str, full: str, package: Path
) -> None:
    found = Script.find(name, module=True, cwd=package)
    path = package / file
    assert found == Script(str(path), full, digest_of(path.read_bytes()))
    assert found.changed() is None


def test_a_change_is_noticed(package: Path) -> None:
    found = Script.find("outer/train.py", module=False, cwd=package)
    assert found.module is None
    (package / "outer" / "train.py").write_text("print(3)")
    assert "has changed since the run began" in (found.changed() or "")
    (package / "outer" / "train.py").unlink()
    assert "cannot be read any more" in (found.changed() or "")


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("gone.py", False, "'gone.py' is not there"),
        ("outer", False, "'outer' is a directory"),
        ("wrong.py", False, "'wrong.py' is no Python: invalid syntax"),
        ("gone", True, "-m gone: there is no such module"),
        ("outer.gone", True, "-m outer.gone: there is no such module"),
        ("outer", True, "-m outer.__main__: there is no such module"),
        ("math", True, "-m math: "),
    ],
)
def test_what_is_no_script_is_refused(name: str, module: bool, words: str, package: Path) -> None:
    (package / "wrong.py").write_text("def f(:")
    with pytest.raises(RequestError, match=words):
        Script.find(name, module=module, cwd=package)
