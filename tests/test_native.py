"""Machine code of loops: read only if it is the right one and nobody else can have written it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dayfly import native
from dayfly.compiled import Loops
from dayfly.native import Array, Made, keep, kept

MADE = {"add": Made("add", (("<f8", 1), ("int64", 0)), one=False)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """With code that is none: it is read, and not linked."""
    place = tmp_path / "code.loops"
    keep([place], "key", b"co\nde", MADE)
    return place


def test_code_is_kept_where_it_can_be(tmp_path: Path, file: Path) -> None:
    assert kept([tmp_path / "none", file], "key") == (b"co\nde", MADE)
    assert file.stat().st_mode & 0o777 == 0o644
    (tmp_path / "a file").touch()
    second = tmp_path / "made" / "code.loops"
    keep([tmp_path / "a file" / "code.loops", second], "key", b"", MADE)
    assert kept([second], "key") == (b"", MADE)
    keep([tmp_path / "a file" / "code.loops"], "key", b"", MADE)  # nowhere


def test_code_of_something_else_is_not_read(file: Path) -> None:
    assert kept([file], "another key") is None


@pytest.mark.parametrize("length", [0, 1, 40, -5, -1])
def test_a_truncated_file_is_not_read(file: Path, length: int) -> None:
    file.write_bytes(file.read_bytes()[:length])
    assert kept([file], "key") is None


@pytest.mark.parametrize("line", [b"[]", b"{}", b"\xff", json.dumps({"key": "key"}).encode()])
def test_a_file_of_another_form_is_not_read(file: Path, line: bytes) -> None:
    file.write_bytes(line + b"\n" + b"co\nde")
    assert kept([file], "key") is None


def test_a_file_that_others_may_write_is_not_read(file: Path) -> None:
    for mode in (0o664, 0o646):
        file.chmod(mode)
        assert kept([file], "key") is None
    file.chmod(0o600)
    assert kept([file], "key") is not None


def test_links_and_pipes_are_not_read(tmp_path: Path, file: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert kept([tmp_path / "link", tmp_path / "pipe"], "key") is None


def test_code_that_llvm_cannot_link_is_refused() -> None:
    pytest.importorskip("llvmlite")
    with pytest.raises(RuntimeError):
        native.linked(b"no object file", MADE, {"add": ("float64",)})


@pytest.mark.slow
def test_loops_are_compiled_kept_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time without numba; after a change they are compiled again."""
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "loops_of_a_test.py"
    source.write_text(
        "import numpy as np\n"
        "def spread(values, step, twice):\n"
        "    found = np.empty((len(values), 2))\n"
        "    for i in range(len(values)):\n"
        "        found[i, 0] = values[i] * (2 if twice else 1)\n"
        "        found[i, 1] = i * step\n"
        "    return found[:2], len(values)\n"
    )
    takes = (Array(np.dtype("float64"), 1), "int64", "boolean")
    values = np.array([1.5, 2.5, 3.5])

    def loops() -> Loops:
        return Loops((source.stem,), lambda: {"spread": takes})

    assert not loops().are_cached()
    for read in (False, True):
        assert loops().are_cached() is read
        if read:
            monkeypatch.setattr(Loops, "_own", lambda *_, **__: pytest.fail("it compiles"))
        spread = loops().load()["spread"]
        for twice in (False, True):
            found, count = spread(values, 7, twice)
            assert found.tolist() == [[1.5 * (1 + twice), 0], [2.5 * (1 + twice), 7]]
            assert count == 3
        assert spread(values[:0], 7, True)[0].shape == (0, 2)
    for wrong in (values.astype("float32"), values[::2], values[None]):
        with pytest.raises(TypeError, match="not one of 1 dimensions of float64 in C order"):
            spread(wrong, 7, True)
    source.write_text(source.read_text() + "\n")
    assert not loops().are_cached()
