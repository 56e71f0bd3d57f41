"""Files as a store, beyond the suite: where they are, full disks, directories that go away."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Pieces, StoreDenied, StoreError, StoreFull, StoreUnreachable
from dayfly.wire.stores.files import FileStore


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@given(st.text(alphabet="a./\\~ -_\n\0é%", max_size=12) | st.text(max_size=20))
def test_names_never_leave_the_root(name: str) -> None:
    root = Path("/some/root")
    with suppress(ValueError):
        path = FileStore(root).path(name)
        assert Path(os.path.normpath(path)).is_relative_to(root)
        assert path != root
        assert not set(path.relative_to(root).parts) & {"..", "."}


def test_a_put_leaves_one_file(store: FileStore) -> None:
    version = store.put("a/x", b"1")
    assert store.put_new("a/x", b"2") is None
    assert store.put_if("a/x", b"3", version) is not None
    assert store.put_if("a/x", b"4", version) is None
    assert files(store.root) == ["a/.lock", "a/x"]


def test_a_version_never_comes_again(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the clock stands still, and inodes are used again."""
    monkeypatch.setattr("time.time_ns", lambda: 10**18)
    version = store.put_new("x", b"0")
    seen = {version}
    for turn in range(20):
        assert version is not None
        version = store.put_if("x", b"%d" % (turn % 2), version)
        assert version not in seen
        seen.add(version)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[FileStore]:
    """A store on a file system of 64 KiB."""
    root = tmp_path / "tiny"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield FileStore(root)
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_a_full_disk_is_named(tiny: FileStore) -> None:
    version = tiny.put("small", b"kept")
    large = bytes(100_000)
    for name, write in (
        ("a/large", lambda: tiny.put("a/large", large)),
        ("a/large", lambda: tiny.put_new("a/large", large)),
        ("a/large", lambda: tiny.put("a/large", Pieces(200_000, lambda: [large, large]))),
        ("small", lambda: tiny.put_if("small", large, version)),
    ):
        text = rf"^cannot write .*/tiny/{name}: No space left on device: make room in .*/tiny"
        with pytest.raises(StoreFull, match=text):
            write()
        assert files(tiny.root) == ["small"]
    assert tiny.get("small") == b"kept"


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        StoreError, match=r"^cannot write .*/file/x: (File exists|Not a directory)$"
    ):
        FileStore(tmp_path / "file").put("x", b"")
    with pytest.raises(StoreError, match=r"^cannot write .*: File name too long$"):
        FileStore(tmp_path).put("x" * 240, b"")


@pytest.mark.long
def test_who_has_no_right_is_told(tmp_path: Path) -> None:
    """By another user than root, who may do everything."""
    if os.geteuid() != 0:
        pytest.skip("to become another user needs root")
    store = FileStore(tmp_path / "root")
    store.put("a/x", b"secret")
    (store.root / "a" / "x").chmod(0o600)
    for folder in (store.root, *store.root.parents):
        if os.stat(folder).st_uid == 0 and folder.is_relative_to(tmp_path.parents[2]):
            folder.chmod(0o755)
    (store.root / "a").chmod(0o555)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setuid(65534)
            with pytest.raises(StoreDenied, match=r"^a/x in .*/root cannot be read: .*: let this"):
                store.get("a/x")
            for write in (
                lambda: store.put("a/x", b""),
                lambda: store.put_new("a/y", b""),
                lambda: store.delete(["a/x"]),
            ):
                with pytest.raises(StoreDenied, match=r"^cannot \w+ .*/a/[xy]: .*: let this user"):
                    write()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_urls(store: FileStore) -> None:
    assert open_store("file:///tmp/a?token=x").url == "file:///tmp/a?token=x", "a path is any"
    for url, wanted in (
        ("s4://bucket", "it is not known: give one of file:///absolute/path"),
        ("file://relative", "give an absolute path, as in file:///path"),
        ("/plain", "it is not known"),
        ("file:", "it is not known"),
        ("", "it is not known"),
    ):
        with pytest.raises(RequestError, match=wanted):
            open_store(url)


def test_a_directory_that_was_removed_is_not_made_anew(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "run")
    store.put("a/b", b"x")
    (tmp_path / "other").mkdir()  # before the number of the first is free again
    shutil.rmtree(store.root)
    for there in (store, store.below("folder")):
        with pytest.raises(StoreUnreachable, match="run' was removed while it was in use"):
            there.put("a/c", b"x")
    assert not store.root.exists()
    (tmp_path / "other").rename(store.root)
    with pytest.raises(StoreUnreachable, match="was replaced by another while"):
        store.put_new("c", b"x")
    assert not list(store.root.iterdir())


def test_a_private_folder_is_its_users_alone(store: FileStore) -> None:
    store.put("shared/x", b"")
    store.below("private", private=True).below("deep").put("x", b"")
    for folder in ("private", "private/deep"):
        assert (store.root / folder).stat().st_mode & 0o077 == 0
    assert (store.root / "shared").stat().st_mode & 0o500 == 0o500


def test_what_killed_writers_left_goes_and_nothing_else(store: FileStore) -> None:
    store.put("checkpoint/latest.json", b"kept")
    for name in ("run.json", "checkpoint/latest.json"):
        (store.root / f"{name}.{'0a' * 16}.tmp").write_bytes(b"half")
    for name in ("mine.tmp", "checkpoint/other.123.tmp"):
        (store.root / name).write_bytes(b"not ours")
    store.discard_unfinished()
    assert files(store.root) == ["checkpoint/latest.json", "checkpoint/other.123.tmp", "mine.tmp"]
