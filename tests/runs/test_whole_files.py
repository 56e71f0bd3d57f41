"""A file is the former one, or all of the new one, and nothing stays beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.runs.whole_files import replacing


@pytest.mark.parametrize("cause", [OSError, KeyboardInterrupt])
def test_whole_or_not_at_all(tmp_path: Path, cause: type[BaseException]) -> None:
    file = tmp_path / "page.html"
    with replacing(file) as beside:
        beside.write_text("first")
    with pytest.raises(cause), replacing(file) as beside:  # noqa: PT012 - half of it is written
        beside.write_text("half")
        raise cause
    assert file.read_text() == "first"
    with pytest.raises(FileNotFoundError), replacing(file):
        pass  # nothing was written
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
