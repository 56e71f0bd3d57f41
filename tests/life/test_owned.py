"""Nothing is removed that is not provably dayfly's: a marker, the owner, no link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dayfly import owned


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    directory = tmp_path / "a" / "b"
    owned.claim(directory, "me")
    (directory / "deep" / "deeper").mkdir(parents=True)
    (directory / "deep" / "file").write_text("x")
    return directory


def test_what_was_claimed_is_removed_with_all_in_it(mine: Path) -> None:
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    owned.claim(mine, "me")  # once more: it stays as it is
    assert (mine / "deep" / "file").exists()
    assert owned.remove(mine, "me")
    assert not mine.exists()
    assert mine.parent.exists()
    assert owned.remove(mine, "me")


def test_what_has_no_marker_or_anothers_stays(mine: Path, tmp_path: Path) -> None:
    assert not owned.remove(mine, "somebody else")
    assert not owned.remove(tmp_path, "me")  # no marker, and not empty
    assert (mine / "deep" / "file").exists()
    with pytest.raises(FileExistsError, match="dayfly did not make it for you"):
        owned.claim(mine, "you")
    with pytest.raises(FileExistsError, match="name another place"):
        owned.claim(tmp_path, "me")


def test_links_are_never_followed(mine: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("x")
    (mine / "link").symlink_to(precious)
    (mine / "deep" / "link").symlink_to(precious / "thesis")
    (tmp_path / "way").symlink_to(mine)
    assert not owned.remove(tmp_path / "way", "me")
    assert (mine / "deep" / "file").exists()
    assert owned.remove(mine, "me")
    assert (precious / "thesis").exists()
    # Nor is a marker that is a link one.
    (tmp_path / "marker").write_text("me")
    (precious / owned.MARKER).symlink_to(tmp_path / "marker")
    assert not owned.remove(precious, "me")
    assert (precious / "thesis").exists()


def test_a_removal_that_was_killed_can_be_finished(mine: Path) -> None:
    """The marker goes last: what is left of the rest is still known to be the owner's."""
    os.chmod(mine / "deep", 0o500)
    owned.remove(mine, "me")  # root removes all of it, others nothing
    if mine.exists():
        os.chmod(mine / "deep", 0o700)
        assert owned.belongs(mine, "me")
    assert owned.remove(mine, "me")
    assert not mine.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_stays(mine: Path) -> None:
    os.chown(mine, 12345, -1)
    assert not owned.remove(mine, "me")
    assert (mine / "deep" / "file").exists()
